"""Where a request ends, whatever pieces it comes in."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.admission.serving.framing import (
    BEGINNING_BYTES,
    CHUNK_LINE_BYTES,
    HEAD_BYTES,
    MAX_CHUNKS,
    Progress,
    RequestBuffer,
)

LIMIT = 1000
HEAD = b"POST /validate HTTP/1.1\r\nHost: webhook\r\n"
PLAIN = (HEAD + b"Content-Length: 5\r\n\r\n", b"12345")
EMPTY = (HEAD + b"\r\n", b"")
CHUNKED = (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n")
TRAILED = (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n0\r\nA: b\r\nC: d\r\n\r\n")
WHOLE = {"a length": PLAIN, "no body": EMPTY, "chunks": CHUNKED, "trailers": TRAILED}


def fed(*pieces: bytes, limit: int = LIMIT) -> tuple[RequestBuffer, list[Progress]]:
    buffer = RequestBuffer(limit)
    return buffer, [buffer.feed(piece) for piece in pieces]


@pytest.mark.parametrize("request_", WHOLE.values(), ids=WHOLE.keys())
def test_a_request_is_complete_with_its_last_byte(request_: tuple[bytes, bytes]) -> None:
    data = b"".join(request_)
    buffer, progress = fed(*(data[at : at + 1] for at in range(len(data))))
    assert progress == [Progress.MORE] * (len(data) - 1) + [Progress.COMPLETE]
    assert buffer.take() == request_
    assert len(buffer) == 0


BROKEN = {
    "two lengths": b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
    "a length that is none": b"Content-Length: +1\r\n\r\n",
    "both headers": b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "another coding": b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "a bare LF": b"A: b\n\r\n",
    "a size that is none": b"Transfer-Encoding: chunked\r\n\r\nx\r\n",
    "a chunk that goes on": b"Transfer-Encoding: chunked\r\n\r\n1\r\naXX0\r\n\r\n",
    "trailers that are too long": (
        b"Transfer-Encoding: chunked\r\n\r\n0\r\nA: " + HEAD_BYTES * b"x" + b"\r\n\r\n"
    ),
}


@pytest.mark.parametrize("rest", BROKEN.values(), ids=BROKEN.keys())
def test_behind_a_request_whose_end_is_not_clear_none_begins(rest: bytes) -> None:
    buffer, (progress,) = fed(HEAD + rest)
    assert progress is Progress.COMPLETE
    buffer.take()
    assert not buffer.is_framed


@pytest.mark.parametrize("request_", WHOLE.values(), ids=WHOLE.keys())
def test_behind_a_whole_request_another_may_begin(request_: tuple[bytes, bytes]) -> None:
    buffer, _ = fed(HEAD + b"Content-Length: +1\r\n\r\n")
    buffer.take()
    buffer.feed(b"".join(request_))
    buffer.take()
    assert buffer.is_framed


@pytest.mark.parametrize("beyond", range(-2, 4))
@pytest.mark.parametrize("most", [CHUNK_LINE_BYTES, HEAD_BYTES], ids=["chunk line", "trailers"])
def test_what_is_too_long_is_so_in_whatever_pieces_it_comes(most: int, beyond: int) -> None:
    if most == CHUNK_LINE_BYTES:
        body = b"1;".ljust(most + beyond, b"x") + b"\r\na\r\n0\r\n\r\n"
    else:
        body = b"0" + b"\r\nA: ".ljust(most + beyond, b"x") + b"\r\n\r\n"
    head = CHUNKED[0]
    handed_on: set[bytes] = set()
    for size in (1, 7, len(body) // 2, len(body)):
        buffer = RequestBuffer(LIMIT)
        buffer.feed(head)
        pieces = (body[at : at + size] for at in range(0, len(body), size))
        assert any(buffer.feed(piece) is Progress.COMPLETE for piece in pieces)
        handed_on.add(buffer.take()[1])
    assert len(handed_on) == 1
    assert (handed_on == {body}) is (beyond <= 0)


@given(
    requests=st.lists(st.sampled_from(sorted(WHOLE)), min_size=1, max_size=4),
    cuts=st.sets(st.integers(min_value=1, max_value=400)),
)
def test_pieces_make_no_difference(requests: list[str], cuts: set[int]) -> None:
    data = b"".join(b"".join(WHOLE[name]) for name in requests)
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    buffer = RequestBuffer(LIMIT)
    found = []
    for begin, end in pairwise(edges):
        progress = buffer.feed(data[begin:end])
        while progress is Progress.COMPLETE and len(buffer):
            found.append(buffer.take())
            progress = buffer.progress()
    assert found == [WHOLE[name] for name in requests]


@pytest.mark.parametrize("received", range(len(HEAD) + 24, len(HEAD) + 1_024, 70))
def test_a_request_that_is_discarded_leaves_what_comes_behind_it(received: int) -> None:
    body = b"x" * 1_001
    data = HEAD + b"Content-Length: 1001\r\n\r\n" + body + b"".join(PLAIN)
    buffer, (*_, progress) = fed(data[:received])
    assert progress is Progress.BODY_TOO_LARGE
    assert buffer.can_discard
    head = len(data) - len(body) - len(b"".join(PLAIN))
    assert buffer.begun() == (data[:head], data[head:received])
    buffer.discard()
    assert buffer.unread == max(head + len(body) - received, 0)
    for at in range(received, len(data), 13):
        progress = buffer.feed(data[at : at + 13])
    assert progress is Progress.COMPLETE
    assert buffer.take() == PLAIN


def test_a_sign_is_seen_in_whatever_pieces_it_comes() -> None:
    buffer, _ = fed(HEAD + b"X: ,sign\r\nContent-Length: 200000\r\n\r\n")
    for part in (b"abc,", b"si", b"g"):
        buffer.feed(part)
        assert not buffer.has_begun(b",sign")
    buffer.feed(b"n")
    assert buffer.has_begun(b",sign")


def test_single_bytes_in_front_of_a_sign_cost_little() -> None:
    buffer, _ = fed(HEAD + b"Content-Length: 200000\r\n\r\n" + b"," * (BEGINNING_BYTES - 6_000))
    started = time.thread_time()
    for _ in range(5_000):
        assert buffer.feed(b",") is Progress.BODY_TOO_LARGE
        assert not buffer.has_begun(b",sign")
    assert time.thread_time() - started < 0.1
    buffer.feed(b"," * 1_000)
    assert buffer.has_begun(b",sign")


@pytest.mark.parametrize("length", [b"67109999", b"99999999999"])
def test_very_much_is_not_discarded(length: bytes) -> None:
    buffer, _ = fed(HEAD + b"Content-Length: %s\r\n\r\n" % length)
    assert not buffer.can_discard


def test_what_comes_behind_a_request_stays() -> None:
    buffer, _ = fed(b"".join(PLAIN) + b"GET")
    assert buffer.take() == PLAIN
    assert len(buffer) == 3
    assert buffer.progress() is Progress.MORE


TOO_LARGE: dict[str, tuple[bytes, Progress]] = {
    "a length beyond the limit, before any of it came": (
        HEAD + b"Content-Length: 1001\r\n\r\n",
        Progress.BODY_TOO_LARGE,
    ),
    "a chunk beyond it": (
        CHUNKED[0] + b"fffffff\r\n",
        Progress.BODY_TOO_LARGE,
    ),
    "a head without an end": (b"GET / HTTP/1.1\r\nA: " + b"a" * 70_000, Progress.HEAD_TOO_LARGE),
}


@pytest.mark.parametrize(("data", "progress"), TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_what_is_too_large_is_seen_early(data: bytes, progress: Progress) -> None:
    assert fed(data)[1] == [progress]


def test_a_body_of_just_the_limit_is_fine() -> None:
    assert fed(HEAD + b"Content-Length: 1000\r\n\r\n", b"x" * 1000)[1][-1] is Progress.COMPLETE


FOR_THE_PARSER: dict[str, bytes] = {
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 50\r\n\r\n",
    "a length and chunks": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a length that is no number": HEAD + b"Content-Length: -5\r\n\r\n",
    "a length with a sign": HEAD + b"Content-Length: +5\r\n\r\n",
    "lines that end with LF only": b"GET / HTTP/1.1\nHost: x\n\n",
    "a chunk size that is no number": CHUNKED[0] + b"x\r\n",
    "a chunk size with a sign": CHUNKED[0] + b"-5\r\n",
    "a chunk size without an end": CHUNKED[0] + b"5" * 2000,
}


@pytest.mark.parametrize("data", FOR_THE_PARSER.values(), ids=FOR_THE_PARSER.keys())
def test_what_looks_wrong_is_handed_on_at_once(data: bytes) -> None:
    buffer, progress = fed(data)
    assert progress == [Progress.COMPLETE]
    assert data.startswith(b"".join(buffer.take()))


def test_too_many_chunks_are_handed_on() -> None:
    data = CHUNKED[0] + b"1\r\na\r\n" * (MAX_CHUNKS + 2)
    assert fed(data, limit=10**9)[1] == [Progress.COMPLETE]


@given(data=st.binary(max_size=300))
def test_any_bytes_have_some_progress(data: bytes) -> None:
    buffer, progress = fed(CHUNKED[0] + data)
    if progress[0] is Progress.COMPLETE:
        head, body = buffer.take()
        assert (CHUNKED[0] + data).startswith(head + body)


def test_a_client_that_waits_for_100_is_seen() -> None:
    buffer, _ = fed(HEAD + b"Expect: 100-Continue\r\nContent-Length: 5\r\n\r\n")
    assert buffer.expects_continue()
    assert not fed(PLAIN[0])[0].expects_continue()
    assert not fed(HEAD + b"Expect: 100-continue\r\nContent-")[0].expects_continue()


FILLING = b"\r\nexpect" * 7000
LARGE = {
    "a head": HEAD[:-2] + FILLING[: HEAD_BYTES - 10_000],
    "a body behind a large head": (
        HEAD[:-2] + FILLING[: HEAD_BYTES - 10_000] + b"\r\nContent-Length: 900000\r\n\r\n"
    ),
    "trailers": CHUNKED[0] + b"0" + FILLING[: HEAD_BYTES - 10_000],
}


@pytest.mark.parametrize("begun", LARGE.values(), ids=LARGE.keys())
def test_single_bytes_cost_little_however_much_came_before(begun: bytes) -> None:
    """All connections wait for the thread that counts them."""
    buffer, _ = fed(begun, limit=10**6)
    started = time.thread_time()
    for _ in range(5000):
        assert buffer.feed(b"x") is Progress.MORE
        assert not buffer.expects_continue()
    assert time.thread_time() - started < 0.1
