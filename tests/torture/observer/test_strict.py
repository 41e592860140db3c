"""The strict judge counts what is there, and explains what exceeds a limit only by stuck pods."""

from __future__ import annotations

import pytest

from tests.torture.observer.histories import SPACE, History
from tests.torture.observer.strict import StrictJudge, held
from tests.torture.observer.usage import Expression, Traits

CPU = {"requests.cpu": "1"}


@pytest.fixture
def history() -> History:
    """A quota of two cores, long there, that is full."""
    history = History()
    history.quota("all", {"requests.cpu": "2"})
    history.wait(100)
    for name in ("a", "b"):
        history.pod(name, CPU)
        history.bind(name)
    return history


def judged(history: History, *, holds: bool = False, namespace: str = SPACE) -> StrictJudge:
    judge = StrictJudge({namespace}, holds=holds)
    for fact in history.facts:
        judge.feed(fact)
    return judge


def shares(judge: StrictJudge) -> tuple[float, float]:
    return float(judge.highest), float(judge.highest_strictly)


def kinds(judge: StrictJudge) -> list[tuple[str, int]]:
    return [(each.kind, each.revision) for each in judge.findings]


def test_a_full_quota_is_no_fault(history: History) -> None:
    for holds in (False, True):
        judge = judged(history, holds=holds)
        assert kinds(judge) == []
        assert shares(judge) == (1.0, 1.0)
        assert judge.revisions_above == 0


def test_what_exceeds_is_explained_by_a_pod_past_its_grace_period(history: History) -> None:
    history.delete_later("a", 2)
    history.wait(2)
    history.pod("c", CPU, assigned=True)
    judge = judged(history)
    assert kinds(judge) == []
    assert shares(judge) == (1.0, 1.5)
    assert (judge.revisions_above, judge.past) == (1, {"uid-a"})


def test_a_pod_within_its_grace_period_explains_nothing(history: History) -> None:
    history.delete_later("a", 60)
    history.pod("c", CPU, assigned=True)
    assert kinds(judged(history)) == [("over-commit", history.revision)]


def test_more_than_the_stuck_pods_take_is_not_explained(history: History) -> None:
    history.delete_later("a", 2)
    history.wait(2)
    history.pod("c", {"requests.cpu": "1.5"}, assigned=True)
    assert kinds(judged(history)) == [("over-commit", history.revision)]


def test_a_pod_that_is_held_explains_nothing(history: History) -> None:
    history.delete_later("a", 2)
    history.wait(2)
    history.pod("c", CPU, assigned=True)
    assert kinds(judged(history, holds=True)) == [("over-commit of what is held", history.revision)]


def test_a_sum_that_exceeds_is_found_once_until_it_does_not_any_more(history: History) -> None:
    history.pod("c", CPU, assigned=True)
    first = history.revision
    history.pod("d", CPU)
    history.end("c")
    history.bind("d")
    assert kinds(judged(history)) == [("over-commit", first), ("over-commit", history.revision)]


def test_what_has_ended_counts_in_no_way_and_what_is_elsewhere_neither(history: History) -> None:
    history.end("a")
    history.pod("c", CPU, assigned=True)
    history.pod("d", {"requests.cpu": "9"}, assigned=True, namespace="elsewhere")
    assert kinds(judged(history, holds=True)) == []


def test_every_quota_is_judged_for_the_pods_that_it_selects(history: History) -> None:
    history.quota("short", {"requests.cpu": "1"}, Expression("Terminating"))
    history.flip("a", Traits(has_deadline=True))
    assert kinds(judged(history)) == []
    history.flip("b", Traits(has_deadline=True))
    assert [(each.quota, each.pod) for each in judged(history).findings] == [("short", "b")]


def test_time_releases_no_pod_that_is_held(history: History) -> None:
    history.delete_later("a", 2)
    history.wait(2)
    history.pod("c", CPU, assigned=True)
    assert held(history.facts[0]) is history.facts[0]
    strictly = History(facts=[held(fact) for fact in history.facts])
    assert history.judge().findings == []
    assert [each.kind for each in strictly.judge().findings] == ["over-commit"]
