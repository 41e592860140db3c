"""Calls to an API server keep their connections and survive its restarts."""

from __future__ import annotations

import json
import select
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from tests.controlplane.rest import Rest, RestError

REFUSAL = {"kind": "Status", "reason": "Forbidden", "message": "pods is forbidden", "code": 403}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    connections: ClassVar[set[object]] = set()

    def do_POST(self) -> None:
        self._answer(200, self.rfile.read(int(self.headers["Content-Length"])))

    def do_GET(self) -> None:
        if self.path == "/close":
            self.close_connection = True  # after the answer, and without telling
            self._answer(200, b"{}")
        elif self.path == "/text":
            self._answer(502, b"bad gateway\n")
        else:
            self._answer(403, json.dumps(REFUSAL).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.connections.add(self.client_address)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Warning", '299 - "careful"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


@pytest.fixture
def rest() -> Iterator[Rest]:
    Handler.connections.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        rest = Rest(f"http://127.0.0.1:{server.server_address[1]}", None)
        yield rest
        rest.close()
        server.shutdown()
        thread.join()


def test_what_is_sent_is_json(rest: Rest) -> None:
    assert rest.create("/pods", {"spec": {"a": [1]}}) == {"spec": {"a": [1]}}


def test_a_refusal_says_what_the_server_said(rest: Rest) -> None:
    with pytest.raises(RestError, match=r"^403 Forbidden: pods is forbidden$"):
        rest.get("/pods")


def test_a_refusal_that_is_not_json_is_shown_as_it_is(rest: Rest) -> None:
    with pytest.raises(RestError, match=r"^502 : bad gateway$"):
        rest.get("/text")


def test_headers_can_be_seen(rest: Rest) -> None:
    assert rest.exchange("GET", "/pods").headers["Warning"] == '299 - "careful"'


def test_a_connection_is_used_again(rest: Rest) -> None:
    for _ in range(5):
        rest.create("/pods", {})
    assert len(Handler.connections) == 1


def test_a_connection_that_the_server_has_closed_is_not(rest: Rest) -> None:
    rest.get("/close")
    (idle,) = rest.idle
    assert select.select([idle.sock], [], [], 30)[0], "the server has not closed it"
    assert rest.create("/pods", {}) == {}
    assert len(Handler.connections) == 2


def test_threads_do_not_share_a_connection(rest: Rest) -> None:
    wrong: list[object] = []

    def call(number: int) -> None:
        for step in range(50):
            sent = {"number": number, "step": step}
            if (answer := rest.create("/pods", sent)) != sent:
                wrong.append(answer)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert 1 <= len(Handler.connections) <= 4
