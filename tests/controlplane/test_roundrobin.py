"""One address for several servers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.controlplane.roundrobin import RoundRobin


class Echo:
    """Answers each connection with its name, and then with what it is told."""

    def __init__(self, name: bytes) -> None:
        self._name = name
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with client:
                    client.sendall(self._name)
                    while part := client.recv(1 << 16):
                        client.sendall(part)


@pytest.fixture
def servers() -> Iterator[list[Echo]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(Echo(name))) for name in (b"a", b"b")]


@pytest.fixture
def front(servers: list[Echo]) -> Iterator[RoundRobin]:
    with contextlib.closing(RoundRobin([server.port for server in servers])) as front:
        yield front


def name(front: RoundRobin) -> bytes:
    with socket.create_connection(("127.0.0.1", front.port), timeout=10) as client:
        return client.recv(1)


def test_connections_go_to_all_in_turn(front: RoundRobin) -> None:
    assert [name(front) for _ in range(4)] in ([b"a", b"b"] * 2, [b"b", b"a"] * 2)


def test_one_that_is_down_is_passed_over(front: RoundRobin, servers: list[Echo]) -> None:
    servers[0].close()
    assert [name(front) for _ in range(3)] == [b"b"] * 3


def test_without_a_server_the_connection_ends(front: RoundRobin, servers: list[Echo]) -> None:
    for server in servers:
        server.close()
    assert name(front) == b""


def test_one_that_was_taken_out_gets_no_more(front: RoundRobin, servers: list[Echo]) -> None:
    front.ports = (servers[1].port,)
    assert [name(front) for _ in range(3)] == [b"b"] * 3


def test_all_bytes_arrive_in_both_directions(front: RoundRobin) -> None:
    sent = bytes(range(256)) * 4096
    with socket.create_connection(("127.0.0.1", front.port), timeout=30) as client:
        client.recv(1)
        sender = threading.Thread(target=client.sendall, args=(sent,))
        sender.start()
        received = bytearray()
        while len(received) < len(sent):
            part = client.recv(1 << 16)
            assert part
            received += part
        sender.join()
    assert received == sent


def test_a_kept_connection_can_be_cut(front: RoundRobin) -> None:
    with socket.create_connection(("127.0.0.1", front.port), timeout=10) as client:
        first = client.recv(1)
        front.cut()
        assert client.recv(1) == b""
    assert name(front) != first


def test_closed_it_takes_no_connection(front: RoundRobin) -> None:
    front.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", front.port), timeout=10)
