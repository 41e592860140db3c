"""Released pods that may preempt others take no more than a quota while they have no node."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_pod, a_quota
from tests.quota.queue.queue_criteria import GATE, ledger_of, terms_of
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.elastic.owners_first import waiting_for_elastic
from webhook.quota.ledger.ledger import Ledger
from webhook.quota.objects.compact import compact_pod
from webhook.quota.queue.preemptors import unbound_preemptors
from webhook.quota.queue.queued_pods import (
    CycleResult,
    PendingReason,
    QueueCriteria,
    QueuedPod,
    to_queued_pod,
)
from webhook.quota.queue.release_order import run_cycle

HIGH: Final = 1000
POOL: Final = "cdq/epool.default"
TERMS: Final = terms_of(a_quota("p1", hard={"requests.cpu": "4"}))


def of(
    name: str, cpu: str, *, gated: bool, terms: QueueCriteria = TERMS, **fields: Any
) -> QueuedPod:
    gates = [{"name": GATE}] if gated else []
    fields = {"priority": HIGH, "schedulingGates": gates, **fields}
    made = a_pod(name=name, uid=f"uid-{name}", requests={"cpu": cpu}, **fields)
    return to_queued_pod(compact_pod(made), GATE, since=1, terms=terms)


def waiting(name: str, cpu: str = "1", **fields: Any) -> QueuedPod:
    return of(name, cpu, gated=True, **fields)


def unbound(*cpu: str, **fields: Any) -> list[QueuedPod]:
    return [of(f"u{n}", each, gated=False, **fields) for n, each in enumerate(cpu, 1)]


def run(
    line: list[QueuedPod], in_flight: list[QueuedPod], ledger: Ledger | None = None
) -> CycleResult:
    preemptors = unbound_preemptors(in_flight, TERMS)
    known = ledger_of(TERMS) if ledger is None else ledger
    return run_cycle(known, line, TERMS.rules, room=1000, preemptors=preemptors)


def names(waiters: tuple[QueuedPod, ...]) -> list[str]:
    return [one.pod.name for one in waiters]


def test_no_more_are_released_than_fit_beside_those_without_a_node() -> None:
    cycle = run([waiting("a"), waiting("b")], unbound("1", "2"))
    assert names(cycle.released) == ["a"]
    (held,) = cycle.pending.values()
    assert (held.reason, held.quota, held.position, held.blocking) == (
        PendingReason.PREEMPTORS_UNBOUND, "p1", 0, frozenset(),
    )  # fmt: skip
    assert held.message == (
        "released pods that may preempt others have no node yet, and leave too little of quota p1"
        " for one more of them: requested: requests.cpu=1, without a node: requests.cpu=4,"
        " limited: requests.cpu=4"
    )


def test_others_go_past_them() -> None:
    line = [
        waiting("high"),
        waiting("polite", preemptionPolicy="Never"),
        waiting("usual", priority=0),
        waiting("low", priority=-5),
        waiting("unset", priority=None),
    ]
    cycle = run(line, unbound("4"))
    assert names(cycle.released) == ["polite", "usual", "low", "unset"]


def test_those_of_which_none_is_evicted_do_not_count() -> None:
    assert names(run([waiting("a")], unbound("4", priority=0)).released) == ["a"]
    assert names(run([waiting("a")], unbound("4", preemptionPolicy="Never")).released) == ["a"]


def test_by_its_pod_group_one_of_no_priority_may_preempt() -> None:
    group: dict[str, Any] = {"schedulingGroup": {"podGroupName": "train"}, "priority": 0}
    polite = {**group, "preemptionPolicy": "Never"}
    assert names(run([waiting("a", **group)], unbound("4", **group)).released) == []
    assert names(run([waiting("a", **polite)], unbound("4", **group)).released) == ["a"]
    assert names(run([waiting("a", **group)], unbound("4", **polite)).released) == ["a"]


def test_what_it_does_not_take_does_not_keep_it() -> None:
    preemptors = unbound_preemptors(unbound("4"), TERMS)
    assert preemptors.blocker(waiting("a", "0")) is None
    assert preemptors.blocker(waiting("a", "1m")) is not None


def test_one_that_does_not_fit_beside_what_is_used_says_so_and_holds_those_behind_it() -> None:
    ledger = ledger_of(TERMS, p1={"requests.cpu": "4"})
    cycle = run([waiting("a"), waiting("b")], unbound("4"), ledger)
    assert [one.reason for one in cycle.pending.values()] == [
        PendingReason.QUOTA_EXCEEDED,
        PendingReason.BEHIND,
    ]


@pytest.mark.parametrize("name", [POOL, "cdq/eq.team-a.gold"])
def test_nothing_is_reclaimed_for_one_that_lacks_no_more_than_elastic_quota(name: str) -> None:
    elastic = terms_of(a_quota(name, hard={"requests.cpu": "4"}))
    line = [waiting("a", terms=elastic), waiting("b", terms=elastic)]
    preemptors = unbound_preemptors(unbound("4", terms=elastic), elastic)
    ledger = ledger_of(elastic, **{name: {"requests.cpu": "4"}})
    cycle = run_cycle(ledger, line, elastic.rules, room=9, preemptors=preemptors)
    reasons = [one.reason for one in cycle.pending.values()]
    assert reasons == [PendingReason.PREEMPTORS_UNBOUND] * 2
    assert waiting_for_elastic(cycle.pending) == {}


def test_one_that_lacks_elastic_quota_as_well_holds_those_behind_it() -> None:
    """Smaller ones would go past it, and keep it without room, for as long as they come."""
    pool = terms_of(a_quota(POOL, hard={"requests.cpu": "10"}))
    line = [waiting("big", "9", terms=pool), waiting("small", terms=pool)]
    preemptors = unbound_preemptors(unbound("1", "1", terms=pool), pool)
    ledger = ledger_of(pool, **{POOL: {"requests.cpu": "9"}})
    cycle = run_cycle(ledger, line, pool.rules, room=9, preemptors=preemptors)
    assert [one.reason for one in cycle.pending.values()] == [
        PendingReason.PREEMPTORS_UNBOUND,
        PendingReason.BEHIND,
    ]
    assert waiting_for_elastic(cycle.pending) == {}


def test_one_in_flight_that_never_fits_keeps_no_other_waiting() -> None:
    assert names(run([waiting("a")], unbound("5", "3")).released) == ["a"]


def reserved(ledger: Ledger, *pods: QueuedPod) -> Ledger:
    """The ledger after a cycle that released some pods."""
    found = run_cycle(ledger, pods, TERMS.rules, room=9).ledger
    assert found is not None
    return found


def test_one_whose_gate_is_about_to_go_counts_wherever_it_stands() -> None:
    last = waiting("z")
    ledger = reserved(ledger_of(TERMS), last)
    cycle = run([waiting("a"), last], unbound("3"), ledger)
    assert (names(cycle.released), names(cycle.reserved)) == ([], ["z"])


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([HIGH, 0, -1])), max_size=8),
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([HIGH, 0])), max_size=5),
    st.integers(0, 4),
)
def test_they_never_take_more_and_keep_no_other_waiting(
    gated: list[tuple[int, int]], in_flight: list[tuple[int, int]], used: int
) -> None:
    line = [waiting(f"w{n}", f"{cpu}", priority=rank) for n, (cpu, rank) in enumerate(gated)]
    flying = [
        of(f"f{n}", f"{cpu}", gated=False, priority=rank) for n, (cpu, rank) in enumerate(in_flight)
    ]
    ledger = ledger_of(TERMS, p1={"requests.cpu": f"{used}"})
    cycle = run(line, flying, ledger)

    going = [one for one in cycle.released if one.pod.may_preempt]
    if going:
        without_node = [*going, *[one for one in flying if one.pod.may_preempt]]
        assert cpu_of(without_node) <= Quantity.parse("4")
    kept = {
        uid for uid, one in cycle.pending.items() if one.reason is PendingReason.PREEMPTORS_UNBOUND
    }
    without = run_cycle(
        ledger, [one for one in line if one.uid not in kept], TERMS.rules, room=1000
    )
    assert names(without.released) == names(cycle.released)
    if not flying:
        assert not kept


def cpu_of(pods: list[QueuedPod]) -> Quantity:
    return sum((one.claim.usage["requests.cpu"] for one in pods if one.claim), ZERO)
