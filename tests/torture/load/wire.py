"""A lean HTTPS client for the load: one kept connection, small requests, whole answers.

The load shares two cores with everything that it loads, so it does no more than it must.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

SECONDS: Final = 40.0
"""Longer than the API server works on a request, so that none is given up while it may yet work."""

PATCH_KINDS: Final = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


class LostAnswerError(Exception):
    """No answer came: whether the request took effect is not known."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer."""

    status: int
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The body as an object; empty if it is none."""
        try:
            decoded = msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            return {}
        return decoded if isinstance(decoded, dict) else {}

    @property
    def message(self) -> str:
        """What the Status in it says."""
        return str(self.json.get("message") or self.body.decode(errors="replace"))


class Wire:
    """A connection to the API server, made when needed. For one thread.

    Args:
        url: Where the API server is.
        context: Trusts it, and has a client certificate.
    """

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        place = urlsplit(url)
        self._address = (place.hostname or "", place.port or 443)
        self._context = context
        self._socket: ssl.SSLSocket | None = None
        self._rest = b""

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        kind: str = "application/json",
    ) -> Reply:
        """Send a request and wait for its answer.

        Raises:
            LostAnswerError: The connection broke, or nothing came in time.
        """
        sent = b"" if body is None else msgspec.json.encode(body)
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._address[0]}\r\n"
            f"Content-Type: {kind}\r\nAccept: application/json\r\n"
            f"Content-Length: {len(sent)}\r\n\r\n"
        )
        try:
            if self._socket is None:
                self._socket = self._connect()
            self._socket.sendall(head.encode() + sent)
            return self._read(self._socket)
        except (OSError, ValueError, LookupError) as err:
            self.close()
            raise LostAnswerError(f"{method} {path}: {err!r}") from err

    def patch(self, path: str, patch: Mapping[str, object], kind: str = "merge") -> Reply:
        """Change an object; `kind` is one of PATCH_KINDS."""
        return self.call("PATCH", path, patch, PATCH_KINDS[kind])

    def close(self) -> None:
        """Close the connection; the next call makes another."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket, self._rest = None, b""

    def _connect(self) -> ssl.SSLSocket:
        plain = socket.create_connection(self._address, timeout=SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._context.wrap_socket(plain, server_hostname=self._address[0])

    def _read(self, connection: ssl.SSLSocket) -> Reply:
        head = self._until(connection, b"\r\n\r\n")
        lines = head.decode("latin-1").lower().split("\r\n")
        status = int(lines[0].split(" ", 2)[1])
        headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
        if headers.get("transfer-encoding") == "chunked":
            body = self._chunks(connection)
        else:
            body = self._exactly(connection, int(headers.get("content-length", "0")))
        if headers.get("connection") == "close":
            self.close()
        return Reply(status, body)

    def _chunks(self, connection: ssl.SSLSocket) -> bytes:
        parts: list[bytes] = []
        while size := int(self._until(connection, b"\r\n"), 16):
            parts.append(self._exactly(connection, size + 2)[:-2])
        self._until(connection, b"\r\n")
        return b"".join(parts)

    def _until(self, connection: ssl.SSLSocket, end: bytes) -> bytes:
        while (found := self._rest.find(end)) < 0:
            self._more(connection)
        part, self._rest = self._rest[:found], self._rest[found + len(end) :]
        return part

    def _exactly(self, connection: ssl.SSLSocket, size: int) -> bytes:
        while len(self._rest) < size:
            self._more(connection)
        part, self._rest = self._rest[:size], self._rest[size:]
        return part

    def _more(self, connection: ssl.SSLSocket) -> None:
        piece = connection.recv(65536)
        if not piece:
            raise ConnectionError("the server has closed the connection")
        self._rest += piece
