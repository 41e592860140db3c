"""No client can stop service: not by silence, not by slowness, not by numbers.

Each test opens bad sockets and then measures honest requests on new connections.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.admission.reviews import a_review, encoded
from tests.e2e.harness import Server, eventually, post, running_server

THREADS = 4
HANDSHAKE_SECONDS = 1.0
REQUEST_SECONDS = 1.2
SLACK_SECONDS = 1.5
"""Deadlines are looked at twice a second at least; and machines are shared."""

CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
HEAD = b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("bad")
    with running_server(
        directory,
        threads=THREADS,
        handshake_seconds=HANDSHAKE_SECONDS,
        request_seconds=REQUEST_SECONDS,
        write_seconds=REQUEST_SECONDS,
    ) as server:
        yield server


def nothing(server: Server) -> socket.socket:
    return server.socket()


def one_byte_of_a_hello(server: Server) -> socket.socket:
    sock = server.socket()
    sock.sendall(CLIENT_HELLO[:1])
    return sock


def half_a_hello(server: Server) -> socket.socket:
    sock = server.socket()
    sock.sendall(CLIENT_HELLO)
    return sock


def no_tls(server: Server) -> socket.socket:
    sock = server.socket()
    sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
    return sock


def silence_behind_the_handshake(server: Server) -> socket.socket:
    return server.tls_socket()


def half_a_head(server: Server) -> socket.socket:
    sock = server.tls_socket()
    sock.sendall(HEAD)
    return sock


def half_a_body(server: Server) -> socket.socket:
    sock = server.tls_socket()
    sock.sendall(HEAD + b"Content-Length: 1000\r\n\r\n{")
    return sock


def half_a_body_after_100(server: Server) -> socket.socket:
    sock = server.tls_socket()
    sock.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n{")
    return sock


def half_a_chunk(server: Server) -> socket.socket:
    sock = server.tls_socket()
    sock.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n3e8\r\n{")
    return sock


def too_much(server: Server) -> socket.socket:
    sock = server.tls_socket()
    sock.sendall(HEAD + b"Content-Length: 99999999\r\n\r\n{")
    return sock


def an_answer_that_is_not_read(server: Server) -> socket.socket:
    sock = server.tls_socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    body = encoded(a_review({"name": "long-4000"}))
    sock.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    return sock


def a_close_that_is_not_followed(server: Server) -> socket.socket:
    sock = server.tls_socket()
    sock.sendall(HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}")
    return sock


Opener = Callable[[Server], socket.socket]

# how many of a kind; long answers take the machine's memory, on both sides
KINDS: dict[Opener, int] = {
    nothing: 64,
    one_byte_of_a_hello: 64,
    half_a_hello: 64,
    no_tls: 64,
    silence_behind_the_handshake: 64,
    half_a_head: 64,
    half_a_body: 64,
    half_a_body_after_100: 64,
    half_a_chunk: 64,
    too_much: 64,
    an_answer_that_is_not_read: 8,
    a_close_that_is_not_followed: 64,
}


@contextlib.contextmanager
def opened(server: Server, opener: Opener, number: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(opener(server))) for _ in range(number)]


def slowest_of_five(server: Server) -> float:
    """Make five honest requests, each on a new connection; give the time of the slowest."""
    times = []
    for _ in range(5):
        begin = time.monotonic()
        assert server.post(a_review()).status == 200
        times.append(time.monotonic() - begin)
    return max(times)


@pytest.mark.parametrize(
    ("opener", "number"),
    [(opener, number) for opener, most in KINDS.items() for number in {THREADS, most}],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_bad_sockets_do_not_hold_up_others(server: Server, opener: Opener, number: int) -> None:
    with opened(server, opener, number):
        assert slowest_of_five(server) < HANDSHAKE_SECONDS * 0.9


SLOW: dict[str, tuple[Opener, bytes, float]] = {
    "nothing": (nothing, b"", HANDSHAKE_SECONDS),
    "half a hello": (half_a_hello, b"", HANDSHAKE_SECONDS),
    "half a hello that drips": (half_a_hello, b"\x00", HANDSHAKE_SECONDS),
    "half a head": (half_a_head, b"", REQUEST_SECONDS),
    "half a head that drips": (half_a_head, b"a", REQUEST_SECONDS),
    "half a body": (half_a_body, b"", REQUEST_SECONDS),
    "half a body that drips": (half_a_body, b"a", REQUEST_SECONDS),
    "half a chunk that drips": (half_a_chunk, b"a", REQUEST_SECONDS),
}


def seconds_until_closed(sock: socket.socket, drip: bytes) -> float:
    """Wait until the server closes, sending a byte now and then."""
    begin = time.monotonic()
    sock.settimeout(0.1)
    while time.monotonic() - begin < 10:
        try:
            if drip:
                sock.send(drip)
            if not sock.recv(65536):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    return time.monotonic() - begin


def test_slow_clients_are_cut_off_in_time(server: Server) -> None:
    def lasted(case: tuple[Opener, bytes, float]) -> float:
        opener, drip, _ = case
        with contextlib.closing(opener(server)) as sock:
            return seconds_until_closed(sock, drip)

    with ThreadPoolExecutor(len(SLOW)) as pool:
        times = dict(zip(SLOW, pool.map(lasted, SLOW.values()), strict=True))
    late = {
        name: times[name]
        for name, (_, _, most) in SLOW.items()
        if times[name] > most + SLACK_SECONDS
    }
    assert late == {}
    assert min(times.values()) > HANDSHAKE_SECONDS * 0.9


def test_a_request_that_does_not_end_is_answered_as_such(server: Server) -> None:
    with contextlib.closing(half_a_body(server)) as sock:
        sock.settimeout(REQUEST_SECONDS + SLACK_SECONDS)
        assert sock.recv(65536).startswith(b"HTTP/1.1 408 Request Timeout\r\n")


def test_closed_connections_are_counted_by_reason(server: Server) -> None:
    before = server.metric("connections_closed_total", reason="handshake_timeout")
    with opened(server, half_a_hello, 3):
        assert eventually(
            lambda: (
                server.metric("connections_closed_total", reason="handshake_timeout") == before + 3
            )
        )


def test_no_thread_is_taken_by_a_client_that_does_not_ask(server: Server) -> None:
    with opened(server, half_a_body, THREADS * 2), opened(server, half_a_hello, THREADS * 2):
        assert eventually(lambda: server.metric("connections_open") >= THREADS * 4)
        assert server.metric("requests_in_flight") == 0


def test_drips_from_many_do_not_hold_up_others(server: Server) -> None:
    stop = threading.Event()

    def drip(socks: list[socket.socket]) -> None:
        while not stop.wait(0.05):
            for sock in socks:
                with contextlib.suppress(OSError):
                    sock.send(b" ")

    with opened(server, half_a_body, 32) as socks:
        thread = threading.Thread(target=drip, args=(socks,))
        thread.start()
        try:
            assert slowest_of_five(server) < HANDSHAKE_SECONDS * 0.9
        finally:
            stop.set()
            thread.join()


def test_new_connections_make_room_for_one_that_has_asked_before(tmp_path: Path) -> None:
    with running_server(tmp_path, threads=2, max_connections=20) as server:
        with contextlib.closing(server.connect()) as kept:
            assert post(kept, a_review()).status == 200
            port = kept.sock.getsockname()[1]
            with opened(server, nothing, 100), opened(server, nothing, 20):
                assert post(kept, a_review()).status == 200
                assert kept.sock.getsockname()[1] == port
                assert slowest_of_five(server) < HANDSHAKE_SECONDS
                assert server.metric("connections_open") <= 20
        assert server.metric("connections_closed_total", reason="evicted") >= 100


@pytest.mark.parametrize(
    ("request_", "turned_away"), [({}, 429), ({"subResource": ...}, 503)], ids=["binds", "pods"]
)
def test_more_than_can_be_answered_in_time_is_turned_away_early(
    tmp_path: Path, request_: dict[str, object], turned_away: int
) -> None:
    slow = a_review({"name": "sleep-0.2", **request_})

    def ask(busy: Server) -> tuple[int, float, bool]:
        begin = time.monotonic()
        reply = busy.post(slow, "/validate?timeout=1s")
        code = reply.status
        if code == 200:
            code = reply.json["response"].get("status", {}).get("code", 200)
        return code, time.monotonic() - begin, "Retry-After" in reply.headers

    with running_server(tmp_path, threads=1) as server:
        server.post(slow)  # now the server knows how long such a request takes
        with ThreadPoolExecutor(12) as pool:
            replies = list(pool.map(ask, [server] * 12))
        assert server.metric("turned_away_requests_total", reason="overload") >= 1
    assert {status for status, _, _ in replies} == {200, turned_away}
    slowest = max(seconds for status, seconds, _ in replies if status == 200)
    assert min(seconds for status, seconds, _ in replies if status == turned_away) < slowest
    assert not any(retry for _, _, retry in replies)


def test_of_requests_that_wait_the_one_with_the_least_time_is_next(tmp_path: Path) -> None:
    with running_server(tmp_path, threads=1) as server, ThreadPoolExecutor(3) as pool:
        answered: list[str] = []

        def ask(name: str, timeout: str) -> None:
            assert server.post(a_review({"name": name}), f"/validate?timeout={timeout}").status
            answered.append(timeout)

        waiting = [pool.submit(ask, "sleep-1.5", "20s")]
        assert eventually(lambda: server.metric("requests_in_flight") == 1)
        for number, timeout in enumerate(("30s", "10s"), start=2):
            waiting.append(pool.submit(ask, "sleep-0.3", timeout))
            assert eventually(lambda n=number: server.metric("requests_in_flight") == n)
        for one in waiting:
            one.result()
    assert answered == ["20s", "10s", "30s"]


def test_large_requests_do_not_take_all_memory(tmp_path: Path) -> None:
    def send(sock: ssl.SSLSocket) -> None:
        with contextlib.suppress(OSError):
            sock.sendall(HEAD + b"Content-Length: 7000000\r\n\r\n" + b" " * 6_990_000)

    with (
        running_server(tmp_path, threads=2, request_seconds=20.0) as server,
        contextlib.ExitStack() as stack,
    ):
        socks = [stack.enter_context(server.tls_socket()) for _ in range(14)]
        with ThreadPoolExecutor(14) as pool:
            list(pool.map(send, socks))
        assert eventually(
            lambda: server.metric("turned_away_requests_total", reason="overload") >= 1, 15
        )
        assert server.post(a_review()).status == 200
