"""The load's own client: answers of any framing, kept connections, lost answers."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import make_certificates
from tests.torture.load.wire import LostAnswerError, Wire

JSON = b'{"message": "so it is"}'
PLAIN = b"HTTP/1.1 201 Created\r\nContent-Length: 23\r\n\r\n" + JSON
CHUNKED = (
    b"HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"a\r\n" + JSON[:10] + b"\r\nd\r\n" + JSON[10:] + b"\r\n0\r\n\r\n"
)
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Scripted:
    """A TLS server that gives each request the next answer; None ends the connection instead."""

    def __init__(self, directory: Path, *answers: bytes | None) -> None:
        made = make_certificates(directory / "certs")
        self.context = ssl.create_default_context(cafile=str(made / "ca.crt"))
        self._server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._server.load_cert_chain(made / "tls.crt", made / "tls.key")
        self._answers = iter(answers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self.requests: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                self.connections += 1
                with self._server.wrap_socket(plain, server_side=True) as connection:
                    self._serve(connection)

    def _serve(self, connection: ssl.SSLSocket) -> None:
        while request := connection.recv(65536):
            self.requests.append(request)
            answer = next(self._answers)
            if answer is None:
                return
            for start in range(0, len(answer), 7):
                connection.sendall(answer[start : start + 7])


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[type[Scripted]]:
    made: list[Scripted] = []

    class Kept(Scripted):
        def __init__(self, *answers: bytes | None) -> None:
            super().__init__(tmp_path, *answers)
            made.append(self)

    yield Kept
    for each in made:
        each.close()


def test_answers_of_any_framing_are_read_on_one_connection(serve: type[Scripted]) -> None:
    server = serve(PLAIN, CHUNKED, PLAIN)  # type: ignore[arg-type]
    wire = Wire(server.url, server.context)
    replies = [wire.call("POST", "/a", {"b": 1}) for _ in range(3)]
    assert [reply.status for reply in replies] == [201, 403, 201]
    assert {reply.message for reply in replies} == {"so it is"}
    assert server.connections == 1
    assert server.requests[0].endswith(b'Content-Length: 7\r\n\r\n{"b":1}')
    wire.close()


def test_a_connection_that_is_closed_by_the_server_is_made_anew(serve: type[Scripted]) -> None:
    server = serve(LAST, PLAIN)  # type: ignore[arg-type]
    wire = Wire(server.url, server.context)
    assert [wire.call("GET", "/").status for _ in range(2)] == [200, 201]
    assert server.connections == 2
    wire.close()


@pytest.mark.parametrize("answer", [None, b"nonsense\r\n\r\n"])
def test_an_answer_that_does_not_come_is_lost(serve: type[Scripted], answer: bytes | None) -> None:
    server = serve(answer, PLAIN)  # type: ignore[arg-type]
    wire = Wire(server.url, server.context)
    with pytest.raises(LostAnswerError, match="PATCH /a"):
        wire.patch("/a", {})
    assert wire.call("GET", "/").status == 201
    wire.close()
