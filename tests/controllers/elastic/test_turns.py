"""Turns of pools on the one thread that plans for all of them."""

from __future__ import annotations

import pytest

from webhook.controllers.elastic.reclaim_planner import Turns


class Thread:
    """A thread that does what takes some seconds, and notes it."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds
        self.now = 0.0
        self.turns = Turns(lambda: self.now)

    def look(self, pool: str, items: str) -> str:
        """Do for a pool what has its turn; return it."""
        done = ""
        for item in self.turns.of(pool, items):
            if item not in self.turns.had[pool]:
                self.turns.had[pool].add(item)
                self.now += self.seconds.get(item, 0.0)
                done += item
        return done


def test_what_is_quick_is_done_at_every_look() -> None:
    thread = Thread(a=0.3, b=0.3, c=0.3)
    assert [thread.look("p", "abc") for _ in range(3)] == ["abc"] * 3


def test_a_pool_that_takes_long_rests_while_others_have_their_turn() -> None:
    thread = Thread(a=1.5, b=1.5)
    assert (thread.look("slow", "ab"), thread.look("other", "xy")) == ("a", "xy")
    assert thread.now == 1.5
    thread.now += 4.4
    assert (thread.look("slow", "ab"), thread.look("other", "xy")) == ("", "xy")
    thread.now += 0.2
    assert (thread.look("slow", "ab"), thread.look("other", "xy")) == ("b", "xy")


def test_a_pool_goes_on_where_it_was_and_then_begins_again() -> None:
    thread, done = Thread(a=2, b=2), ""
    for _ in range(12):
        done += thread.look("p", "abcd") + "."
        thread.now += 5
    assert done.startswith("a.b.cd.a.b.cd.")


def test_many_that_are_quick_take_long_together() -> None:
    thread = Thread(**dict.fromkeys("abcdef", 0.4))
    assert thread.look("p", "abcdef") == "abc"
    thread.now += 5
    assert thread.look("p", "abcdef") == "def"


@pytest.mark.parametrize(("took", "rest"), [(1.2, 3.6), (100.0, 5.0)])
def test_a_rest_is_as_long_as_its_turn_asks_for_within_a_bound(took: float, rest: float) -> None:
    thread = Thread(a=took)
    assert thread.look("p", "ab") == "a"
    thread.now += rest - 0.01
    assert thread.look("p", "ab") == ""
    thread.now += 0.02
    assert thread.look("p", "ab") == "b"


def test_a_rest_is_over_in_time_while_others_evict() -> None:
    now, evicting = 0.0, 0.0
    turns = Turns(lambda: now, lambda: now - evicting)
    for item in turns.of("slow", "ab"):
        turns.had["slow"].add(item)
        now += 2.0
    now, evicting = now + 5.1, evicting + 5.0  # of other pools
    assert [item for item in turns.of("slow", "ab") if item not in turns.had["slow"]] == ["b"]


def test_the_seconds_of_evictions_are_no_part_of_a_turn() -> None:
    now, evicting = 0.0, 0.0
    turns, done = Turns(lambda: now, lambda: now - evicting), ""
    for item in turns.of("p", "ab"):
        turns.had["p"].add(item)
        now, evicting, done = now + 2.0, evicting + 2.0, done + item
    assert done == "ab"
