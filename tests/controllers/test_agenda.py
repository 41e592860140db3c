"""Keys come when they are due, to one thread at a time, and none waits behind a busy one."""

from __future__ import annotations

import math
import threading
import time

from hypothesis import given
from hypothesis import strategies as st

from webhook.controllers.agenda import Agenda


def an_agenda() -> tuple[Agenda[str], list[float]]:
    clock = [0.0]
    return Agenda(lambda: clock[0]), clock


def test_keys_come_in_the_order_of_their_moments_and_not_before() -> None:
    agenda, clock = an_agenda()
    agenda.put("late", 2.0)
    agenda.put("soon", 1.0)
    assert agenda.take(0) is None
    clock[0] = 5.0
    assert [agenda.take(0), agenda.take(0), agenda.take(0)] == ["soon", "late", None]


def test_of_several_moments_the_earliest_counts() -> None:
    agenda, _ = an_agenda()
    for moment in (3.0, 1.0, 2.0):
        agenda.put("one", moment)
    assert (agenda.next_moment(), len(agenda)) == (1.0, 1)


def test_a_key_is_given_to_one_thread_at_a_time() -> None:
    agenda, _ = an_agenda()
    agenda.put("one", 0.0)
    assert agenda.take(0) == "one"
    agenda.put("one", 0.0)
    assert agenda.take(0) is None
    agenda.done("one")
    assert agenda.take(0) == "one"


def test_what_was_put_meanwhile_waits_for_the_pause() -> None:
    agenda, _ = an_agenda()
    agenda.put("one", 0.0)
    agenda.take(0)
    agenda.put("one", 0.0)
    agenda.done("one", again=10.0, not_before=0.5)
    assert agenda.next_moment() == 0.5


def test_a_key_that_comes_up_again_and_again_does_not_keep_others_waiting() -> None:
    agenda, clock = an_agenda()
    agenda.put("busy", 0.0)
    agenda.put("quiet", 0.1)
    given = []
    for _ in range(3):
        clock[0] += 0.1
        key = agenda.take(0)
        assert key is not None
        given.append(key)
        agenda.done(key, again=clock[0] if key == "busy" else None)
    assert "quiet" in given


def test_a_removed_key_does_not_come() -> None:
    agenda, _ = an_agenda()
    agenda.put("one", 0.0)
    agenda.put("two", 0.0)
    agenda.remove("one")
    assert agenda.take(0) == "two"
    agenda.put("two", 0.0)
    agenda.remove("two")
    agenda.done("two")
    assert agenda.next_moment() == math.inf


def test_who_waits_is_woken_by_what_is_put_and_by_the_end() -> None:
    agenda: Agenda[str] = Agenda()
    got: list[str | None] = []
    threads = [threading.Thread(target=lambda: got.append(agenda.take(30))) for _ in range(3)]
    for thread in threads:
        thread.start()
    agenda.put("a", 0.0)
    agenda.put("b", 0.0)
    give_up = time.monotonic() + 10
    while len(got) < 2 and time.monotonic() < give_up:
        time.sleep(0.001)
    assert sorted(map(str, got)) == ["a", "b"]
    agenda.close()
    for thread in threads:
        thread.join(10)
    assert got[2] is None
    assert agenda.take(0) is None


_STEPS = st.lists(st.tuples(st.sampled_from("ptdr"), st.integers(0, 3), st.integers(0, 9)))


@given(steps=_STEPS)
def test_nothing_that_was_put_is_lost(steps: list[tuple[str, int, int]]) -> None:
    agenda, clock = an_agenda()
    wanted: set[str] = set()
    taken: list[str] = []
    for what, number, moment in steps:
        key = f"key-{number}"
        if what == "p":
            agenda.put(key, float(moment))
            wanted.add(key)
        elif what == "t":
            clock[0] = max(clock[0], float(moment))
            found = agenda.take(0)
            if found is not None:
                assert found not in taken
                taken.append(found)
                wanted.discard(found)
        elif what == "d" and taken:
            agenda.done(taken.pop())
        elif what == "r":
            agenda.remove(key)
            wanted.discard(key)
    while taken:
        agenda.done(taken.pop())
    clock[0] = 100.0
    left = set()
    while (found := agenda.take(0)) is not None:
        left.add(found)
    assert left == wanted
