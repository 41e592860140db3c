"""What the worker uses of gunicorn and is not public there: a new version has to be looked at."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.metadata import version

import pytest
from gunicorn.config import Config
from gunicorn.http import RequestParser
from gunicorn.workers.gthread import PollableMethodQueue, ThreadWorker

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
