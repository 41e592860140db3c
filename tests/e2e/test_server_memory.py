"""What a crowd of clients can make the server hold, whoever they are."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.admission.reviews import a_review, encoded
from tests.e2e.harness import Server, eventually, post, running_server

CLIENTS = 30
BODY_BYTES = 6_900_000
MOST_GROWTH_MIB = 400
"""What is decoded (256), received (64), and what memory is lost between."""

HALF_SENT = 900
MOST_HELD_MIB = 150

UNREAD = 16
UNREAD_KIB = 12_000
UNREAD_SECONDS = 30.0

BODIES = {
    "too large for any": (b'{"a":{}}', BODY_BYTES),
    "too large together": (b'{"a":{}}', 2_000_000),
}


def a_body(value: bytes, size: int = BODY_BYTES) -> bytes:
    """A review whose object is a list of one value, over and over."""
    values = b",".join([value] * (size // (len(value) + 1)))
    slow = {"name": "sleep-2", "object": {"x": "here"}}  # as one that waits for a ledger
    return encoded(a_review(slow)).replace(b'"here"', b"[" + values + b"]")


def mebibytes(server: Server, field: str) -> float:
    """A figure of the memory of the process that serves."""
    (worker,) = server.workers()
    status = Path(f"/proc/{worker}/status").read_text(encoding="ascii")
    line = next(one for one in status.splitlines() if one.startswith(field))
    return int(line.split()[1]) / 1024


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running_server(tmp_path) as server:
        yield server


@pytest.mark.parametrize(("value", "size"), BODIES.values(), ids=BODIES.keys())
def test_a_crowd_of_bodies_of_small_values_takes_a_bounded_amount_of_memory(
    server: Server, value: bytes, size: int
) -> None:
    assert server.post(a_review()).status == 200
    before, body = mebibytes(server, "VmRSS"), a_body(value, size)

    def ask(_: int) -> int:
        try:
            with contextlib.closing(server.connect(60)) as connection:
                return post(connection, body).status
        except (OSError, http.client.HTTPException):
            return 0  # turned away before all was sent

    with ThreadPoolExecutor(CLIENTS) as clients:
        codes = set(clients.map(ask, range(CLIENTS)))
        assert server.post(a_review()).status == 200
    growth = mebibytes(server, "VmHWM") - before
    assert growth < MOST_GROWTH_MIB, f"{growth:.0f} MiB more"
    assert codes <= {0, 408, 413 if size == BODY_BYTES else 200, 503}


def test_a_body_that_nothing_has_room_for_is_refused_for_good(server: Server) -> None:
    with contextlib.closing(server.connect()) as connection:
        reply = post(connection, a_body(b"[]"))
        assert (reply.status, reply.json["reason"]) == (413, "RequestEntityTooLarge")
        assert post(connection, a_review()).status == 200  # on the same connection


def test_a_crowd_of_bodies_that_never_end_takes_a_bounded_amount_of_memory(
    tmp_path: Path,
) -> None:
    """Each is short of what is turned away first, and all of them together are not."""
    body = b" " * 254 * 1024
    head = b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (len(body) + 1)
    with running_server(tmp_path, tls=False) as server, contextlib.ExitStack() as opened:
        assert server.post(a_review()).status == 200
        before = mebibytes(server, "VmRSS")
        for _ in range(HALF_SENT):
            client = opened.enter_context(server.socket())
            with contextlib.suppress(OSError):  # turned away before all was sent
                client.sendall(head + body)
        assert server.post(a_review()).status == 200
        growth = mebibytes(server, "VmHWM") - before
    assert growth < MOST_HELD_MIB, f"{growth:.0f} MiB more"


def test_the_largest_unread_answers_are_dropped_first(tmp_path: Path) -> None:
    """A small request may have a large answer."""
    body = encoded(a_review({"name": f"long-{UNREAD_KIB}"}))
    head = b"POST /validate?timeout=30s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with (
        # on a slow machine the answers must not time out one by one before they are too much
        running_server(tmp_path, tls=False, threads=2, write_seconds=UNREAD_SECONDS) as server,
        contextlib.ExitStack() as opened,
    ):
        for _ in range(UNREAD):
            client = opened.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # or the kernel has it
            client.connect(("127.0.0.1", server.port))
            client.sendall(request)

        def evicted() -> float:
            return server.metric("connections_closed_total", reason="evicted")

        assert eventually(lambda: evicted() > 0, UNREAD_SECONDS)
        with contextlib.closing(server.connect(30)) as connection:
            assert len(post(connection, body).body) > 1024 * UNREAD_KIB
        assert evicted() < UNREAD
