"""Requests that wait for the same answer of the API server join in one read of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from webhook.kube.api import UnavailableError
from webhook.kube.joint_reads import JointReads


class Source:
    """Reads that end when they may, and are numbered."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Semaphore(0), threading.Semaphore(0)
        self.count = 0

    def read(self) -> int:
        self.count += 1
        number = self.count
        self.begun.release()
        assert self.may_end.acquire(timeout=30)
        return number


def test_an_error_is_that_of_all_and_of_none_that_comes_later() -> None:
    reads: JointReads[str] = JointReads(at_once=1)

    def fail() -> str:
        raise UnavailableError("down")

    with pytest.raises(UnavailableError, match="down"):
        reads.read("a", fail)
    assert reads.read("a", lambda: "up") == "up"


def test_reads_of_other_keys_wait_for_their_turn_and_not_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("webhook.kube.joint_reads._WAIT_SECONDS", 0.05)
    reads: JointReads[int] = JointReads(at_once=1)
    source = Source()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(reads.read, "a", source.read)
        assert source.begun.acquire(timeout=30)
        with pytest.raises(UnavailableError, match="other reads take too long"):
            reads.read("b", source.read)
        source.may_end.release()
        assert first.result(30) == 1
    source.may_end.release()
    assert reads.read("b", source.read) == 2


def test_one_that_waited_has_the_answer_of_the_last_read_that_did_not_break_off() -> None:
    came, may_go = threading.Event(), threading.Event()

    @contextmanager
    def alone(_key: str) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            came.set()
            assert may_go.wait(30)
        yield

    def broken() -> int:
        raise MemoryError

    reads: JointReads[int] = JointReads(alone=alone)
    with ThreadPoolExecutor(1) as pool:
        waited = pool.submit(reads.read, "a", lambda: 9)
        assert came.wait(30)
        assert reads.read("a", lambda: 1) == 1
        with pytest.raises(MemoryError):
            reads.read("a", broken)
        may_go.set()
        assert waited.result(30) == 1


def test_keys_that_take_long_leave_turns_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.kube.joint_reads._SLOW_SECONDS", -1.0)  # every read takes long
    reads: JointReads[int] = JointReads(at_once=2)
    source = Source()
    for key in ("a", "b"):
        reads.read(key, lambda: 0)
    with ThreadPoolExecutor(2) as pool:
        slow = [pool.submit(reads.read, key, source.read) for key in ("a", "b")]
        assert source.begun.acquire(timeout=30)
        assert reads.read("c", lambda: 7) == 7
        assert source.count == 1
        source.may_end.release(2)
        assert sorted(one.result(30) for one in slow) == [1, 2]
