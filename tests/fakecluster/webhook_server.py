"""A webhook server for tests: HTTPS on this machine, answering as a test tells it to."""

from __future__ import annotations

import json
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

from webhook.tls.issue import Issued, issue_ca, issue_serving


@dataclass(frozen=True)
class ReceivedReview:
    """One request that the server got."""

    path: str
    timeout: str
    headers: Mapping[str, str]
    review: dict[str, object]
    client_port: int

    @property
    def request(self) -> dict[str, object]:
        """The `request` of the review."""
        found = self.review["request"]
        assert isinstance(found, dict)
        return found

    @property
    def uid(self) -> str:
        """The uid of the call."""
        return str(self.request["uid"])


@dataclass(frozen=True)
class Reply:
    """One HTTP answer; `hang_up`: close the connection instead of answering."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    hang_up: bool = False


Responder = Callable[[ReceivedReview], Reply]


def answer(asked: ReceivedReview, response: Mapping[str, object]) -> Reply:
    """An AdmissionReview that carries a response to what was asked."""
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": asked.uid, **response},
    }
    return Reply(json.dumps(review).encode(), headers={"Content-Type": "application/json"})


def not_found(asked: ReceivedReview) -> Reply:
    """Say that there is nothing at this path."""
    del asked
    return Reply(status=404)


def allow(asked: ReceivedReview) -> Reply:
    """Allow everything."""
    return answer(asked, {"allowed": True})


def deny(**status: object) -> Responder:
    """Refuse everything with a status."""
    return lambda asked: answer(asked, {"allowed": False, "status": status})


def patch(*operations: Mapping[str, object]) -> Responder:
    """Allow everything, changed."""
    encoded = b64encode(json.dumps(operations).encode()).decode()
    response = {"allowed": True, "patchType": "JSONPatch", "patch": encoded}
    return lambda asked: answer(asked, response)


class WebhookServer:
    """Answers each path as `answers` says; what is not there gets 404.

    Attributes:
        answers: Path → what answers it.
        asked: What came in, in order of arrival.
    """

    ca: ClassVar[Issued] = issue_ca(now=datetime.now(UTC))

    def __init__(self, directory: Path) -> None:
        self.answers: dict[str, Responder] = {}
        self.asked: list[ReceivedReview] = []
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.socket = _context(directory, self.ca).wrap_socket(
            self._server.socket, server_side=True
        )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the server is."""
        return f"https://127.0.0.1:{self._server.server_address[1]}"

    @property
    def ca_pem(self) -> str:
        """The CA to trust."""
        return self.ca.certificate.decode()

    def close(self) -> None:
        """Stop; connections end."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 10
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                server.respond(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Say nothing."""

        return Handler

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        parts = urlsplit(handler.path)
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        asked = ReceivedReview(
            path=parts.path,
            timeout=parse_qs(parts.query).get("timeout", [""])[0],
            headers=dict(handler.headers),
            review=json.loads(body),
            client_port=handler.client_address[1],
        )
        self.asked.append(asked)
        reply = self.answers.get(parts.path, not_found)(asked)
        if reply.hang_up:
            handler.close_connection = True
            return
        with suppress(OSError):  # the caller may be gone
            _send(handler, reply)


def _send(handler: BaseHTTPRequestHandler, reply: Reply) -> None:
    handler.send_response(reply.status)
    for name, value in reply.headers.items():
        handler.send_header(name, value)
    if "Content-Length" not in reply.headers:
        handler.send_header("Content-Length", str(len(reply.body)))
    handler.end_headers()
    handler.wfile.write(reply.body)
    handler.wfile.flush()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: tests break connections on purpose."""


def _context(directory: Path, ca: Issued) -> ssl.SSLContext:
    issued = issue_serving(ca, ip_addresses=["127.0.0.1"], now=datetime.now(UTC))
    certificate, key = directory / "tls.crt", directory / "tls.key"
    certificate.write_bytes(issued.certificate)
    key.write_bytes(issued.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context
