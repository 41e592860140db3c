"""Further WSGI applications on plain HTTP listeners of the same process, a thread per connection.

Meant for loopback: the API server in one process, for demos. Watches are answers without an end,
so each connection has a thread, and there is no bound on them.
"""

from __future__ import annotations

import logging
import socket
import threading
from typing import TYPE_CHECKING

from werkzeug.serving import WSGIRequestHandler, make_server

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

log = logging.getLogger(__name__)


class PlainHttpServer:
    """Serves one application on a listening socket until it is stopped."""

    def __init__(self, name: str, listener: socket.socket, application: WSGIApplication) -> None:
        host, port = listener.getsockname()[:2]
        self._server = make_server(
            host,
            port,
            application,
            threaded=True,
            request_handler=_QuietHandler,
            fd=listener.fileno(),
        )
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


class _QuietHandler(WSGIRequestHandler):
    """Leaves the line per request out, and says the rest in the project's log."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass

    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002
        log.warning("plain listener", extra={"kind": type, "detail": message % args})
