"""Reviews over TLS, as an API server sends them, and as nobody should."""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import json
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.admission.reviews import a_review, encoded
from tests.e2e.harness import Reply, Server, post, running_server

LIMIT = 7 * 1024 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("reviews"), threads=4) as server:
        yield server


def test_a_mutating_answer_carries_its_patch(server: Server) -> None:
    response = server.post(a_review(), "/mutate").json["response"]
    assert (response["allowed"], response["patchType"]) == (True, "JSONPatch")
    assert json.loads(base64.b64decode(response["patch"]))[0]["op"] == "add"


def test_a_denial_is_an_answer(server: Server) -> None:
    reply = server.post(a_review({"name": "deny"}))
    assert (reply.status, reply.json["response"]["status"]["code"]) == (200, 403)


def test_a_fault_is_500_and_does_not_end_the_connection(server: Server) -> None:
    with contextlib.closing(server.connect()) as connection:
        reply = post(connection, a_review({"name": "fail"}))
        assert (reply.status, reply.json["reason"]) == (500, "InternalError")
        assert post(connection, a_review()).status == 200
    (line,) = server.log_lines("review failed")
    assert line["traceback"].endswith("RuntimeError: told to")


def test_a_decision_is_logged_with_names_made_harmless(server: Server) -> None:
    server.post(a_review({"uid": "uid-log", "namespace": "a\r\n\x1b[2J\u2028"}))
    (line,) = server.log_lines("decided", uid="uid-log")
    assert line["key"] == "a\r\n\x1b[2J\u2028/web-1"
    raw = server.log.read_bytes()
    assert b"\x1b" not in raw
    assert raw.isascii()


BODIES: dict[str, tuple[bytes, str]] = {
    "JSON that ends early": (encoded(a_review())[:30], "not JSON"),
    "NaN": (encoded(a_review()).replace(b'"web-1"', b"NaN"), "not JSON"),
    "3 MiB of nesting": (b'{"a":' * 629_145, "nests too deep"),
    "a wrong type": (encoded(a_review({"uid": 1})), "request.uid: expected str, got int"),
}


@pytest.mark.parametrize(("body", "message"), BODIES.values(), ids=BODIES.keys())
def test_what_cannot_be_read_is_400_with_the_reason(
    server: Server, body: bytes, message: str
) -> None:
    reply = server.post(body)
    assert reply.status == 400
    assert message in reply.json["message"]
    assert "Retry-After" not in reply.headers


USER = {"username": "me", "extra": {"a.b/c": ["x"], "object": ["y"]}}
TOO_MUCH: dict[str, tuple[bytes, int, str]] = {
    "no JSON further on": (encoded(a_review())[:-30], 400, "not JSON"),
    "3 MiB of nesting": (
        encoded(a_review()).replace(b'"node-1"', b"[" * 3_145_728),
        400,
        "nests too deep",
    ),
    "3 MiB of nesting before an end that is forged": (
        encoded(a_review()).replace(
            b'"node-1"',
            b'{"a":1,"managedFields":[{"f":{"d":%s{}%s,"a":[{}]},"spec":{}}}]},"spec":{}'
            % (b'{"a":' * 500_000, b"}" * 500_000),
        ),
        400,
        "nests too deep",
    ),
    "3 MiB of nesting, and keys of the user like those of a review": (
        encoded(a_review({"userInfo": USER})).replace(b'"node-1"', b"[" * 3_145_728),
        400,
        "nests too deep",
    ),
    "more than the limit, and keys of the user like those of a review": (
        encoded(a_review({"userInfo": USER}, padding="x" * LIMIT)),
        413,
        "too large",
    ),
    "more than the limit, and a large user": (
        encoded(a_review({"userInfo": {"extra": {"a": ["x" * 100_000]}}}, padding="x" * LIMIT)),
        413,
        "too large",
    ),
    "more than the limit": (encoded(a_review(padding="x" * LIMIT)), 413, "too large"),
    "more than the limit, much": (encoded(a_review(padding="x" * 4 * LIMIT)), 413, "too large"),
}


