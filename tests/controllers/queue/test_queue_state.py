"""A pod whose bind was refused has its turn again, less and less often."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.builders import a_pod, a_quota
from tests.quota.queue.queue_criteria import GATE, ledger_of, terms_of
from webhook.controllers.queue.gated_pods import GatedPods
from webhook.controllers.queue.queue_state import PodQueueState
from webhook.quota.charging.coverage import CoverageRules
from webhook.quota.charging.deferral import deferred_quotas
from webhook.quota.charging.limited_resources import LimitedResource
from webhook.quota.ledger.ledger import Reservation, ReservationSource
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.quota.queue.queued_pods import (
    CycleResult,
    QueueCriteria,
    QueueingStrategy,
    QueuePolicy,
)
from webhook.quota.queue.release_order import run_cycle
from webhook.state.quota_cache import NamespaceQuotaView

POOL = "cdq/epool.default"
_DENIED = (
    'running Bind plugin "DefaultBinder": admission webhook "bind.deferredquota.io" denied the'
    " request: elastic pool default is used up"
)


class Queue:
    """The queue of one pod whose bind was refused, in a pool of 4 cpu."""

    def __init__(self) -> None:
        said = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError"}
        status = {"conditions": [{**said, "message": _DENIED}]}
        self.pod = Pod.from_object(a_pod(requests={"cpu": "1"}, status=status))
        self.state = PodQueueState(GatedPods())
        self.state.gated_pods.put(self.pod)
        self.state.track(self.pod, 0.0)
        self.terms = terms_of(a_quota(POOL, hard={"requests.cpu": "4"}))

    def outcome(self, now: float, used: str) -> str:
        """Run a cycle, and return whether the pod waits, is reserved for, or has no place."""
        view = NamespaceQuotaView((), self.terms.quotas)
        queue = self.state.ordered(
            self.terms.quotas, view, QueuePolicy(), earliest=float("inf"), now=now
        )
        ledger = ledger_of(self.terms, **{POOL: {"requests.cpu": used}})
        history = self.state.history(now)
        cycle = run_cycle(ledger, queue, QueuePolicy(), room=9, history=history)
        self.state.record(cycle, now)
        if cycle.pending:
            return "waits"
        return "reserved" if cycle.released else "none"


def test_the_pauses_double_from_one_reservation_in_vain_to_the_next() -> None:
    queue = Queue()
    now = 0.0
    for pause in (60.0, 120.0, 240.0):
        assert queue.outcome(now, "4") == "waits"
        assert queue.outcome(now, "3") == "reserved"
        assert queue.outcome(now + pause - 1, "4") == "none"
        now += pause


@pytest.mark.parametrize("is_bound", [True, False])
def test_nothing_is_remembered_of_a_pod_that_has_its_node_or_is_gone(is_bound: bool) -> None:
    queue = Queue()
    queue.outcome(0.0, "4")
    queue.outcome(0.0, "3")
    assert queue.state.retries
    if is_bound:
        queue.state.track(Pod.from_object(a_pod(node="node-1")), 1.0)
    else:
        queue.state.forget(queue.pod.uid)
    assert not queue.state.retries


def test_after_a_cycle_with_nothing_but_such_a_pod_there_is_one_more_to_report() -> None:
    queue = Queue()
    queue.outcome(0.0, "4")
    assert queue.outcome(0.0, "3") == "reserved"
    assert queue.state.record(CycleResult(None), 1.0)
    assert not queue.state.record(CycleResult(None), 2.0)


def test_pods_are_judged_anew_where_quotas_cover_others_and_not_where_more_is_counted() -> None:
    limited = LimitedResource.from_object({"resource": "pods", "matchContains": ["cpu"]})
    policy = QueuePolicy(coverage=CoverageRules(limited=(limited,)))
    state = PodQueueState(GatedPods())

    def judged_by(hard: dict[str, str], used: str) -> QueueCriteria | None:
        quota = a_quota("other", hard=hard, used={"count/configmaps": used})
        every = (ResourceQuota.from_object(quota),)
        deferred = deferred_quotas(every, DEFERRED_KEYS)
        state.ordered(deferred, NamespaceQuotaView(every, deferred), policy, earliest=None, now=0.0)
        return state.criteria

    objects = {"count/configmaps": "9"}
    first = judged_by(objects, "1")
    assert judged_by(objects, "2") is first
    assert judged_by({**objects, "count/secrets": "9"}, "2") is not first


@pytest.mark.parametrize(("quota", "until"), [("p1", 1600.0), (POOL, -math.inf)])
def test_what_a_nominated_pod_holds_is_kept_but_not_of_a_pool_whose_owners_wait(
    quota: str, until: float
) -> None:
    pod = Pod.from_object(a_pod(requests={"cpu": "1"}, status={"nominatedNodeName": "node-1"}))
    state = PodQueueState(GatedPods())
    state.track(pod, 1000.0)
    held = Reservation(pod.uid, pod.name, ReservationSource.BIND, {}, {}, (quota,), 1)
    assert state.kept_until(held, pod, 60.0, 1000.0) == until


@pytest.mark.parametrize("unbound", [0, 2])
def test_a_pod_is_overtaken_as_often_as_any_while_others_are_unbound(unbound: int) -> None:
    """With `BestEffortFIFO` it holds others in the end by what it lacks without them."""
    terms = terms_of(a_quota(POOL, hard={"requests.cpu": "10"}))
    rules = QueuePolicy(order=QueueingStrategy.BEST_EFFORT, max_overtakes=3)
    state = PodQueueState(GatedPods())
    gates = [{"name": GATE}]

    def put(name: str, cpu: str, **fields: Any) -> None:
        made = a_pod(name=name, uid=name, requests={"cpu": cpu}, **fields)
        state.gated_pods.put(Pod.from_object(made))

    for number in range(unbound):
        put(f"unbound-{number}", "1", priority=1000)
    put("big", "9", priority=1000, schedulingGates=gates)
    gone: list[str] = []
    for number in range(6):
        put(f"small-{number}", "1", priority=0, schedulingGates=gates)
        view = NamespaceQuotaView((), terms.quotas)
        queue = state.ordered(terms.quotas, view, rules, earliest=None, now=0.0)
        ledger = ledger_of(terms, **{POOL: {"requests.cpu": "9"}})
        history = state.history(0.0)
        cycle = run_cycle(
            ledger, queue, rules, room=9, history=history, preemptors=state.preemptors
        )
        state.record(cycle, 0.0)
        for one in cycle.released:
            gone.append(one.uid)
            state.gated_pods.remove(one.uid)
    assert gone == ["small-0", "small-1", "small-2"]
