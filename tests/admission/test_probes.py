"""Pages of the operations port under a flood of requests."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from webhook.admission.serving.probes import MAX_CONNECTIONS, ProbeServer, probe_pages

OPEN_METRICS = "application/openmetrics-text; version=1.0.0, text/plain;q=0.5"


class Metrics:
    """Metrics that take 50 ms to write out, by their own clock, and count how often they were."""

    made = 0
    now = 0.0

    def clock(self) -> float:
        return self.now

    def __call__(self, accept: str) -> tuple[bytes, str]:
        self.made += 1
        self.now += 0.05
        return str(self.made).encode(), accept or "text/plain"


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def port(metrics: Metrics) -> Iterator[int]:
    pages = probe_pages(
        problems_of_life=tuple,
        problems_of_readiness=tuple,
        metrics=metrics,
        clock=metrics.clock,
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = ProbeServer(listener, pages)
        server.start()
        yield listener.getsockname()[1]
        server.stop()


def asking(port: int, path: str = "/metrics", accept: str = "") -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=10)
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n".encode())
    return sock


def got(sock: socket.socket) -> tuple[bytes, bytes]:
    """Read the whole answer; return its head and its body."""
    with sock, sock.makefile("rb") as file:
        head, _, body = file.read().partition(b"\r\n\r\n")
        return head, body


def test_metrics_take_a_part_of_the_time(port: int, metrics: Metrics) -> None:
    """Whatever is left of it, no client gets another format."""
    bodies = [int(got(asking(port))[1]) for _ in range(100)]
    assert bodies[:20] == [*range(1, 21)]
    at_once = metrics.made
    assert at_once < 30
    head, body = got(asking(port, accept=OPEN_METRICS))
    assert (b"openmetrics" in head, int(body)) == (True, at_once + 1)
    assert (b"openmetrics" in got(asking(port))[0], metrics.made) == (False, at_once + 1)
    metrics.now += 1.0
    assert int(got(asking(port))[1]) == at_once + 2


def test_silent_clients_that_fill_the_backlog_keep_no_probe_for_long(port: int) -> None:
    """They are cut off one after the other, as soon as each had its time."""
    with contextlib.ExitStack() as stack:
        for _ in range(3 * MAX_CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        sock = asking(port, "/livez")
        sock.settimeout(5.0)
        assert got(sock)[0].startswith(b"HTTP/1.1 200")


def test_a_burst_of_clients_waits_instead_of_cutting_others_off(port: int) -> None:
    """A probe among them is answered."""
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(asking(port, "/livez")) for _ in range(2 * MAX_CONNECTIONS)]
        heads = [got(sock)[0] for sock in crowd]
    assert all(head.startswith(b"HTTP/1.1 200") for head in heads)
