"""A server that stops loses nothing that was begun."""

from __future__ import annotations

import contextlib
import http.client
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admission.reviews import a_review
from tests.e2e.harness import Reply, Server, eventually, post, running_server
from tests.e2e.parts import MARKER_VARIABLE, OUT_OF_ORDER_VARIABLE

DRAIN_SECONDS = 0.7
LONG_SECONDS = 25.0
"""More than it takes to stop, whatever the machine."""


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "running"


@contextlib.contextmanager
def draining(tmp_path: Path, marker: Path, seconds: float) -> Iterator[Server]:
    """Give a server that answers for so long after SIGTERM."""
    environment = {MARKER_VARIABLE: str(marker), OUT_OF_ORDER_VARIABLE: str(tmp_path / "out")}
    with running_server(
        tmp_path,
        "tests.e2e.parts:observed",
        environment=environment,
        threads=4,
        drain_seconds=seconds,
    ) as server:
        yield server


@pytest.fixture
def server(tmp_path: Path, marker: Path) -> Iterator[Server]:
    with draining(tmp_path, marker, DRAIN_SECONDS) as server:
        yield server


def test_term_makes_it_not_ready_but_it_still_answers(server: Server, marker: Path) -> None:
    with contextlib.closing(server.connect()) as kept:
        assert post(kept, a_review()).headers["Connection"] == "keep-alive"
        begin = time.monotonic()
        server.signal(signal.SIGTERM)
        assert eventually(lambda: server.ops("/readyz").status == 503, seconds=DRAIN_SECONDS)
        assert server.ops("/readyz").json["reasons"] == ["stopping"]
        assert server.ops("/livez").status == 200
        reply = post(kept, a_review())
        assert (reply.status, reply.headers["Connection"]) == (200, "close")
        assert server.post(a_review()).status == 200  # also on a new connection
    assert server.wait() == 0
    assert time.monotonic() - begin >= DRAIN_SECONDS
    assert not marker.exists()


def test_a_request_that_was_begun_is_answered(server: Server) -> None:
    replies: list[Reply] = []

    def ask() -> None:
        replies.append(server.post(a_review({"name": f"sleep-{DRAIN_SECONDS + 0.5}"})))

    thread = threading.Thread(target=ask)
    thread.start()
    assert eventually(lambda: server.metric("requests_in_flight") == 1)
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    thread.join()
    assert [reply.status for reply in replies] == [200]


def test_a_client_that_was_invited_before_the_signal_does_not_delay_the_end(
    server: Server,
) -> None:
    seconds = DRAIN_SECONDS + 0.5
    with contextlib.closing(server.connect()) as kept:
        timer = threading.Timer(0.2, server.signal, [signal.SIGTERM])
        timer.start()
        reply = post(kept, a_review({"name": f"sleep-{seconds}"}))
        assert (reply.status, reply.headers["Connection"]) == (200, "keep-alive")
        begin = time.monotonic()
        assert server.wait() == 0
        assert time.monotonic() - begin < 4


def test_no_request_is_lost_while_it_stops(server: Server) -> None:
    """A client that goes elsewhere when it is told to close sees no error."""
    stopped = threading.Event()
    codes: list[int] = []
    lost: list[Exception] = []

    def ask() -> None:
        with contextlib.closing(server.connect()) as connection:
            while not stopped.is_set():
                try:
                    reply = post(connection, a_review())
                except (OSError, http.client.HTTPException) as err:
                    lost.append(err)
                    return
                codes.append(reply.status)
                if reply.headers["Connection"] == "close":
                    return

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: len(codes) > 100)
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    stopped.set()
    for thread in threads:
        thread.join()
    assert lost == []
    assert set(codes) == {200}


def test_no_client_can_connect_after_the_end(server: Server) -> None:
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    with pytest.raises(ConnectionRefusedError):
        server.socket()


def test_silent_connections_do_not_delay_the_end(server: Server) -> None:
    with server.socket(), server.tls_socket(), contextlib.closing(server.connect()) as idle:
        assert post(idle, a_review()).status == 200
        begin = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert time.monotonic() - begin < DRAIN_SECONDS + 4


def test_int_stops_at_once(tmp_path: Path, marker: Path) -> None:
    with draining(tmp_path, marker, LONG_SECONDS) as server:
        begin = time.monotonic()
        server.signal(signal.SIGINT)
        assert server.wait() == 0
        assert time.monotonic() - begin < LONG_SECONDS
    assert not marker.exists()


def test_hup_replaces_the_worker_without_a_lost_request(server: Server) -> None:
    stop = threading.Event()
    codes: list[int] = []
    lost: list[Exception] = []

    def ask() -> None:
        with contextlib.closing(server.connect()) as connection:
            while not stop.is_set():
                try:
                    codes.append(post(connection, a_review()).status)
                except (OSError, http.client.HTTPException) as err:
                    lost.append(err)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    (old,) = server.workers()
    for thread in threads:
        thread.start()
    server.signal(signal.SIGHUP)
    assert eventually(lambda: old not in server.workers(), seconds=10)
    before = len(codes)
    assert eventually(lambda: len(codes) > before + 50)
    stop.set()
    for thread in threads:
        thread.join()
    assert lost == []
    assert set(codes) == {200}
    assert server.ops("/readyz").status == 200
