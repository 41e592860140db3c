"""Requests that wait for the same answer of the API server join in one read of it."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor, wait

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


def refuse_while_reading(reads: JointReads[int], source: Source, key: str, why: str) -> None:
    """Have a key asked for, and refused, while `a` is being read."""
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(reads.read, "a", source.read)
        assert source.begun.acquire(timeout=30)
        with pytest.raises(UnavailableError, match=why):
            reads.read(key, source.read)
        source.may_end.release()
        assert first.result(30) == 1


def test_an_error_is_that_of_all_and_of_none_that_comes_later() -> None:
    reads: JointReads[str] = JointReads(at_once=1)

    def fail() -> str:
        raise UnavailableError("down")

    with pytest.raises(UnavailableError, match="down"):
        reads.read("a", fail)
    assert reads.read("a", lambda: "up") == "up"


def test_nothing_is_kept_of_an_error_that_all_have_been_told() -> None:
    """Its frames hold what was read so far, which may be large."""
    reads: JointReads[str] = JointReads(at_once=1)

    def fail() -> str:
        raise UnavailableError("down")

    gc.disable()
    try:
        with pytest.raises(UnavailableError, match="down") as raised:
            reads.read("a", fail)
        error = weakref.ref(raised.value)
        del raised
        assert error() is None
    finally:
        gc.enable()


def test_reads_of_other_keys_wait_for_their_turn_and_not_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("webhook.kube.joint_reads._WAIT_SECONDS", 0.05)
    reads: JointReads[int] = JointReads(at_once=1)
    source = Source()
    refuse_while_reading(reads, source, "b", "other reads take too long")
    source.may_end.release()
    assert reads.read("b", source.read) == 2


def test_those_that_come_while_one_is_read_share_the_next_and_wait_for_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("webhook.kube.joint_reads._SLOW_SECONDS", 60.0)  # machines may be busy
    reads: JointReads[int] = JointReads(at_once=1)
    source, came = Source(), threading.Semaphore(0)

    def ask() -> int:
        came.release()
        return reads.read("a", source.read)

    def asked(count: int) -> list[Future[int]]:
        asking = [pool.submit(ask) for _ in range(count)]
        assert all(came.acquire(timeout=30) for _ in range(count))
        time.sleep(0.1)  # for all to wait
        return asking

    with ThreadPoolExecutor(40) as pool:
        (first,) = asked(1)
        assert source.begun.acquire(timeout=30)
        early = asked(20)
        source.may_end.release()
        assert first.result(30) == 1
        assert source.begun.acquire(timeout=30)
        late = asked(10)
        source.may_end.release()
        assert {one.result(30) for one in early} == {2}
        source.may_end.release()
        assert {one.result(30) for one in late} == {3}


def test_a_read_that_breaks_off_is_made_again_for_those_that_wait() -> None:
    reads: JointReads[int] = JointReads(at_once=1)
    begun, may_end = threading.Event(), threading.Event()

    def broken() -> int:
        begun.set()
        assert may_end.wait(30)
        raise MemoryError

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(reads.read, "a", broken)
        assert begun.wait(30)
        waited = pool.submit(reads.read, "a", lambda: 9)
        may_end.set()
        assert waited.result(30) == 9
        assert isinstance(first.exception(30), MemoryError)


def test_a_namespace_with_many_requests_keeps_no_other_from_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("webhook.kube.joint_reads._SLOW_SECONDS", -1.0)  # every read takes long
    reads: JointReads[int] = JointReads(at_once=1)
    source = Source()
    reads.read("", lambda: 0)
    with ThreadPoolExecutor(50) as pool:
        first = pool.submit(reads.read, "", source.read, namespace="busy")
        assert source.begun.acquire(timeout=30)
        crowd = [pool.submit(reads.read, "", source.read, namespace="busy") for _ in range(40)]
        turned_away = wait(crowd, timeout=0.3).done
        other = pool.submit(reads.read, "", source.read, namespace="other")
        for _ in range(3):
            source.may_end.release()
        assert first.result(30) == 1
        assert other.result(30) in {2, 3}
        assert len(turned_away) >= 30
        for one in turned_away:
            with pytest.raises(UnavailableError, match="others wait for the same"):
                one.result(0)


def test_few_wait_for_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.kube.joint_reads._SLOW_SECONDS", -1.0)  # every read takes long
    monkeypatch.setattr("webhook.kube.joint_reads._MOST_WAITING", 0)
    reads: JointReads[int] = JointReads(at_once=1)
    reads.read("a", lambda: 0)
    refuse_while_reading(reads, Source(), "a", "others wait for the same")


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
