"""A plain listener with limits keeps as many connections as it may, and no silent one for long."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from webhook.admission.serving.plain_http import ConnectionLimits, PlainHttpServer

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

GET = b"GET / HTTP/1.0\r\n\r\n"


@contextmanager
def serving(
    limits: ConnectionLimits, before: Callable[[], object] = lambda: None
) -> Iterator[Callable[[], socket.socket]]:
    """Serve; give what connects."""

    def application(_environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        before()
        start("200 OK", [("Content-Length", "2")])
        return [b"ok"]

    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    server = PlainHttpServer("test", listener, application, limits)
    server.start()
    try:
        yield lambda: socket.create_connection(address, timeout=30)
    finally:
        server.stop()


def answer(sock: socket.socket) -> bytes:
    """Return all that comes until the connection is closed."""
    found = b""
    try:
        while part := sock.recv(4096):
            found += part
    except ConnectionResetError:
        pass
    return found


def test_a_further_connection_is_closed_and_one_that_ends_makes_room() -> None:
    entered, goes_on = threading.Semaphore(0), threading.Event()

    def before() -> None:
        entered.release()
        assert goes_on.wait(30)

    limits = ConnectionLimits(connections=2, silence_seconds=30.0)
    with serving(limits, before) as connect, ExitStack() as stack:
        held = [stack.enter_context(connect()) for _ in range(2)]
        for sock in held:
            sock.sendall(GET)
            assert entered.acquire(timeout=30)
        with connect() as refused:
            assert answer(refused) == b""
        goes_on.set()
        assert all(answer(sock).endswith(b"ok") for sock in held)
        while True:  # the place of a connection is free a moment after its last byte
            with connect() as again:
                again.sendall(GET)
                if answer(again).endswith(b"ok"):
                    break


def test_a_silent_client_is_left() -> None:
    limits = ConnectionLimits(connections=1, silence_seconds=0.05)
    with serving(limits) as connect, connect() as silent:
        silent.sendall(b"GET / HTTP/1.0\r\n")
        assert not answer(silent).endswith(b"ok")
