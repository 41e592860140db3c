"""The API server's REST paths, for what tests do besides the product: quick, and nothing hidden."""

from __future__ import annotations

import http.client
import json
import select
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

_SECONDS: Final = 30.0
_PATCHES: Final = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


@dataclass
class RestError(Exception):
    """The API server refused.

    Attributes:
        status: The HTTP status.
        reason: The Status object's reason, such as AlreadyExists.
        message: Its message.
    """

    status: int
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.status} {self.reason}: {self.message}"


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response that was read to its end."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Rest:
    """Calls one server with one credential, on kept connections; threads may share it.

    Args:
        url: scheme://host:port
        context: Trusts the server's CA and may carry a client certificate; None for plain HTTP.
        token: A bearer token; empty sends none.
    """

    def __init__(self, url: str, context: ssl.SSLContext | None, token: str = "") -> None:
        place = urlsplit(url)
        assert place.hostname is not None
        self._host, self._port = place.hostname, place.port
        self._context = context
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.idle: list[http.client.HTTPConnection] = []
        """Connections that are kept for the next calls."""
        self._lock = threading.Lock()

    def get(self, path: str) -> dict[str, Any]:
        """Read an object or a list."""
        return self._json("GET", path)

    def create(self, path: str, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object in the collection at a path."""
        return self._json("POST", path, obj)

    def update(self, path: str, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object."""
        return self._json("PUT", path, obj)

    def patch(self, path: str, patch: object, kind: str = "merge") -> dict[str, Any]:
        """Change an object; `kind` is json, merge or strategic."""
        return self._json("PATCH", path, patch, _PATCHES[kind])

    def delete(self, path: str, *, grace_seconds: int | None = None) -> dict[str, Any]:
        """Delete an object; with 0, at once, as a kubelet would in the end."""
        options = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        return self._json("DELETE", path, options)

    def call(
        self, method: str, path: str, body: bytes | None = None, kind: str = "application/json"
    ) -> tuple[int, bytes]:
        """Send a request, and give status and body of the answer.

        Raises:
            OSError: No answer came.
        """
        reply = self.exchange(method, path, body, kind)
        return reply.status, reply.body

    def exchange(
        self, method: str, path: str, body: bytes | None = None, kind: str = "application/json"
    ) -> Reply:
        """Send a request, and give the whole answer, with headers such as Warning.

        Raises:
            OSError: No answer came.
        """
        connection = self._take()
        try:
            connection.request(method, path, body, {"Content-Type": kind, **self._headers})
            response = connection.getresponse()
            reply = Reply(response.status, response.headers, response.read())
        except BaseException as err:
            connection.close()
            if isinstance(err, http.client.HTTPException) and not isinstance(err, OSError):
                raise ConnectionError(f"{method} {path}: {err!r}") from err
            raise
        with self._lock:
            self.idle.append(connection)
        return reply

    def close(self) -> None:
        """Close all connections that are not in use; more can be opened."""
        with self._lock:
            idle, self.idle = self.idle, []
        for connection in idle:
            connection.close()

    def _json(
        self, method: str, path: str, body: object = None, kind: str = "application/json"
    ) -> dict[str, Any]:
        sent = None if body is None else json.dumps(body).encode()
        status, received = self.call(method, path, sent, kind)
        if status >= 300:
            raise _error(status, received)
        decoded: dict[str, Any] = json.loads(received)
        return decoded

    def _take(self) -> http.client.HTTPConnection:
        """Give a connection that nobody else uses and that the server has not closed."""
        while True:
            with self._lock:
                found = self.idle.pop() if self.idle else None
            if found is None:
                return self._connect()
            if found.sock is not None and not select.select([found.sock], [], [], 0)[0]:
                return found
            found.close()

    def _connect(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=_SECONDS)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=_SECONDS, context=self._context
        )


def _error(status: int, received: bytes) -> RestError:
    try:
        answer = json.loads(received)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        return RestError(status, "", received.decode(errors="replace").strip())
    return RestError(status, answer.get("reason", ""), answer.get("message", ""))
