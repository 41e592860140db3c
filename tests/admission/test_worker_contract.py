"""What the worker uses of gunicorn and is not public there: a new version has to be looked at."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.metadata import version

import pytest
from gunicorn.config import Config
from gunicorn.http import RequestParser
from gunicorn.workers.gthread import PollableMethodQueue, ThreadWorker

from webhook.admission.serving.connection import pieces

SIGNATURES: dict[str, tuple[Callable[..., object], str]] = {
    "handle_request": (ThreadWorker.handle_request, "(self, req, conn)"),
    "set_accept_enabled": (ThreadWorker.set_accept_enabled, "(self, enabled)"),
    "accept": (ThreadWorker.accept, "(self, listener)"),
    "wait_for_and_dispatch_events": (
        ThreadWorker.wait_for_and_dispatch_events,
        "(self, timeout)",
    ),
    "is_parent_alive": (ThreadWorker.is_parent_alive, "(self)"),
    "handle_exit": (ThreadWorker.handle_exit, "(self, sig, frame)"),
    "defer": (PollableMethodQueue.defer, "(self, callback, *args)"),
    "finish_body": (RequestParser.finish_body, "(self, deadline=None, max_bytes=None)"),
}


@pytest.mark.parametrize(("function", "signature"), SIGNATURES.values(), ids=SIGNATURES.keys())
def test_methods_take_what_they_took(function: Callable[..., object], signature: str) -> None:
    assert str(inspect.signature(function)) == signature


def test_the_major_version_is_the_one_that_was_read() -> None:
    assert version("gunicorn").split(".")[0] == "27"


def test_a_full_house_closes_connections_which_is_how_draining_tells_clients_to_go() -> None:
    source = inspect.getsource(ThreadWorker.handle_request)
    assert "len(self.keepalived_conns) >= self.max_keepalived" in source
    assert "resp.force_close()" in source


def test_the_parser_takes_bytes_instead_of_a_socket_and_keeps_what_is_left() -> None:
    parser = RequestParser(Config(), [b"GET / HTTP/1.1\r\n\r\n", b"more"], ("127.0.0.1", 1))
    request = next(parser)
    assert (request.method, request.path) == ("GET", "/")
    assert parser.finish_body()
    assert parser.unreader.take_buffered() == b""
    assert parser.unreader.read() == b"more"
    assert parser.unreader.read() == b""


CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("size", [1, 17, 65_535, 65_536, 65_537, 500_000])
def test_a_request_is_read_in_pieces_of_which_none_is_large(size: int) -> None:
    """Of a body in chunks the parser copies the rest of its piece once for each."""
    text = bytes(range(256)) * 2000
    chunks = [text[start : start + size] for start in range(0, len(text), size)][:5000]
    body = b"".join(b"%x;a=b\r\n%s\r\n" % (len(one), one) for one in chunks) + b"0\r\n\r\n"
    parts = [*pieces(CHUNKED, body)]
    assert b"".join(parts) == CHUNKED + body
    assert max(map(len, parts)) <= 65_536
    parser = RequestParser(Config(), parts, ("127.0.0.1", 1))
    assert next(parser).body.read() == b"".join(chunks)
    assert parser.finish_body()
    assert parser.unreader.read() == b""


def test_what_is_behind_the_end_that_the_parser_sees_is_left() -> None:
    body = b"5\r\nabcde\r\n0\r\n\r\n"
    for rest in (b"", b"x", b"x" * 65_536):
        padding = b"0\r\n\r\n" + b"x" * (65_536 - 5)
        for sent in (body + rest, padding + rest):  # the end of a piece, too
            parser = RequestParser(Config(), pieces(CHUNKED, sent), ("127.0.0.1", 1))
            next(parser)
            assert parser.finish_body()
            assert bool(parser.unreader.read()) == (len(sent) > sent.find(b"0\r\n\r\n") + 5)
