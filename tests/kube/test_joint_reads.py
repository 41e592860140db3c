"""Requests that wait for the same answer of the API server join in one read of it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

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


def test_a_read_that_breaks_off_leaves_the_one_before_to_those_that_waited_for_it() -> None:
    reads: JointReads[int] = JointReads()
    answers: list[int] = []

    def broken() -> int:
        raise MemoryError

    def first() -> int:  # another comes while it reads, has its turn next, and breaks off
        def after() -> None:
            with pytest.raises(MemoryError):
                reads.read("a", broken)
            answers.append(reads.read("a", lambda: 3))

        thread.append(threading.Thread(target=after))
        thread[0].start()
        return 1

    thread: list[threading.Thread] = []
    assert reads.read("a", first) == 1
    thread[0].join(30)
    assert answers == [3]
