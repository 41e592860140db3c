"""Rounds come one after the other until they are stopped, whatever becomes of one."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.admission.handlers.harness import eventually
from webhook.controllers.runtime.periodic import PeriodicThread


def rounds(work: Callable[[], float], last: Callable[[], float] = lambda: 0.0) -> PeriodicThread:
    return PeriodicThread("test", work, retry_seconds=0.0, on_stop=last)


def test_they_come_until_they_are_stopped_and_then_the_last() -> None:
    done: list[str] = []

    def work() -> float:
        done.append("work")
        return 0.001

    def last() -> float:
        done.append("last")
        return 0.0

    made = rounds(work, last)
    made.start()
    eventually(lambda: len(done) > 2, "there was more than one")
    assert not made.is_stopping
    made.stop(5)
    assert made.is_stopping
    assert done.index("last") == len(done) - 1


def test_one_that_fails_is_logged_and_the_next_one_comes(caplog: pytest.LogCaptureFixture) -> None:
    came = threading.Semaphore(0)

    def fail() -> float:
        came.release()
        raise ValueError("this one")

    made = rounds(fail, fail)
    made.start()
    for _ in range(2):
        assert came.acquire(timeout=5)
    made.stop(5)
    assert {(one.getMessage(), one.__dict__["rounds"]) for one in caplog.records} == {
        ("a round failed", "test")
    }
    assert "this one" in caplog.text


def test_stopping_waits_for_the_round_that_has_begun_and_interrupts_a_rest() -> None:
    has_begun, may_end = threading.Event(), threading.Event()
    ended: list[bool] = []

    def work() -> float:
        has_begun.set()
        may_end.wait(5)
        ended.append(True)
        return 3600.0

    made = rounds(work)
    made.start()
    assert has_begun.wait(5)
    made.stop(0.01)
    assert not ended
    may_end.set()
    made.stop(5)
    assert ended == [True]


def test_a_round_may_stop_all_that_follow() -> None:
    done: list[int] = []

    def work() -> float:
        done.append(1)
        made.stop(5)
        return 0.0

    made = rounds(work)
    made.start()
    eventually(lambda: made.is_stopping, "it has stopped itself")
    made.stop(5)
    assert done == [1]


def test_a_rest_before_the_first_round_is_taken_when_it_is_asked_for() -> None:
    done: list[int] = []

    def work() -> float:
        done.append(1)
        return 0.0

    made = PeriodicThread("test", work, retry_seconds=3600.0, pauses_first=True)
    made.start()
    made.stop(5)
    assert done == []


def test_what_never_began_can_be_stopped() -> None:
    made = rounds(lambda: 0.0)
    made.stop(5)
    assert made.is_stopping
