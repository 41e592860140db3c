"""The judge of cluster quotas adds up the pods of their namespaces, and of no others."""

from __future__ import annotations

import pytest

from tests.torture.observer.clusters import ClusterJudge
from tests.torture.observer.histories import SPACE, History

CPU = {"requests.cpu": "1"}
OTHER = "team-b"


def judged(history: History) -> ClusterJudge:
    judge = ClusterJudge()
    for fact in history.facts:
        judge.feed(fact)
    return judge


def found(history: History) -> list[tuple[int, str, str]]:
    return [(each.revision, each.namespace, each.pod) for each in judged(history).findings]


@pytest.fixture
def history() -> History:
    """A cluster quota of two cores, long there, with two namespaces; one pod runs in each."""
    history = History()
    history.cluster_quota({"requests.cpu": "2"}, SPACE, OTHER)
    history.wait(100)
    history.pod("a", CPU, assigned=True)
    history.pod("b", CPU, assigned=True, namespace=OTHER)
    return history


def test_a_full_quota_is_no_fault(history: History) -> None:
    judge = judged(history)
    assert (judge.findings, judge.charges, judge.excused) == ([], 2, 0)


def test_one_pod_too_many_in_any_namespace_is_found(history: History) -> None:
    history.pod("c", {"requests.cpu": "1n"}, assigned=True, namespace=OTHER)
    assert found(history) == [(history.revision, OTHER, "c")]


def test_growth_is_found_and_shrinking_is_not(history: History) -> None:
    history.resize("a", {"requests.cpu": "1500m"})
    grown = history.revision
    history.resize("a", {"requests.cpu": "1200m"})
    assert found(history) == [(grown, SPACE, "a")]


def test_other_namespaces_and_pods_without_a_node_do_not_count(history: History) -> None:
    history.pod("c", CPU, assigned=True, namespace="team-c")
    history.pod("d", CPU)
    assert found(history) == []


@pytest.mark.parametrize("name", ["a", "b"])
def test_what_has_ended_makes_room(history: History, name: str) -> None:
    history.end(name)
    history.pod("c", CPU, assigned=True)
    assert found(history) == []


def test_what_should_long_be_gone_does_not_count(history: History) -> None:
    history.delete_later("b", 5)
    history.wait(10)
    history.pod("c", CPU, assigned=True)
    assert found(history) == []


@pytest.mark.parametrize(("seconds", "is_fault"), [(20, False), (40, True)])
def test_a_limit_that_was_lowered_excuses_for_the_time_of_a_request(
    history: History, seconds: float, *, is_fault: bool
) -> None:
    history.cluster_quota({"requests.cpu": "3"}, SPACE, OTHER)
    history.wait(100)
    history.cluster_quota({"requests.cpu": "2"}, SPACE, OTHER)
    history.wait(seconds)
    history.pod("c", CPU, assigned=True)
    assert bool(found(history)) is is_fault
    assert judged(history).excused == (not is_fault)


def test_a_namespace_that_comes_in_brings_what_it_has_and_charges_from_then_on(
    history: History,
) -> None:
    history.pod("c", CPU, assigned=True, namespace="team-c")
    history.cluster_quota({"requests.cpu": "2"}, SPACE, OTHER, "team-c")
    history.wait(40)
    assert found(history) == []
    history.pod("d", CPU, assigned=True)
    assert found(history) == [(history.revision, SPACE, "d")]


def test_a_namespace_that_was_out_is_excused_for_the_time_of_a_request(history: History) -> None:
    history.move(deferred=False)
    history.wait(60)
    history.move()
    history.wait(20)
    history.pod("c", CPU, assigned=True)
    assert found(history) == []
    history.wait(20)
    history.pod("d", CPU, assigned=True)
    assert len(found(history)) == 1


def test_a_quota_that_is_gone_charges_nothing(history: History) -> None:
    history.cluster_quota({"requests.cpu": "2"}, SPACE, OTHER, is_there=False)
    history.pod("c", CPU, assigned=True)
    assert found(history) == []
    assert judged(history).charges == 2
