"""The operations port answers whatever happens on the other one."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admission.reviews import a_review
from tests.e2e.harness import Server, eventually, running_server
from tests.e2e.parts import MARKER_VARIABLE, OUT_OF_ORDER_VARIABLE

CROWD = """
import socket, sys, threading
def leave():
    while True:
        try:
            socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=3).close()
        except OSError:
            pass
for _ in range(40):
    threading.Thread(target=leave).start()
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ops")


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[Server]:
    environment = {
        MARKER_VARIABLE: str(directory / "running"),
        OUT_OF_ORDER_VARIABLE: str(directory / "out"),
    }
    with running_server(
        directory, "tests.e2e.parts:observed", environment=environment, threads=2
    ) as server:
        yield server


def ops_socket(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.announcement["ops"]["port"]), timeout=5)


def raw(server: Server, request: bytes) -> bytes:
    with ops_socket(server) as sock:
        sock.sendall(request)
        return b"".join(iter(lambda: sock.recv(65536), b""))


def test_probes_say_that_all_is_well(server: Server) -> None:
    for path in ("/livez", "/readyz", "/readyz?verbose"):
        reply = server.ops(path)
        assert (reply.status, reply.json) == (200, {"status": "ok"})


def test_a_reason_makes_it_not_ready_but_alive(server: Server, directory: Path) -> None:
    (directory / "out").touch()
    try:
        reply = server.ops("/readyz")
        assert reply.status == 503
        assert reply.json == {"status": "failing", "reasons": ["caches are not synced"]}
        assert server.ops("/livez").status == 200
        assert server.post(a_review()).status == 200  # who asks all the same is answered
    finally:
        (directory / "out").unlink()


def test_metrics_are_text_for_prometheus(server: Server) -> None:
    reply = server.ops("/metrics")
    assert reply.headers["Content-Type"].startswith("text/plain; version=")
    assert b"# TYPE deferred_quota_admission_requests_total counter\n" in reply.body
    assert b"process_resident_memory_bytes" in reply.body


def test_requests_of_the_other_port_are_counted(server: Server) -> None:
    labels = {
        "handler": "bind",
        "phase": "validating",
        "operation": "CREATE",
        "outcome": "denied",
        "dry_run": "false",
    }
    before = server.metric("admission_requests_total", **labels)
    server.post(a_review({"name": "deny"}))
    assert server.metric("admission_requests_total", **labels) == before + 1


CODES = {
    "unknown path": (b"GET /nothing HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found\r\n"),
    "wrong method": (b"POST /livez HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed\r\n"),
    "no HTTP": (b"\x16\x03\x01\r\n\r\n", b"HTTP/1.1 404 Not Found\r\n"),
    "HTTP/1.0": (b"GET /livez HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
}


@pytest.mark.parametrize(("request_", "first"), CODES.values(), ids=CODES.keys())
def test_odd_requests_get_their_code(server: Server, request_: bytes, first: bytes) -> None:
    assert raw(server, request_).startswith(first)


def test_head_gives_no_body(server: Server) -> None:
    answer = raw(server, b"HEAD /livez HTTP/1.1\r\n\r\n")
    assert answer.endswith(b"\r\n\r\n")
    assert b"Content-Length: 15\r\n" in answer


def test_a_head_without_an_end_is_dropped(server: Server) -> None:
    assert raw(server, b"GET /livez HTTP/1.1\r\nX: " + b"x" * 20_000) == b""


def test_a_saturated_pool_does_not_make_it_look_dead(server: Server) -> None:
    reviews = [
        threading.Thread(target=server.post, args=(a_review({"name": "sleep-2"}),))
        for _ in range(4)
    ]
    for thread in reviews:
        thread.start()
    assert eventually(lambda: server.metric("requests_in_flight") == 4)
    assert server.ops("/livez").status == 200
    assert server.ops("/readyz").status == 200
    assert server.metric("requests_in_flight") == 4  # no thread has come free meanwhile
    for thread in reviews:
        thread.join()


def test_silent_clients_do_not_hold_up_probes(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(ops_socket(server))
        begin = time.monotonic()
        assert server.ops("/livez").status == 200
        assert time.monotonic() - begin < 5.0


def test_threads_that_are_all_stuck_make_it_dead(tmp_path: Path) -> None:
    with running_server(tmp_path, threads=2, stuck_seconds=0.2) as server:
        stuck = [
            threading.Thread(target=server.post, args=(a_review({"name": f"sleep-{seconds}"}),))
            for seconds in (1.0, 1.0)
        ]
        stuck[0].start()
        assert eventually(lambda: server.metric("requests_in_flight") == 1)
        time.sleep(0.3)
        assert server.ops("/livez").status == 200  # one of two
        stuck[1].start()
        assert eventually(lambda: server.ops("/livez").status == 503)
        assert server.ops("/livez").json["reasons"] == [
            "all 2 threads have been busy for more than 0.2 s"
        ]
        for thread in stuck:
            thread.join()
        assert server.ops("/livez").status == 200


def test_probes_are_answered_while_others_connect_and_leave(tmp_path: Path) -> None:
    """A crowd that fills the backlog makes new connections wait for seconds, and probes fail."""
    with running_server(tmp_path) as server:
        address = ("127.0.0.1", server.announcement["ops"]["port"])
        command = [sys.executable, "-c", CROWD, str(address[1])]
        with contextlib.ExitStack() as ended:
            for _ in range(2):
                crowd = subprocess.Popen(command)
                ended.callback(crowd.wait)
                ended.callback(crowd.kill)
            time.sleep(1)
            answered, end = 0, time.monotonic() + 5
            while time.monotonic() < end:
                answered += server.ops("/livez").status == 200
    assert answered > 20
