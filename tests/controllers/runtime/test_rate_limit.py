"""So much per second, and a second's worth at once."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest

from webhook.controllers.runtime.rate_limit import ListPauses, SlowNamespaces, TokenBucket
from webhook.kube.api import ApiError, RequestTimeoutError, UnavailableError, UnreachableError


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.rate = 4.0
        self.budget = TokenBucket(lambda: self.rate, lambda: self.now)

    def spend_all(self) -> int:
        spent = 0
        while self.budget.delay() == 0:
            self.budget.take()
            spent += 1
        return spent


def test_a_seconds_worth_may_be_spent_at_once_and_then_as_it_comes() -> None:
    clock = Clock()
    assert clock.spend_all() == 4
    assert clock.budget.delay() == 0.25
    clock.now = 0.5
    assert clock.spend_all() == 2
    clock.now = 100.0
    assert clock.spend_all() == 4


def test_what_was_spent_beyond_is_missing_later() -> None:
    clock = Clock()
    clock.spend_all()
    clock.budget.take()
    clock.now = 0.25
    assert clock.budget.delay() == 0.25


def test_a_rate_of_nothing_allows_nothing_until_it_changes() -> None:
    clock = Clock()
    clock.spend_all()
    clock.rate = 0.0
    clock.now = 1000.0
    assert clock.budget.delay() == math.inf
    clock.rate = 2.0
    clock.now = 1000.5
    assert clock.spend_all() == 1


def test_a_slow_rate_allows_one_at_a_time() -> None:
    clock = Clock()
    clock.spend_all()
    clock.rate = 0.5
    clock.now = 100.0
    assert clock.spend_all() == 1


def test_a_namespace_is_slow_for_longer_each_time_and_then_forgotten() -> None:
    slow, now, pauses = SlowNamespaces(), 5.0, []
    for _ in range(7):
        slow.note_timeout("team-a", now)
        slow.note_timeout("team-a", now)  # of those that were sent before the first was known
        pauses.append(slow.retry_at("team-a") - now)
        assert slow.rests("team-a", now)
        now = slow.retry_at("team-a")
        assert not slow.rests("team-a", now)
        slow.note_timeout("team-b", now)
    assert pauses == [20, 40, 80, 160, 320, 600, 600]
    now += 601
    slow.note_timeout("team-c", now)
    assert list(slow) == ["team-b", "team-c"]
    slow.note_timeout("team-a", now)
    assert slow.retry_at("team-a") == now + 20
    assert slow.retry_at("elsewhere") == 0


def test_a_list_is_followed_by_a_pause_in_proportion_between_two_bounds() -> None:
    now = [100.0]
    pauses = ListPauses(lambda: now[0], factor=2.0, at_least_seconds=1.0, at_most_seconds=30.0)
    for took, pause in ((0.1, 1.0), (4.0, 8.0), (20.0, 30.0)):
        assert pauses.seconds_left("team-a") == 0
        with pauses.measured("team-a"):
            now[0] += took
        assert pauses.seconds_left("team-a") == pytest.approx(pause)
        assert pauses.seconds_left("team-b") == 0
        now[0] += pause
    with pauses.measured("team-a"):
        pass
    pauses.clear()
    assert pauses.seconds_left("team-a") == 0


@pytest.mark.parametrize(
    ("error", "pause"),
    [
        (RequestTimeoutError("no answer within 10 s"), 90.0),
        (UnreachableError("no connection within 10 s"), 5.0),
        (UnavailableError("the server is currently unable to handle the request"), 5.0),
    ],
    ids=["slow", "away", "unavailable"],
)
def test_an_outage_is_no_slowness_of_what_is_listed(error: ApiError, pause: float) -> None:
    now = [100.0]
    pauses = ListPauses(lambda: now[0])
    with suppress(ApiError), pauses.measured():
        now[0] += 10
        raise error
    assert pauses.seconds_left() == pause
