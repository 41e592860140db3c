"""The proxy: what passes, what is late, what is lost."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.torture.links import Links


class Echo:
    """Answers each piece with itself, and remembers all."""

    def __init__(self, mark: bytes = b"") -> None:
        self._mark = mark
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.received = b""
        self.address = ("127.0.0.1", int(self._listener.getsockname()[1]))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        # closing alone does not wake the thread that waits in accept
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while piece := connection.recv(1000):
                self.received += piece
                connection.sendall(self._mark + piece)


@pytest.fixture
def links() -> Iterator[Links]:
    with Links() as links:
        yield links


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.close()


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        yield client


def ask(client: socket.socket, text: bytes) -> bytes:
    """Say something; the answer is empty when the connection ends."""
    try:
        client.sendall(text)
        return client.recv(1000)
    except ConnectionError:
        return b""


def test_data_passes_in_both_directions(links: Links, echo: Echo) -> None:
    with connected(links.open("a", [echo.address])) as client:
        assert [ask(client, b"one"), ask(client, b"two")] == [b"one", b"two"]
    assert links.stats()["a"]["accepted"] == 1


def test_a_dropped_answer_belongs_to_a_request_that_got_through(links: Links, echo: Echo) -> None:
    with connected(links.open("a", [echo.address])) as client:
        assert ask(client, b"before,") == b"before,"
        assert links.drop("a") == 1
        assert ask(client, b"write") == b""
    assert echo.received == b"before,write"
    assert links.stats()["a"]["dropped"] == 1


def test_connections_are_cut_by_age(links: Links, echo: Echo) -> None:
    port = links.open("a", [echo.address])
    with connected(port) as old:
        ask(old, b"x")
        assert links.cut("a", older=60) == 0
        assert ask(old, b"still there") == b"still there"
        assert links.cut("a") == 1
        assert ask(old, b"x") == b""
    with connected(port) as new:
        assert ask(new, b"new") == b"new"


def test_refused_connections_come_again_after_it(links: Links, echo: Echo) -> None:
    port = links.open("a", [echo.address])
    links.set("a", refuse=True)
    with connected(port) as client:
        assert ask(client, b"x") == b""
    links.set("a", refuse=False)
    with connected(port) as client:
        assert ask(client, b"x") == b"x"


def test_a_dead_network_loses_nothing_and_closes_nothing(links: Links, echo: Echo) -> None:
    with connected(links.open("a", [echo.address])) as client:
        ask(client, b"x")
        links.set("a", hold=True)
        client.sendall(b"late")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1000)
        links.set("a", hold=False)
        client.settimeout(10)
        assert client.recv(1000) == b"late"


def test_frozen_connections_are_late_and_new_ones_are_not(links: Links, echo: Echo) -> None:
    port = links.open("a", [echo.address])
    with connected(port) as old, connected(port) as new:
        ask(old, b"x")
        ask(new, b"x")
        old_age = 0.0
        assert links.freeze("a", older=old_age) == 2
        with connected(port) as newest:
            assert ask(newest, b"at once") == b"at once"
        old.sendall(b"late")
        links.thaw("a")
        assert old.recv(1000) == b"late"


def test_delays_hold_in_each_direction(links: Links, echo: Echo) -> None:
    with connected(links.open("a", [echo.address])) as client:
        links.set("a", delay=0.2)
        began = time.monotonic()
        assert ask(client, b"x") == b"x"
        assert time.monotonic() - began >= 0.4


def test_targets_take_turns_and_dead_ones_are_passed_over(links: Links) -> None:
    targets = [Echo(b"1"), Echo(b"2"), Echo(b"3")]
    port = links.open("a", [each.address for each in targets])

    def answers(count: int) -> list[bytes]:
        found = []
        for _ in range(count):
            with connected(port) as client:
                found.append(ask(client, b"x"))
        return found

    assert answers(4) == [b"1x", b"2x", b"3x", b"1x"]
    targets[1].close()
    assert set(answers(4)) == {b"1x", b"3x"}
    for each in targets:
        each.close()
    with connected(port) as client:
        assert ask(client, b"x") == b""


def test_wrong_commands_are_reported(links: Links) -> None:
    with pytest.raises(RuntimeError, match="KeyError"):
        links.cut("there is none")