@pytest.mark.parametrize(("body", "code", "message"), TOO_MUCH.values(), ids=TOO_MUCH.keys())
def test_a_review_that_is_too_much_is_denied_and_not_left_to_its_failure_policy(
    server: Server, body: bytes, code: int, message: str
) -> None:
    """Its size is chosen by who writes the object."""
    with contextlib.closing(server.connect()) as connection:
        for _ in range(2):  # on one connection
            reply = post(connection, body)
            assert reply.status == 200
            denial = reply.json["response"]
            assert (denial["uid"], denial["allowed"]) == ("uid-1", False)
            assert denial["status"]["code"] == code
            assert message in denial["status"]["message"]
        assert post(connection, a_review()).json["response"]["allowed"] is True


def test_a_body_of_nearly_the_limit_is_read(server: Server) -> None:
    review = encoded(a_review(padding="x" * (LIMIT - 2000)))
    assert LIMIT - 2000 < len(review) < LIMIT
    assert server.post(review).status == 200


def head(*lines: str, path: str = "/validate") -> bytes:
    """A request head, up to and with the empty line."""
    first = f"POST {path} HTTP/1.1"
    fixed = (first, "Host: localhost", "Content-Type: application/json", *lines, "", "")
    return "\r\n".join(fixed).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def exchange(server: Server, *pieces: bytes) -> list[Reply]:
    """Send bytes over TLS and read replies until the server closes or falls silent."""
    with contextlib.closing(server.tls_socket()) as sock:
        for piece in pieces:
            with contextlib.suppress(OSError):  # the server may have answered and closed already
                sock.sendall(piece)
        return replies_on(sock)


def replies_on(sock: socket.socket) -> list[Reply]:
    sock.settimeout(2)
    data = bytearray()
    with contextlib.suppress(TimeoutError, ssl.SSLError, ConnectionError):
        while piece := sock.recv(65536):
            data += piece
            if data.endswith(b"}"):
                sock.settimeout(0.2)
    return parsed(bytes(data))


def parsed(data: bytes) -> list[Reply]:
    replies = []
    while b"\r\n\r\n" in data:
        block, _, rest = data.partition(b"\r\n\r\n")
        first, _, fields = block.partition(b"\r\n")
        headers = http.client.parse_headers(io.BytesIO(fields + b"\r\n\r\n"))
        length = int(headers.get("Content-Length", "0"))
        if len(rest) < length:
            break
        replies.append(Reply(int(first.split()[1]), headers, rest[:length]))
        data = rest[length:]
    return replies


REVIEW = encoded(a_review())

