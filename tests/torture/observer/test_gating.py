"""The judge of gates reports planted faults, exactly those, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.torture.observer.amounts import NANO
from tests.torture.observer.facts import (
    Account,
    LedgerFact,
    PodFact,
    QuotaFact,
    SpaceFact,
    elastic_limits,
)
from tests.torture.observer.gating import GateJudge, Shared, Waiting, left_behind
from tests.torture.observer.histories import History

CPU = {"requests.cpu": "1"}


def found(history: History) -> list[tuple[str, int, str]]:
    judge = GateJudge()
    for fact in history.facts:
        judge.feed(fact)
    return [(each.kind, each.revision, each.pod) for each in judge.findings]


@pytest.fixture
def history() -> History:
    """A quota, long there, and pod `a` that waits behind the gate."""
    history = History()
    history.move()
    history.quota("q", {"requests.cpu": "2"})
    history.pod("a", CPU, gated=True)
    history.wait(100)
    return history


def test_a_gate_that_goes_by_itself_is_found(history: History) -> None:
    history.ungate("a")
    assert found(history) == [("gate gone without a promise", history.revision, "a")]


def test_a_gate_may_go_when_that_is_promised(history: History) -> None:
    history.ledger({}, promised=["a"])
    history.ungate("a")
    assert found(history) == []


@pytest.mark.parametrize(("seconds", "is_fault"), [(30, False), (40, True)])
def test_a_patch_may_be_late_by_the_time_of_a_request(
    history: History, seconds: float, *, is_fault: bool
) -> None:
    history.ledger({}, promised=["a"])
    history.wait(200)
    history.ledger({})
    history.wait(seconds)
    history.ungate("a")
    assert bool(found(history)) is is_fault


def test_the_promise_of_another_pod_is_none(history: History) -> None:
    history.ledger({}, promised=["b"])
    history.ungate("a")
    assert len(found(history)) == 1


@pytest.mark.parametrize(("deferred", "paced"), [(False, True), (True, False)])
def test_a_gate_may_go_where_nothing_gates(
    history: History, *, deferred: bool, paced: bool
) -> None:
    history.move(deferred=deferred, paced=paced)
    history.wait(300)
    history.move()
    history.wait(30)
    history.ungate("a")
    assert found(history) == []
    history.pod("b", CPU, gated=True)
    history.wait(40)
    history.ungate("b")
    assert len(found(history)) == 1


def test_a_gate_may_go_when_no_quota_charges_the_pod(history: History) -> None:
    history.remove_quota("q")
    history.ungate("a")
    assert found(history) == []


def test_a_pod_that_takes_nothing_may_go(history: History) -> None:
    history.pod("idle", {"requests.cpu": "0"}, gated=True)
    history.ungate("idle")
    assert found(history) == []


def test_a_quota_that_was_not_there_excuses_and_one_of_two_does_not(history: History) -> None:
    history.quota("new", {"requests.cpu": "5"})
    history.ungate("a")
    assert len(found(history)) == 1  # of q it needed a promise
    fresh = History()
    fresh.pod("a", CPU, gated=True)
    fresh.quota("new", {"requests.cpu": "5"})
    fresh.wait(20)
    fresh.ungate("a")
    assert found(fresh) == []


def test_a_pod_with_a_node_behind_the_gate_is_found(history: History) -> None:
    history.bind("a")
    assert found(history) == [("assigned behind the gate", history.revision, "a")]


def test_a_pod_that_goes_with_its_gate_is_no_fault(history: History) -> None:
    history.end("a")
    assert found(history) == []


def test_a_pod_may_need_no_gate_where_the_namespace_says_so(history: History) -> None:
    history.move(lets_through=True)
    history.pod("b", CPU, let_through=True)
    history.bind("b")
    history.wait(200)
    history.move()
    history.wait(30)
    history.pod("c", CPU, let_through=True)
    assert found(history) == []


@pytest.mark.parametrize("deferred", [True, False])
def test_a_pod_that_needs_no_gate_elsewhere_is_found_once(
    history: History, *, deferred: bool
) -> None:
    history.move(lets_through=True)
    history.move(deferred=deferred, lets_through=not deferred)
    history.wait(40)
    history.pod("b", CPU, let_through=True)
    revision = history.revision
    history.bind("b")
    assert found(history) == [("let through where nobody is", revision, "b")]


def test_a_pod_that_was_let_through_and_is_gated_is_found(history: History) -> None:
    history.move(lets_through=True)
    history.pod("b", CPU, let_through=True, gated=True)
    assert found(history) == [("let through, and gated", history.revision, "b")]


QUOTA = QuotaFact(
    revision=1, at=1.0, namespace="n", name="q", uid="u", hard={"requests.cpu": 4 * NANO}
)
SPACE = SpaceFact(revision=1, at=1.0, namespace="n")


def pod(name: str, cpu: int, *, is_assigned: bool = False) -> PodFact:
    return PodFact(
        revision=2,
        at=2.0,
        namespace="n",
        name=name,
        uid=name,
        is_assigned=is_assigned,
        is_gated=not is_assigned,
        usage={"requests.cpu": cpu * NANO},
    )


def waiting(name: str, cpu: int, *, priority: int = 0, made: str = "1") -> Waiting:
    raw = {"spec": {"priority": priority}, "metadata": {"creationTimestamp": made}}
    return Waiting.of(pod(name, cpu), raw)


def behind(*line: Waiting, used: int = 2, reserved: int = 0, space: SpaceFact = SPACE) -> list[str]:
    account = Account(uid="u", used={}, reserved={"requests.cpu": reserved * NANO})
    ledger = LedgerFact(revision=3, at=3.0, namespace="n", accounts={"q": account})
    pods = [pod("runs", used, is_assigned=True), *(one.pod for one in line)]
    found = left_behind(space, line, [QUOTA], pods, ledger, at=9.0)
    return [each.quota for each in found]


def test_a_pod_that_fits_does_not_wait() -> None:
    assert behind(waiting("a", 2)) == ["a"]
    assert behind(waiting("a", 3)) == []
    assert behind(waiting("a", 2), reserved=1) == []


def test_a_pod_that_fits_may_wait_behind_one_that_does_not() -> None:
    assert behind(waiting("large", 3), waiting("a", 1, made="2")) == []
    assert behind(waiting("large", 3, made="2"), waiting("a", 1)) == ["a"]
    assert behind(waiting("large", 3, made="2", priority=5), waiting("a", 1)) == []


@pytest.mark.parametrize(("deferred", "paced"), [(False, True), (True, False)])
def test_no_pod_waits_where_nothing_gates(*, deferred: bool, paced: bool) -> None:
    space = replace(SPACE, is_deferred=deferred, is_paced=paced)
    assert behind(waiting("large", 3), space=space) == ["large"]


def elastic(namespace: str, least: int, most: int) -> dict[str, Any]:
    return {
        "metadata": {"namespace": namespace, "uid": namespace},
        "spec": {"min": {"requests.cpu": str(least)}, "max": {"requests.cpu": str(most)}},
    }


def behind_pool(
    one: Waiting, *others: PodFact, most: int = 9, promised: Sequence[str] = ()
) -> list[str]:
    quotas = [elastic("n", 2, most), elastic("m", 2, 9)]
    shared = [
        Shared.of(limit, [one.pod, *others], promised, [one], at=9.0)
        for limit in elastic_limits(quotas)
    ]
    pods = [one.pod, *(pod for pod in others if pod.namespace == "n")]
    found = left_behind(SPACE, [one], [QUOTA], pods, None, shared, at=9.0)
    return [each.quota for each in found]


def test_a_pod_may_wait_for_a_pool_that_others_use() -> None:
    there = replace(pod("there", 3, is_assigned=True), namespace="m")
    assert behind_pool(waiting("a", 2), there) == []
    assert behind_pool(waiting("a", 1), there) == ["a"]
    assert behind_pool(waiting("a", 1), there, most=0) == []


def test_what_is_promised_is_taken_of_a_pool() -> None:
    soon = replace(pod("soon", 3), namespace="m")
    assert behind_pool(waiting("a", 2), soon) == ["a"]
    assert behind_pool(waiting("a", 2), soon, promised=["soon"]) == []
    ended = replace(soon, is_live=False)
    assert behind_pool(waiting("a", 2), ended, promised=["soon"]) == ["a"]


def test_a_pod_may_wait_for_a_younger_one_that_lacks_the_pool() -> None:
    pool, *_ = elastic_limits([elastic("n", 2, 9), elastic("m", 2, 9)])
    for cpu, expected in ((5, []), (4, ["a"])):
        one, young = waiting("a", 1), waiting("young", cpu, made="2")
        young = replace(young, pod=replace(young.pod, namespace="m"))
        limit = Shared.of(pool, [one.pod, young.pod], (), [one, young], at=9.0)
        shared = [limit.with_owners_first()]
        found = left_behind(SPACE, [one], [QUOTA], [one.pod], None, shared, at=9.0)
        assert [each.quota for each in found] == expected


def test_a_pod_may_wait_behind_one_of_another_namespace_for_the_same_pool() -> None:
    first, one = waiting("first", 3), waiting("a", 2, made="2")
    first = replace(first, pod=replace(first.pod, namespace="m"))
    pool, *_ = elastic_limits([elastic("n", 2, 9), elastic("m", 1, 9)])
    for before, expected in (((first,), []), ((), ["a"])):
        shared = Shared.of(pool, [one.pod, first.pod], (), [*before, one], at=9.0)
        found = left_behind(SPACE, [one], [QUOTA], [one.pod], None, [shared], at=9.0)
        assert [each.quota for each in found] == expected
