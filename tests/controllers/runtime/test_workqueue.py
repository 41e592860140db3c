"""Keys come when they are due, to one thread at a time, and none waits behind a busy one."""

from __future__ import annotations

import math
import threading
import time

from hypothesis import given
from hypothesis import strategies as st

from webhook.controllers.runtime.workqueue import DelayingQueue


def an_agenda() -> tuple[DelayingQueue[str], list[float]]:
    clock = [0.0]
    return DelayingQueue(lambda: clock[0]), clock


def test_keys_come_in_the_order_of_their_moments_and_not_before() -> None:
    workqueue, clock = an_agenda()
    workqueue.add_at("late", 2.0)
    workqueue.add_at("soon", 1.0)
    assert workqueue.get(0) is None
    clock[0] = 5.0
    assert [workqueue.get(0), workqueue.get(0), workqueue.get(0)] == ["soon", "late", None]


def test_of_several_moments_the_earliest_counts() -> None:
    workqueue, _ = an_agenda()
    for moment in (3.0, 1.0, 2.0):
        workqueue.add_at("one", moment)
    assert (workqueue.next_at(), len(workqueue)) == (1.0, 1)


def test_a_key_is_given_to_one_thread_at_a_time() -> None:
    workqueue, _ = an_agenda()
    workqueue.add_at("one", 0.0)
    assert workqueue.get(0) == "one"
    workqueue.add_at("one", 0.0)
    assert workqueue.get(0) is None
    workqueue.done("one")
    assert workqueue.get(0) == "one"


def test_what_was_put_meanwhile_waits_for_the_pause() -> None:
    workqueue, _ = an_agenda()
    workqueue.add_at("one", 0.0)
    workqueue.get(0)
    workqueue.add_at("one", 0.0)
    workqueue.done("one", requeue_at=10.0, not_before=0.5)
    assert workqueue.next_at() == 0.5


def test_a_key_that_comes_up_again_and_again_does_not_keep_others_waiting() -> None:
    workqueue, clock = an_agenda()
    workqueue.add_at("busy", 0.0)
    workqueue.add_at("quiet", 0.1)
    given = []
    for _ in range(3):
        clock[0] += 0.1
        key = workqueue.get(0)
        assert key is not None
        given.append(key)
        workqueue.done(key, requeue_at=clock[0] if key == "busy" else None)
    assert "quiet" in given


def test_a_removed_key_does_not_come() -> None:
    workqueue, _ = an_agenda()
    workqueue.add_at("one", 0.0)
    workqueue.add_at("two", 0.0)
    workqueue.forget("one")
    assert workqueue.get(0) == "two"
    workqueue.add_at("two", 0.0)
    workqueue.forget("two")
    workqueue.done("two")
    assert workqueue.next_at() == math.inf


def test_who_waits_is_woken_by_what_is_put_and_by_the_end() -> None:
    workqueue: DelayingQueue[str] = DelayingQueue()
    got: list[str | None] = []
    threads = [threading.Thread(target=lambda: got.append(workqueue.get(30))) for _ in range(3)]
    for thread in threads:
        thread.start()
    workqueue.add_at("a", 0.0)
    workqueue.add_at("b", 0.0)
    give_up = time.monotonic() + 10
    while len(got) < 2 and time.monotonic() < give_up:
        time.sleep(0.001)
    assert sorted(map(str, got)) == ["a", "b"]
    workqueue.shut_down()
    for thread in threads:
        thread.join(10)
    assert got[2] is None
    assert workqueue.get(0) is None


_STEPS = st.lists(st.tuples(st.sampled_from("ptdr"), st.integers(0, 3), st.integers(0, 9)))


@given(steps=_STEPS)
def test_nothing_that_was_put_is_lost(steps: list[tuple[str, int, int]]) -> None:
    workqueue, clock = an_agenda()
    wanted: set[str] = set()
    taken: list[str] = []
    for what, number, moment in steps:
        key = f"key-{number}"
        if what == "p":
            workqueue.add_at(key, float(moment))
            wanted.add(key)
        elif what == "t":
            clock[0] = max(clock[0], float(moment))
            found = workqueue.get(0)
            if found is not None:
                assert found not in taken
                taken.append(found)
                wanted.discard(found)
        elif what == "d" and taken:
            workqueue.done(taken.pop())
        elif what == "r":
            workqueue.forget(key)
            wanted.discard(key)
    while taken:
        workqueue.done(taken.pop())
    clock[0] = 100.0
    left = set()
    while (found := workqueue.get(0)) is not None:
        left.add(found)
    assert left == wanted
