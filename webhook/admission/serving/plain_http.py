"""Further WSGI applications on plain HTTP listeners of the same process, a thread per connection.

Meant for loopback: the API server in one process, for demos. Watches are answers without an end,
so each connection has a thread, and there is no bound on them unless one is given.
"""

from __future__ import annotations

import logging
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

if TYPE_CHECKING:
    from socketserver import _AfInetAddress as _Address
    from socketserver import _RequestType as _Request

    from _typeshed.wsgi import WSGIApplication

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one listener."""

    connections: int
    """Connections at a time; a further one is closed at once."""
    silence_seconds: float
    """How long a client may neither send nor take anything."""


class PlainHttpServer:
    """Serves one application on a listening socket until it is stopped."""

    def __init__(
        self,
        name: str,
        listener: socket.socket,
        application: WSGIApplication,
        limits: ConnectionLimits | None = None,
    ) -> None:
        host, port = listener.getsockname()[:2]
        if limits is None:
            self._server = ThreadedWSGIServer(
                host, port, application, _QuietHandler, fd=listener.fileno()
            )
        else:
            self._server = _LimitedServer(host, port, application, listener.fileno(), limits)
        listener.close()  # the server has a copy
        self._thread = threading.Thread(
            target=self._server.serve_forever, name=name, daemon=True, kwargs={"poll_interval": 0.1}
        )

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Take no new connections; what is being answered goes on until the process ends."""
        self._server.shutdown()
        self._server.server_close()


class _LimitedServer(ThreadedWSGIServer):
    """A server with as many threads as connections are allowed."""

    def __init__(
        self, host: str, port: int, application: WSGIApplication, fd: int, limits: ConnectionLimits
    ) -> None:
        super().__init__(host, port, application, _QuietHandler, fd=fd)
        self._silence_seconds = limits.silence_seconds
        self._slots = threading.BoundedSemaphore(limits.connections)

    def process_request(self, request: _Request, client_address: _Address) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        if isinstance(request, socket.socket):
            request.settimeout(self._silence_seconds)
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: _Request, client_address: _Address) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()


class _QuietHandler(WSGIRequestHandler):
    """Leaves the line per request out, and says the rest in the project's log."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass

    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002
        log.warning("plain listener", extra={"kind": type, "detail": message % args})