RAW: dict[str, tuple[tuple[bytes, ...], list[int]]] = {
    "chunks": ((head("Transfer-Encoding: chunked"), chunk(REVIEW), chunk(b"")), [200]),
    "many small chunks": (
        (
            head("Transfer-Encoding: chunked"),
            *(chunk(REVIEW[at : at + 1]) for at in range(len(REVIEW))),
            chunk(b""),
        ),
        [200],
    ),
    "two requests in one piece": (
        ((head(f"Content-Length: {len(REVIEW)}") + REVIEW) * 2,),
        [200, 200],
    ),
    "an empty line in front": ((b"\r\n" + head(f"Content-Length: {len(REVIEW)}") + REVIEW,), [200]),
    "a client that waits for 100": (
        (head("Expect: 100-continue", f"Content-Length: {len(REVIEW)}"), REVIEW),
        [100, 200],
    ),
    "no length and no chunks": ((head(),), [400]),
    "a length beyond the limit, none of it sent": ((head("Content-Length: 99999999"),), [413]),
    "chunks beyond the limit": (
        (head("Transfer-Encoding: chunked"), *[chunk(b" " * 1_048_576)] * 9),
        [413],
    ),
    "a chunk of a size that is beyond it": (
        (head("Transfer-Encoding: chunked"), b"fffffffff\r\n"),
        [413],
    ),
    "a chunk size that is no number": (
        (head("Transfer-Encoding: chunked"), b"zz\r\n"),
        [400],
    ),
    "two lengths": ((head("Content-Length: 1", "Content-Length: 2"), b"x"), [400]),
    "a length and chunks": (
        (head("Content-Length: 5", "Transfer-Encoding: chunked"), chunk(b"")),
        [400],
    ),
    "an unknown coding": ((head("Transfer-Encoding: magic, chunked"), chunk(b"")), [501]),
    "compressed": ((head("Content-Encoding: gzip", "Content-Length: 2"), b"{}"), [415]),
    "an expectation nobody knows": ((head("Expect: wonders", "Content-Length: 2"), b"{}"), [417]),
    "no HTTP": ((b"hello\r\n\r\n",), [400]),
    "lines that end with LF": ((b"GET / HTTP/1.1\nHost: x\n\n",), [400]),
    "a control character in a header": ((head("X: a\x01b", "Content-Length: 0"),), [400]),
    "a long URL": ((head("Content-Length: 0", path="/" + "x" * 2000),), [414]),
    "many headers": ((head(*(f"X-{number}: 1" for number in range(80))),), [431]),
    "a head without an end": ((b"GET / HTTP/1.1\r\nX: " + b"x" * 80_000,), [431]),
    "HTTP/1.0 without a length": ((b"GET / HTTP/1.0\r\n\r\n",), [200]),
    "another HTTP": ((b"GET / HTTP/3.7\r\n\r\n",), [400]),
}


@pytest.mark.parametrize(("pieces", "codes"), RAW.values(), ids=RAW.keys())
def test_raw_requests_get_their_code(
    server: Server, pieces: tuple[bytes, ...], codes: list[int]
) -> None:
    replies = exchange(server, *pieces)
    assert [reply.status for reply in replies] == codes
    for reply in replies:
        if reply.status != 100:
            assert reply.headers["Content-Type"] == "application/json"
            assert json.loads(reply.body)
            assert "Retry-After" not in reply.headers


def test_a_connection_with_an_error_in_the_framing_is_closed(server: Server) -> None:
    both = head("Content-Length: 1", "Content-Length: 2") + head("Content-Length: 2") + b"{}"
    assert [reply.status for reply in exchange(server, both)] == [400]


def test_many_at_once_are_all_answered(server: Server) -> None:
    def ten(_: int) -> list[int]:
        with contextlib.closing(server.connect()) as connection:
            return [post(connection, a_review()).status for _ in range(10)]

    with ThreadPoolExecutor(16) as pool:
        assert [code for codes in pool.map(ten, range(16)) for code in codes] == [200] * 160


def test_a_long_answer_to_a_slow_reader_comes_whole(server: Server) -> None:
    with contextlib.closing(server.tls_socket()) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        review = encoded(a_review({"name": "long-6000"}))
        sock.sendall(head(f"Content-Length: {len(review)}") + review)
        time.sleep(0.3)
        assert server.post(a_review()).status == 200
        (reply,) = replies_on(sock)
    assert len(reply.json["response"]["auditAnnotations"]) == 6001


def test_the_index_is_served_beside_reviews(server: Server) -> None:
    with contextlib.closing(server.connect()) as connection:
        connection.request("GET", "/")
        response = connection.getresponse()
        assert (response.status, json.loads(response.read())["name"]) == (200, "deferred-quota")


def test_plain_http_is_served_when_asked_for(tmp_path: Path) -> None:
    with running_server(tmp_path, tls=False) as server:
        with contextlib.closing(server.connect()) as connection:
            assert [post(connection, a_review()).status for _ in range(3)] == [200] * 3
        assert server.announcement["webhook"]["url"] == f"http://127.0.0.1:{server.port}"
