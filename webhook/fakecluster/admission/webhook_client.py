"""Calls to webhooks over HTTPS, on connections that are kept, within a deadline.

Source: kubernetes v1.36, apiserver/pkg/util/webhook/client.go, client-go/rest/request.go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from math import ceil
from typing import Final
from urllib.parse import urlsplit

from webhook.kube.api import RequestTimeoutError, UnreachableError
from webhook.kube.rest.config import RestConfig
from webhook.kube.rest.http1 import BodyTooLongError
from webhook.kube.rest.identity import Credentials, Identity, Pem
from webhook.kube.rest.tls_config import Trust
from webhook.kube.rest.transport import Request, Response, Transport

MAX_RESPONSE_BYTES: Final = 8 * 1024 * 1024
_MAX_REPEATS: Final = 10
_TIMEOUT_SECONDS: Final = 30.0
"""The longest time that a registration can give a webhook."""


class CallError(Exception):
    """A call that brought no answer; the text is the API server's, as far as it can be."""


class WebhookCaller:
    """Posts reviews to webhooks whose certificates are signed by one CA. Thread-safe."""

    def __init__(self, ca_pem: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Trust `ca_pem` and nothing else; `sleep` is in seconds."""
        self._trust = Trust(Pem(data=ca_pem.encode()))
        self._sleep = sleep
        self._transports: dict[str, Transport] = {}

    def close(self) -> None:
        """Close the idle connections."""
        for transport in self._transports.values():
            transport.close()

    def post(self, url: str, body: bytes, *, timeout_seconds: float) -> bytes:
        """Post a review and return the body of the answer.

        An answer of 429 or 5xx that names a `Retry-After` is asked for again while there is time.

        Raises:
            CallError: There was no answer of a 2xx status in time.
        """
        deadline = time.monotonic() + timeout_seconds
        for attempt in range(_MAX_REPEATS + 1):
            left = deadline - time.monotonic()
            full_url = f"{url}?timeout={max(1, ceil(left))}s"
            reply = self._send(full_url, body, left)
            pause = _retry_after(reply)
            if pause is None or attempt == _MAX_REPEATS:
                return _checked(reply)
            if time.monotonic() + pause >= deadline:
                raise _post_failed(full_url, "context deadline exceeded")
            self._sleep(pause)
        raise CallError("unreachable")

    def _send(self, url: str, body: bytes, seconds: float) -> Response:
        parts = urlsplit(url)
        server = f"https://{parts.netloc}"
        request = Request(
            "POST",
            f"{parts.path}?{parts.query}",
            body,
            accept="application/json, */*",
            most_bytes=MAX_RESPONSE_BYTES,
            most_seconds=max(seconds, 0.001),
        )
        try:
            return self._transport(server).send(request)
        except RequestTimeoutError as err:
            raise _post_failed(url, "context deadline exceeded") from err
        except BodyTooLongError as err:
            raise _post_failed(url, "the answer is too large") from err
        except UnreachableError as err:
            raise _post_failed(url, err.message.removeprefix(f"{request}: {server}: ")) from err

    def _transport(self, server: str) -> Transport:
        found = self._transports.get(server)
        if found is None:
            config = RestConfig(
                server=server,
                source="webhook of the embedded cluster",
                credentials=Credentials(Identity),
                trust=self._trust,
            )
            made = Transport(
                config, user_agent="kube-apiserver-admission", timeout_seconds=_TIMEOUT_SECONDS
            )
            found = self._transports.setdefault(server, made)
        return found


_STATUS_TEXTS: Final[Mapping[int, str]] = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, "
    "but may still be processing the request",
}


def _checked(reply: Response) -> bytes:
    if not 200 <= reply.head.status < 300:
        raise CallError(f"failed to call webhook: {_status_text(reply)}")
    if not reply.body:
        raise CallError(
            f"failed to call webhook: 0-length response with status code: {reply.head.status} and "
            f"content type: {_content_type(reply)}"
        )
    return reply.body


def _content_type(reply: Response) -> str:
    return reply.head.headers.get("content-type", "")


def _status_text(reply: Response) -> str:
    if reply.head.status in _STATUS_TEXTS:
        return _STATUS_TEXTS[reply.head.status]
    is_text = _content_type(reply).startswith("text/")
    said = reply.body.decode(errors="replace").strip() if is_text else ""
    if reply.head.status >= 500:
        shown = (said or "unknown").replace('"', '\\"')
        return f'an error on the server ("{shown}") has prevented the request from succeeding'
    return (
        f"the server responded with the status code {reply.head.status} but did not return more "
        "information"
    )


def _retry_after(reply: Response) -> int | None:
    """Return after how many seconds to ask again; None if that was not said."""
    text = reply.head.headers.get("retry-after", "")
    may_repeat = reply.head.status == 429 or reply.head.status >= 500
    return int(text) if may_repeat and text.isascii() and text.isdigit() else None


def _post_failed(url: str, detail: str) -> CallError:
    return CallError(f'failed to call webhook: Post "{url}": {detail}')
