"""Requests that are answered before they end, on connections that stay or go."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from webhook.admission.serving import event_loop
from webhook.admission.serving.concurrency import ConcurrencyLimiter
from webhook.admission.serving.connection import Connection
from webhook.admission.serving.event_loop import ConnectionLoop, WorkerHooks
from webhook.admission.serving.http_response import HttpResponse
from webhook.admission.serving.server_settings import ServerSettings
from webhook.telemetry.metrics import Metrics

BODY_BYTES = 1000
DENIAL = HttpResponse(200, b"denied")
BEGINNING = b'{"request":{"uid":"a","userInfo":{"username":"me"},'


class Loop:
    """A loop with one connection, whose turns a test takes."""

    def __init__(self) -> None:
        self.client, served = socket.socketpair()
        self.poller = selectors.DefaultSelector()
        hooks = WorkerHooks(
            poller=self.poller,
            defer=lambda function, *arguments: function(*arguments),
            submit=lambda _connection, _deadline: None,
            overloaded=lambda *_: DENIAL,
            refused=lambda *_: DENIAL,
            wrap=None,
        )
        settings = ServerSettings(tls=None, body_bytes=BODY_BYTES)
        self.limiter = ConcurrencyLimiter(1)
        self.loop = ConnectionLoop(hooks, settings, self.limiter, Metrics())
        self.loop.accept(served, ("127.0.0.1", 1), ("127.0.0.1", 2))

    @property
    def connection(self) -> Connection:
        (connection,) = self.loop.connections
        return connection

    def send(self, data: bytes) -> bytes:
        """Send bytes, let the loop see them, and return what it answers."""
        self.client.sendall(data)
        for key, _ in self.poller.select(5):
            key.data(key.fileobj)
        return self.received()

    def received(self) -> bytes:
        self.client.settimeout(0.05)
        try:
            return self.client.recv(65536)
        except TimeoutError:
            return b""


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    with closing(made.client), closing(made.poller):
        yield made
        made.loop.close()


def head(*lines: str, length: int) -> bytes:
    fixed = ("POST /mutate HTTP/1.1", "Host: x", f"Content-Length: {length}", *lines, "", "")
    return "\r\n".join(fixed).encode()


def test_a_request_that_is_denied_already_and_does_not_end_is_denied(loop: Loop) -> None:
    """An error would let a pod pass whose registration has the failure policy `Ignore`."""
    assert loop.send(head(length=2 * BODY_BYTES) + BEGINNING) == b""
    assert loop.connection.early is DENIAL
    loop.connection.deadline = 0.0
    loop.loop.sweep()
    answer = loop.received()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(DENIAL.body)
    assert b"Connection: close" in answer


def test_one_that_is_not_denied_and_does_not_end_gets_a_408(loop: Loop) -> None:
    assert loop.send(head(length=100) + BEGINNING) == b""
    loop.connection.deadline = 0.0
    loop.loop.sweep()
    assert loop.received().startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_stays_after_an_early_answer_is_as_after_any_other(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = head("Expect: 100-continue", length=100)
    assert loop.send(waits).startswith(b"HTTP/1.1 100 ")
    with monkeypatch.context() as full:
        full.setattr(event_loop, "HELD_BYTES", ((0, -1),))
        assert loop.send(b" " * 50) == b""
        assert loop.send(b" " * 50).startswith(b"HTTP/1.1 200 ")
    assert loop.connection.served
    assert loop.send(waits).startswith(b"HTTP/1.1 100 ")


@pytest.mark.parametrize(("size", "stays"), [("0", True), ("x", False)])
def test_one_that_is_turned_away_keeps_its_connection_where_its_end_is_clear(
    loop: Loop, size: str, stays: bool
) -> None:
    loop.limiter.enter(1.0)
    loop.limiter.leave(100.0)  # seconds that one takes
    loop.limiter.enter(1.0)
    chunked = "POST /validate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = loop.send(f"{chunked}{size}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert (b"Connection: keep-alive" in answer, b"Connection: close" in answer) == (
        stays,
        not stays,
    )
