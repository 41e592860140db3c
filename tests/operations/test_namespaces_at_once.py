"""Several namespaces at once: bounded, in order, and one of them harms no other."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from webhook.kube.api import ApiError, ForbiddenError, UnreachableError
from webhook.operations.namespaces_at_once import AT_ONCE, Together, in_each
from webhook.operations.retry import RetryPolicy, silent

NAMES = [f"team-{number:02}" for number in range(3 * AT_ONCE)]
LONG = RetryPolicy(seconds=60.0, pause_seconds=60.0, settle_seconds=60.0)
BOUND_SECONDS = 10.0


def done(found: Together[str]) -> list[str | None]:
    return [one.value for one in found.each]


def workers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("together-")]


def test_without_namespaces_there_is_nothing_to_do() -> None:
    found = in_each([], lambda name, _: name, patience=LONG, report=silent)
    assert found == Together(())


def test_so_many_are_worked_on_at_the_same_time_and_no_more() -> None:
    together, lock = threading.Barrier(AT_ONCE), threading.Lock()
    now = most = 0

    def work(name: str, _: RetryPolicy) -> str:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait(BOUND_SECONDS)
        with lock:
            now -= 1
        return name

    assert done(in_each(NAMES, work, patience=LONG, report=silent)) == NAMES
    assert most == AT_ONCE


def test_the_order_is_that_of_the_names_whichever_ends_first() -> None:
    second = threading.Event()
    said: list[str] = []

    def work(name: str, _: RetryPolicy) -> str:
        if name == "a":
            assert second.wait(BOUND_SECONDS)
            return "first"
        second.set()
        return "second"

    found = in_each(["a", "b"], work, patience=LONG, report=said.append)
    assert done(found) == ["first", "second"]
    assert said == ["b: done (1 of 2)", "a: done (2 of 2)"]


def test_what_is_refused_in_one_concerns_no_other() -> None:
    def work(name: str, _: RetryPolicy) -> str:
        if name == "team-01":
            raise ForbiddenError("hands off")
        return name

    found = in_each(NAMES, work, patience=LONG, report=silent)
    assert [one.name for one in found.each if one.value is None] == ["team-01"]
    assert found.each[1].why == "hands off"
    assert (found.no_answer, found.is_interrupted) == (None, False)


def test_nothing_more_is_begun_without_an_answer_and_what_was_begun_ends() -> None:
    begun: list[str] = []
    all_begun, gone = threading.Barrier(AT_ONCE), UnreachableError("gone")

    def work(name: str, _: RetryPolicy) -> str:
        begun.append(name)
        all_begun.wait(BOUND_SECONDS)
        if name == NAMES[2]:
            raise gone
        while len(workers()) == AT_ONCE:  # until that one has left
            time.sleep(0.001)
        return name

    found = in_each(NAMES, work, patience=LONG, report=silent)
    assert sorted(begun) == NAMES[:AT_ONCE]
    assert found.no_answer is gone
    assert {one.why for one in found.each[AT_ONCE:]} == {"not begun"}
    assert [one.name for one in found.each if one.value] == [*NAMES[:2], *NAMES[3:AT_ONCE]]


def test_which_errors_mean_no_answer_can_be_said() -> None:
    def work(_: str, _patience: RetryPolicy) -> str:
        raise ForbiddenError("you?")

    found = in_each(["a"], work, patience=LONG, report=silent, no_answer=(ApiError,))
    assert isinstance(found.no_answer, ForbiddenError)


def test_a_fault_is_raised_where_the_work_was_asked_for() -> None:
    ended: list[str] = []
    all_begun = threading.Barrier(AT_ONCE)

    def work(name: str, _: RetryPolicy) -> str:
        all_begun.wait(BOUND_SECONDS)
        if name == "team-00":
            raise RuntimeError("a fault")
        ended.append(name)
        return name

    with pytest.raises(RuntimeError, match="a fault"):
        in_each(NAMES[:AT_ONCE], work, patience=LONG, report=silent)
    assert sorted(ended) == NAMES[1:AT_ONCE]


WAITS = {
    "between two looks": lambda patience: patience.begin().pause(),
    "until it is settled": lambda patience: patience.begin().wait_for_caches(),
    "for an answer": lambda patience: patience.begin().retry(unanswered),
}


def unanswered() -> str:
    time.sleep(0.001)
    raise UnreachableError("gone")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_the_keyboard_stops_what_waits(wait: object) -> None:
    begun = threading.Barrier(AT_ONCE)

    def work(name: str, patience: RetryPolicy) -> str:
        if begun.wait(BOUND_SECONDS) == 0:
            os.kill(os.getpid(), signal.SIGINT)
        wait(patience)  # type: ignore[operator]
        return name

    said: list[str] = []
    found = in_each(NAMES, work, patience=LONG, report=said.append)
    assert found.is_interrupted
    assert [one.why for one in found.each] == [
        *["interrupted"] * AT_ONCE,
        *["not begun"] * (len(NAMES) - AT_ONCE),
    ]
    assert said[0] == "interrupted: stopping what is under way; once more leaves at once"


@pytest.mark.timeout(30)
def test_a_second_interrupt_waits_for_no_thread() -> None:
    release = threading.Event()

    def again(_: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    def work(name: str, _: RetryPolicy) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        release.wait(BOUND_SECONDS)
        return name

    with pytest.raises(KeyboardInterrupt):
        in_each(["a"], work, patience=LONG, report=again)
    release.set()
    for worker in workers():
        worker.join(BOUND_SECONDS)
