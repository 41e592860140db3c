"""What a crowd of clients can make the server hold."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.admission.reviews import a_review, encoded
from tests.e2e.harness import Server, eventually, post, running_server

CLIENTS = 64
"""As many as there are threads, by default."""
BODY_BYTES = 6_900_000
MOST_GROWTH_MIB = 400
"""What is decoded (256), received (64), and what memory is lost between."""

HALF_SENT = 900
MOST_HELD_MIB = 150

UNREAD = 16
UNREAD_KIB = 12_000
UNREAD_SECONDS = 30.0

STALLED = 6
STALLED_KIB = 10_000
STALLED_SECONDS = 1.5
TAKEN_KIB = 45_000
"""Too much beside the others, whatever of each the kernel has."""

BODIES = {
    "too large for any": (b'{"a":{}}', BODY_BYTES),
    "too large together": (b'{"a":{}}', 2_000_000),
    "small": (b'{"a":{}}', 64_000),
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
    with running_server(tmp_path, threads=CLIENTS) as server:
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
    assert codes <= {0, 200, 408, 503}


def test_a_body_that_nothing_has_room_for_is_refused_for_good(server: Server) -> None:
    with contextlib.closing(server.connect()) as connection:
        reply = post(connection, a_body(b"[]"))
        assert reply.status == 200
        denial = reply.json["response"]
        assert (denial["allowed"], denial["status"]["code"]) == (False, 413)
        assert post(connection, a_review()).status == 200  # on the same connection


@pytest.mark.parametrize(("end", "wish"), [(b"0\r\n\r\n", "keep-alive"), (b"zz\r\n", "close")])
def test_its_connection_stays_where_its_end_is_clear(server: Server, end: bytes, wish: str) -> None:
    body = a_body(b"[]")
    with contextlib.closing(server.connect()) as connection:
        connection.putrequest("POST", "/validate")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders(b"%x\r\n%s\r\n%s" % (len(body), body, end))
        response = connection.getresponse()
        assert b"too many values" in response.read()
        assert response.headers["Connection"] == wish


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


def a_request(kibibytes: int) -> bytes:
    """A small request with a large answer."""
    body = encoded(a_review({"name": f"long-{kibibytes}"}))
    head = b"POST /validate?timeout=30s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def a_client(server: Server, request: bytes) -> socket.socket:
    """A client that asks, and takes no answer by itself."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # or the kernel has it
    client.connect(("127.0.0.1", server.port))
    client.sendall(request)
    return client


def taken(client: socket.socket, most: int) -> int:
    """Read that many bytes, or to the end; give how many there were."""
    left = most
    while left and (size := len(client.recv(min(left, 2**20)))):
        left -= size
    return most - left


def test_unread_answers_are_bounded_together(tmp_path: Path) -> None:
    """A small request may have a large answer."""
    body = encoded(a_review({"name": f"long-{UNREAD_KIB}"}))
    with (
        # on a slow machine the answers must not time out one by one before they are too much
        running_server(tmp_path, tls=False, threads=2, write_seconds=UNREAD_SECONDS) as server,
        contextlib.ExitStack() as opened,
    ):
        for _ in range(UNREAD):
            opened.enter_context(a_client(server, a_request(UNREAD_KIB)))

        def dropped() -> float:
            return server.metric("connections_closed_total", reason="unsent")

        assert eventually(lambda: dropped() > 0, UNREAD_SECONDS)
        with contextlib.closing(server.connect(30)) as connection:
            assert len(post(connection, body).body) > 1024 * UNREAD_KIB
        assert dropped() < UNREAD
        assert eventually(lambda: server.log_lines("connections dropped", reason="unsent"), 10)


def test_a_stalled_answer_is_dropped_before_a_larger_one_that_has_just_begun(
    tmp_path: Path,
) -> None:
    with (
        running_server(tmp_path, tls=False, threads=2, write_seconds=UNREAD_SECONDS) as server,
        contextlib.ExitStack() as opened,
    ):
        for _ in range(STALLED):
            stalled = opened.enter_context(a_client(server, a_request(STALLED_KIB)))
            assert stalled.recv(1)
        time.sleep(STALLED_SECONDS)
        taker = opened.enter_context(server.socket())
        taker.sendall(a_request(TAKEN_KIB))

        def dropped() -> float:
            return server.metric("connections_closed_total", reason="unsent")

        assert eventually(lambda: dropped() > 0, UNREAD_SECONDS)
        assert taken(taker, 1024 * TAKEN_KIB) == 1024 * TAKEN_KIB
        assert dropped() <= STALLED
