"""Calls to webhooks over HTTPS, on connections that are kept, within a deadline.

Source: kubernetes v1.36, apiserver/pkg/util/webhook/client.go, client-go/rest/request.go; measured
behaviour: HTTP/1.1, idle connections taken last in first out, a POST is not repeated when its
connection turns out to be closed.
"""

from __future__ import annotations

import http.client
import select
import ssl
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final
from urllib.parse import urlsplit

MAX_RESPONSE_BYTES: Final = 8 * 1024 * 1024
MAX_IDLE_PER_HOST: Final = 25
_MAX_REPEATS: Final = 10
_GZIP: Final = 31


class CallError(Exception):
    """A call that brought no answer; the text is the API server's, as far as it can be."""


@dataclass(frozen=True, slots=True)
class _HttpResponse:
    """One HTTP response, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")


class WebhookCaller:
    """Posts reviews to webhooks whose certificates are signed by one CA. Thread-safe."""

    def __init__(self, ca_pem: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Trust `ca_pem` and nothing else; `sleep` is in seconds."""
        self._context = ssl.create_default_context(cadata=ca_pem)
        self._sleep = sleep
        self._lock = threading.Lock()
        self._idle: dict[str, list[http.client.HTTPSConnection]] = defaultdict(list)

    @property
    def idle_connections(self) -> int:
        """Number of open connections that are kept for the next calls."""
        with self._lock:
            connections = [one for idle in self._idle.values() for one in idle]
        return sum(not _is_closed(one) for one in connections)

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            connections = [one for idle in self._idle.values() for one in idle]
            self._idle.clear()
        for connection in connections:
            connection.close()

    def post(self, url: str, body: bytes, *, timeout_seconds: float) -> bytes:
        """Post a review and return the body of the answer.

        An answer of 429 or 5xx that names a `Retry-After` is asked for again while there is time.

        Raises:
            CallError: There was no answer of a 2xx status in time.
        """
        deadline = time.monotonic() + timeout_seconds
        for attempt in range(_MAX_REPEATS + 1):
            full_url = f"{url}?timeout={max(1, ceil(deadline - time.monotonic()))}s"
            reply = self._send(full_url, body, deadline)
            pause = _retry_after(reply)
            if pause is None or attempt == _MAX_REPEATS:
                return _checked(reply)
            if time.monotonic() + pause >= deadline:
                raise _post_failed(full_url, "context deadline exceeded")
            self._sleep(pause)
        raise CallError("unreachable")

    def _send(self, url: str, body: bytes, deadline: float) -> _HttpResponse:
        parts = urlsplit(url)
        connection = self._take(parts.netloc)
        try:
            self._limit(connection, deadline)
            connection.request("POST", f"{parts.path}?{parts.query}", body, _HEADERS)
            self._limit(connection, deadline)
            reply, reusable = self._read(connection, deadline)
        except BaseException as err:
            connection.close()
            if isinstance(err, OSError | http.client.HTTPException):
                raise _post_failed(url, _transport_text(err, parts.netloc)) from err
            raise
        if reusable:
            self._keep(parts.netloc, connection)
        else:
            connection.close()
        return reply

    def _take(self, host: str) -> http.client.HTTPSConnection:
        while True:
            with self._lock:
                idle = self._idle[host]
                connection = idle.pop() if idle else None
            if connection is None:
                return http.client.HTTPSConnection(host, context=self._context)
            if not _is_closed(connection):
                return connection
            connection.close()

    def _keep(self, host: str, connection: http.client.HTTPSConnection) -> None:
        with self._lock:
            idle = self._idle[host]
            if len(idle) < MAX_IDLE_PER_HOST:
                idle.append(connection)
                return
        connection.close()

    def _limit(self, connection: http.client.HTTPSConnection, deadline: float) -> None:
        """Limit the next step on a connection to the time that is left."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.timeout = left
        if connection.sock is not None:
            connection.sock.settimeout(left)

    def _read(
        self, connection: http.client.HTTPSConnection, deadline: float
    ) -> tuple[_HttpResponse, bool]:
        response = connection.getresponse()
        chunks, size = [], 0
        while chunk := response.read1(65536):
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_RESPONSE_BYTES:
                raise http.client.HTTPException("the answer is too large")
            if connection.sock is not None:
                self._limit(connection, deadline)
        response.close()  # reading to the end with read1 does not, and the connection is kept
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        headers = {name.lower(): value for name, value in response.getheaders()}
        reply = _HttpResponse(response.status, headers, b"".join(chunks))
        return reply, not response.will_close


def _is_closed(connection: http.client.HTTPSConnection) -> bool:
    """Return whether an idle connection has something to read: that can only be its end."""
    if connection.sock is None:
        return True
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


_HEADERS: Final = {
    "Content-Type": "application/json",
    "Accept": "application/json, */*",
    "User-Agent": "kube-apiserver-admission",
    "Accept-Encoding": "gzip",
}

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


def _checked(reply: _HttpResponse) -> bytes:
    if not 200 <= reply.status < 300:
        raise CallError(f"failed to call webhook: {_status_text(reply)}")
    body = _plain(reply)
    if not body:
        raise CallError(
            f"failed to call webhook: 0-length response with status code: {reply.status} and "
            f"content type: {reply.content_type}"
        )
    return body


def _plain(reply: _HttpResponse) -> bytes:
    if reply.headers.get("content-encoding", "") != "gzip":
        return reply.body
    try:
        return zlib.decompressobj(_GZIP).decompress(reply.body, MAX_RESPONSE_BYTES)
    except zlib.error as err:
        raise CallError(f"failed to call webhook: gzip: {err}") from err


def _status_text(reply: _HttpResponse) -> str:
    if reply.status in _STATUS_TEXTS:
        return _STATUS_TEXTS[reply.status]
    is_text = reply.content_type.startswith("text/")
    said = reply.body.decode(errors="replace").strip() if is_text else ""
    if reply.status >= 500:
        shown = (said or "unknown").replace('"', '\\"')
        return f'an error on the server ("{shown}") has prevented the request from succeeding'
    return (
        f"the server responded with the status code {reply.status} but did not return more "
        "information"
    )


def _retry_after(reply: _HttpResponse) -> int | None:
    """Return after how many seconds to ask again; None if that was not said."""
    text = reply.headers.get("retry-after", "")
    may_repeat = reply.status == 429 or reply.status >= 500
    return int(text) if may_repeat and text.isascii() and text.isdigit() else None


def _post_failed(url: str, detail: str) -> CallError:
    return CallError(f'failed to call webhook: Post "{url}": {detail}')


_TRANSPORT_TEXTS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (TimeoutError, "context deadline exceeded"),
    (ConnectionRefusedError, "dial tcp {host}: connect: connection refused"),
    (http.client.RemoteDisconnected, "EOF"),
    (ssl.SSLEOFError, "EOF"),
    (ConnectionError, "read: connection reset by peer"),
    (ssl.SSLCertVerificationError, "tls: failed to verify certificate: x509: {error}"),
    (http.client.IncompleteRead, "unexpected EOF"),
)


def _transport_text(error: OSError | http.client.HTTPException, host: str) -> str:
    found = next((text for kind, text in _TRANSPORT_TEXTS if isinstance(error, kind)), "{error}")
    shown = getattr(error, "verify_message", "") or str(error) or type(error).__name__
    return found.format(host=host, error=shown)
