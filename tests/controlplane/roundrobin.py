"""One address for several servers, as a Service gives it: connections in turn, TLS untouched."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Sequence
from typing import Final

_READ_BYTES: Final = 1 << 16
_CONNECT_SECONDS: Final = 2.0


class RoundRobin:
    """Hands connections to ports of 127.0.0.1 in turn; one that refuses is passed over.

    Args:
        ports: To whom connections go at first.
        address: Where to listen; port 0 takes one that is free.

    Attributes:
        port: Where it listens.
        ports: To whom connections go; may be set at any time, for connections to come.
    """

    def __init__(self, ports: Sequence[int], address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self.ports = tuple(ports)
        self._turns = itertools.count()
        self._lock = threading.Lock()
        self._clients: set[socket.socket] = set()
        self._listener = socket.create_server(address, backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, name="round-robin", daemon=True).start()

    def cut(self) -> None:
        """End the connections of now: clients that keep theirs come to the next in turn."""
        with self._lock:
            for client in self._clients:
                _shut(client)

    def close(self) -> None:
        """Take no more connections, and end those of now."""
        _shut(self._listener)
        self._listener.close()
        self.cut()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(client,), daemon=True).start()

    def _join(self, client: socket.socket) -> None:
        server = self._connect()
        if server is None:
            client.close()
            return
        with client, server:
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._clients.add(client)
            back = threading.Thread(target=_copy, args=(server, client), daemon=True)
            back.start()
            _copy(client, server)
            back.join()
            with self._lock:
                self._clients.remove(client)

    def _connect(self) -> socket.socket | None:
        ports = self.ports
        turn = next(self._turns)
        for step in range(len(ports)):
            address = ("127.0.0.1", ports[(turn + step) % len(ports)])
            with contextlib.suppress(OSError):
                server = socket.create_connection(address, timeout=_CONNECT_SECONDS)
                server.settimeout(None)
                return server
        return None


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy until one side ends, and tell the other."""
    with contextlib.suppress(OSError):
        while part := source.recv(_READ_BYTES):
            target.sendall(part)
    _shut(source)
    _shut(target)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
