"""Keys are processed when they are due, by one worker each, and none waits behind a busy one."""

from __future__ import annotations

import math
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.controllers.runtime.rate_limit import ExponentialBackoff
from webhook.controllers.runtime.workqueue import WorkQueue

BACKOFF = ExponentialBackoff(1.0, 8.0)


def a_queue(*, rests_after_failure: bool = False) -> tuple[WorkQueue[str], list[float]]:
    clock = [0.0]
    queue: WorkQueue[str] = WorkQueue(
        BACKOFF, rests_after_failure=rests_after_failure, clock=lambda: clock[0]
    )
    return queue, clock


def test_keys_come_in_the_order_of_their_times_and_not_before() -> None:
    queue, clock = a_queue()
    queue.add_after("late", 2.0)
    queue.add_after("soon", 1.0)
    assert queue.get() is None
    clock[0] = 5.0
    assert [queue.get(), queue.get(), queue.get()] == ["soon", "late", None]


def test_of_several_times_the_earliest_counts() -> None:
    queue, _ = a_queue()
    for seconds in (3.0, 1.0, 2.0):
        queue.add_after("one", seconds)
    assert (queue.seconds_to_next(), len(queue)) == (1.0, 1)


def test_a_key_that_is_added_while_it_is_processed_comes_again_after_that() -> None:
    queue, _ = a_queue()
    queue.add("one")
    assert queue.get() == "one"
    queue.add("one")
    assert (queue.get(), queue.processing_count()) == (None, 1)
    queue.done("one")
    assert queue.get() == "one"


def test_a_key_that_rests_comes_no_earlier_than_that() -> None:
    queue, clock = a_queue()
    queue.add("one")
    queue.get()
    queue.add("one")
    queue.rest("one", 0.5)
    queue.done("one")
    queue.add("one")
    assert queue.seconds_to_next() == 0.5
    queue.rest("one", 0.0)
    queue.add("one")
    assert queue.get() == "one"
    queue.done("one")
    clock[0] = 1.0
    queue.add("one")
    assert queue.seconds_to_next() == 0.0


@pytest.mark.parametrize("rests_after_failure", [False, True])
def test_each_failure_in_a_row_doubles_the_pause(*, rests_after_failure: bool) -> None:
    queue, clock = a_queue(rests_after_failure=rests_after_failure)
    pauses = []
    queue.add("one")
    for _ in range(6):
        assert queue.get() == "one"
        queue.add_rate_limited("one")
        queue.done("one")
        pauses.append(queue.seconds_to_next())
        clock[0] += pauses[-1]
    assert pauses == [1, 2, 4, 8, 8, 8]
    assert queue.failures("one") == 6
    assert queue.get() == "one"
    queue.add_rate_limited("one")
    queue.done("one")
    queue.add("one")  # something has changed
    assert queue.seconds_to_next() == (8 if rests_after_failure else 0)
    queue.forget("one")
    assert queue.failures("one") == 0


def test_a_key_that_comes_up_again_and_again_does_not_keep_others_waiting() -> None:
    queue, clock = a_queue()
    queue.add("busy")
    queue.add_after("quiet", 0.1)
    taken = []
    for _ in range(3):
        clock[0] += 0.1
        key = queue.get()
        assert key is not None
        taken.append(key)
        if key == "busy":
            queue.add(key)
        queue.done(key)
    assert "quiet" in taken


def test_a_removed_key_does_not_come() -> None:
    queue, _ = a_queue()
    queue.add("one")
    queue.add("two")
    queue.remove("one")
    assert queue.get() == "two"
    queue.add("two")
    queue.remove("two")
    queue.done("two")
    assert queue.seconds_to_next() == math.inf
    queue.add("one")
    queue.add_rate_limited("two")
    queue.clear()
    assert (queue.seconds_to_next(), len(queue), queue.failures("two")) == (math.inf, 0, 0)


def test_workers_that_wait_are_woken_by_what_is_added_and_by_the_end() -> None:
    queue: WorkQueue[str] = WorkQueue()
    taken: list[str | None] = []
    threads = [threading.Thread(target=lambda: taken.append(queue.get(30))) for _ in range(3)]
    for thread in threads:
        thread.start()
    queue.add("a")
    queue.add("b")
    give_up = time.monotonic() + 10
    while len(taken) < 2 and time.monotonic() < give_up:
        time.sleep(0.001)
    assert sorted(map(str, taken)) == ["a", "b"]
    queue.shut_down()
    for thread in threads:
        thread.join(10)
    assert taken[2] is None
    assert queue.get() is None


_STEPS = st.lists(st.tuples(st.sampled_from("atdrw"), st.integers(0, 3), st.integers(0, 9)))


@given(steps=_STEPS)
def test_nothing_that_was_added_is_lost(steps: list[tuple[str, int, int]]) -> None:
    queue, clock = a_queue()
    wanted: set[str] = set()
    taken: list[str] = []
    for what, number, seconds in steps:
        key = f"key-{number}"
        if what == "a":
            queue.add_after(key, float(seconds))
            wanted.add(key)
        elif what == "w":
            queue.rest(key, float(seconds))
        elif what == "t":
            clock[0] += seconds
            found = queue.get()
            if found is not None:
                assert found not in taken
                taken.append(found)
                wanted.discard(found)
        elif what == "d" and taken:
            queue.done(taken.pop())
        elif what == "r":
            queue.remove(key)
            wanted.discard(key)
    while taken:
        queue.done(taken.pop())
    clock[0] += 100.0
    left = set()
    while (found := queue.get()) is not None:
        left.add(found)
    assert left == wanted
