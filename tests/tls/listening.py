"""A server of TLS in this process, whose certificates a test changes."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def listening(context: Callable[[], ssl.SSLContext]) -> Iterator[tuple[str, int]]:
    """Shake hands with every client until the block is left; give the address.

    Args:
        context: Returns the context of a new connection.
    """
    server = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        while True:
            try:
                sock, _ = server.accept()
            except OSError:  # it is closed
                return
            with contextlib.suppress(OSError), sock:
                context().wrap_socket(sock, server_side=True).close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield server.getsockname()
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()
