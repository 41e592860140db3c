"""Pods that a scheduler refused for their quota are touched when there is room for them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.admission.handlers.harness import a_namespace, eventually, new_cluster, opt_out
from tests.builders import a_quota
from tests.controllers.controller_harness import NAMESPACE, ControllerHarness
from tests.controllers.requeue.requeue_harness import NO_NODE, REFUSED, RequeueHarness
from tests.reactions import Call, preceded_by, unavailable
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.kube.api import NAMESPACES, PODS, RESOURCE_QUOTAS
from webhook.quota.queue.queued_pods import QueuePolicy
from webhook.state.well_known import SCHEDULING_GATE

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
AGAIN = ControllerTimings().requeue_interval_seconds


@pytest.fixture
def requeue_harness() -> Iterator[RequeueHarness]:
    """A quota of 2 cpu that one pod fills."""
    cluster = new_cluster()
    cluster.load([(NAMESPACES, a_namespace()), (RESOURCE_QUOTAS, a_quota("p1"))])
    harness = ControllerHarness(cluster)
    made = RequeueHarness(harness)
    harness.start()
    try:
        made.run_pod("first")
        harness.step()
        yield made
    finally:
        harness.stop()


def test_a_pod_without_room_is_left_alone(requeue_harness: RequeueHarness) -> None:
    requeue_harness.reject_pod("a")
    assert requeue_harness.reconcile() == []
    assert requeue_harness.reconcile(after=3600) == []
    assert requeue_harness.reads == []


def test_room_wakes_as_many_as_fit_in_the_order_of_the_line(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.reject_pod("c", "a", "b")
    requeue_harness.reject_pod("high", priority=1000)
    assert requeue_harness.reconcile() == []
    requeue_harness.harness.finish("first")
    assert requeue_harness.reconcile() == ["high", "c"]
    assert requeue_harness.annotation("high").startswith("2026-05-04T12:")
    assert requeue_harness.annotation("a") == ""
    assert requeue_harness.reconcile() == []


def test_a_raised_quota_wakes(requeue_harness: RequeueHarness) -> None:
    requeue_harness.reject_pod("a", cpu="3")
    assert requeue_harness.reconcile() == []
    requeue_harness.set_quota("5")
    assert requeue_harness.reconcile() == ["a"]


def test_one_that_does_not_fit_holds_no_other(requeue_harness: RequeueHarness) -> None:
    requeue_harness.reject_pod("large", cpu="2")
    requeue_harness.reject_pod("small")
    requeue_harness.set_quota("3")
    assert requeue_harness.reconcile() == ["small"]


def test_no_pod_is_woken_for_room_that_a_woken_pod_takes(requeue_harness: RequeueHarness) -> None:
    requeue_harness.reject_pod("a", "b", "c")
    requeue_harness.set_quota("3")
    assert requeue_harness.reconcile() == ["a"]
    requeue_harness.harness.pod("other", "0")
    assert requeue_harness.reconcile(after=1) == []
    requeue_harness.harness.reserve("a")
    assert requeue_harness.reconcile(after=1) == []
    requeue_harness.harness.bind("a")
    assert requeue_harness.reconcile(after=1) == []
    assert requeue_harness.reconcile(after=5) == []
    requeue_harness.set_quota("4")
    assert requeue_harness.reconcile(after=1) == ["b"]


def test_room_that_a_woken_pod_does_not_take_is_for_the_next(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.reject_pod("a", "b")
    requeue_harness.set_quota("3")
    assert requeue_harness.reconcile() == ["a"]
    requeue_harness.set_condition("a", NO_NODE)
    assert requeue_harness.reconcile() == ["b"]
    assert requeue_harness.reconcile(after=1000) == ["b"]
    assert "a" not in requeue_harness.touched[1:]


def test_one_that_is_not_heard_of_is_woken_again_less_and_less_often(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.reject_pod("a")
    requeue_harness.set_quota("3")
    assert requeue_harness.reconcile() == ["a"]
    assert requeue_harness.reconcile(after=AGAIN - 1) == []
    assert requeue_harness.reconcile(after=2) == ["a"]
    assert requeue_harness.reconcile(after=AGAIN + 1) == []
    assert requeue_harness.reconcile(after=AGAIN) == ["a"]


def test_one_that_others_were_quicker_than_is_woken_as_soon_as_there_is_room(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.reject_pod("a")
    requeue_harness.set_quota("3")
    assert requeue_harness.reconcile() == ["a"]
    requeue_harness.run_pod("other", "1")
    assert requeue_harness.reconcile() == []
    requeue_harness.harness.finish("other")
    assert requeue_harness.reconcile(after=2) == ["a"]


def test_one_that_was_refused_again_is_woken_as_soon_as_there_is_room(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.reject_pod("a", "b")
    requeue_harness.set_quota("3")
    assert requeue_harness.reconcile() == ["a"]
    requeue_harness.set_condition("a", REFUSED)
    assert requeue_harness.reconcile() == ["b"]  # room that is there is not kept for it
    requeue_harness.set_condition("b", NO_NODE)
    assert requeue_harness.reconcile(after=2) == ["a"]


@pytest.mark.parametrize(
    "reason", ["SchedulerError", "SchedulingGated"], ids=["at the bind", "behind gates"]
)
def test_a_pod_that_waits_for_something_else_is_left_alone(
    requeue_harness: RequeueHarness, reason: str
) -> None:
    requeue_harness.reject_pod("nodes", message=NO_NODE)
    requeue_harness.harness.pod("other", "1")
    requeue_harness.set_condition("other", REFUSED, reason)
    requeue_harness.harness.pod("new", "1")
    requeue_harness.set_quota("9")
    assert requeue_harness.reconcile() == []
    reads = len(requeue_harness.reads)
    assert requeue_harness.reconcile(after=60) == []
    assert len(requeue_harness.reads) == reads  # what a pod says is read once


def test_one_without_room_on_nodes_does_not_stand_before_others(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.reject_pod("nodes", message=NO_NODE, priority=5)
    requeue_harness.reject_pod("a")
    requeue_harness.set_quota("3")
    assert requeue_harness.reconcile() == ["a"]


def test_a_pod_that_holds_others_behind_our_gate_is_not_passed(
    requeue_harness: RequeueHarness,
) -> None:
    gates: dict[str, Any] = {"schedulingGates": [{"name": SCHEDULING_GATE}]}
    requeue_harness.harness.pod("large", "3", priority=5, **gates)
    requeue_harness.reject_pod("a")
    requeue_harness.reject_pod("above", priority=9)
    requeue_harness.set_quota("4")
    requeue_harness.harness.step()
    namespace, held, releasable = requeue_harness.harness.queue_updates[-1]
    assert [one.blocking for one in held.values()] == [{"p1"}]
    requeue_harness.requeuer.on_queue(namespace, held, releasable)
    assert requeue_harness.reconcile() == ["above"]
    requeue_harness.harness.delete("large")
    requeue_harness.requeuer.on_queue(namespace, {}, ())
    requeue_harness.harness.delete("above")
    assert requeue_harness.reconcile() == ["a"]


def test_one_that_blocks_several_quotas_is_passed_in_none_of_them(
    requeue_harness: RequeueHarness,
) -> None:
    harness = requeue_harness.harness
    memory = a_quota("a1", uid="a1", hard={"requests.memory": "2Gi"})
    harness.cluster.load([(RESOURCE_QUOTAS, memory)])
    harness.pod("other", node="node-0", requests={"memory": "1Gi"})
    gates: dict[str, Any] = {"schedulingGates": [{"name": SCHEDULING_GATE}]}
    harness.pod("large", requests={"cpu": "3", "memory": "2Gi"}, priority=5, **gates)
    requeue_harness.reject_pod("cpu", requests={"cpu": "1", "memory": "0"})
    requeue_harness.reject_pod("memory", requests={"cpu": "0", "memory": "1Gi"})
    requeue_harness.set_quota("3")
    harness.step()
    requeue_harness.requeuer.on_queue(*harness.queue_updates[-1])
    assert requeue_harness.reconcile() == []
    harness.delete("large")
    harness.finish("other")
    requeue_harness.requeuer.on_queue(NAMESPACE, {}, ())
    assert sorted(requeue_harness.reconcile()) == ["cpu", "memory"]


def test_nothing_happens_while_schedulers_hear_nothing(requeue_harness: RequeueHarness) -> None:
    requeue_harness.enabled = False
    requeue_harness.reject_pod("a")
    requeue_harness.set_quota("3")
    assert requeue_harness.reconcile() == []
    requeue_harness.enabled = True
    assert requeue_harness.reconcile() == ["a"]


def test_only_the_leader_wakes_and_the_next_one_begins_anew(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.reject_pod("a")
    requeue_harness.set_quota("3")
    requeue_harness.harness.step()
    requeue_harness.harness.epoch[0] = 0
    assert requeue_harness.reconcile() == []
    requeue_harness.harness.epoch[0] = 2
    assert requeue_harness.reconcile() == ["a"]
    requeue_harness.harness.epoch[0] = 3
    assert requeue_harness.reconcile() == ["a"]


def test_a_pod_that_waited_when_the_namespace_opted_out_is_woken(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.reject_pod("a", "b")
    assert requeue_harness.reconcile() == []
    opt_out(requeue_harness.harness.api, NAMESPACE)
    eventually(
        lambda: requeue_harness.harness.namespaces.informer.get(NAMESPACE) is not True,
        "the cache knows it",
    )
    assert requeue_harness.reconcile() == ["a", "b"]


def test_namespaces_that_are_not_ours_are_not_read(requeue_harness: RequeueHarness) -> None:
    requeue_harness.harness.exempt = frozenset({NAMESPACE})
    requeue_harness.reject_pod("a")
    assert requeue_harness.reconcile() == []
    assert requeue_harness.reads == []


def test_while_a_quota_is_not_counted_as_it_stands_no_pod_is_woken(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.set_quota("5")
    requeue_harness.reconcile()
    requeue_harness.set_quota("2")
    requeue_harness.reject_pod("a")
    requeue_harness.harness.catch_up()
    requeue_harness.requeuer.run_pass()  # the ledger still has room
    assert requeue_harness.touched == []
    assert requeue_harness.reconcile() == []


def test_a_reservation_that_does_not_suffice_any_more_wakes_no_pod(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.set_quota("3")
    requeue_harness.harness.pod("a", "1")
    requeue_harness.harness.step()
    requeue_harness.harness.reserve("a")
    requeue_harness.set_quota("2")
    requeue_harness.set_condition("a", REFUSED)
    assert requeue_harness.reconcile() == []
    requeue_harness.set_quota("3")
    assert requeue_harness.reconcile() == ["a"]


def test_one_that_is_bound_while_it_is_touched_takes_its_room_once(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.reject_pod("a", "b")
    requeue_harness.set_quota("3")

    def bind(_call: Call) -> None:
        requeue_harness.harness.reserve("a")
        requeue_harness.harness.bind("a")
        requeue_harness.harness.catch_up()

    with requeue_harness.api.on("patch", PODS, preceded_by(bind)):
        assert requeue_harness.reconcile() == ["a"]
    requeue_harness.set_quota("4")
    assert requeue_harness.reconcile(after=2) == ["b"]


def test_no_more_is_sent_than_is_allowed(requeue_harness: RequeueHarness) -> None:
    names = [f"w{number:03}" for number in range(120)]
    requeue_harness.reject_pod(*names, cpu="10m")
    requeue_harness.set_quota("9")
    assert requeue_harness.reconcile() == []
    assert len(requeue_harness.reads) == 100
    assert requeue_harness.reconcile(after=1) == names[:80]  # and 20 were read
    assert requeue_harness.reconcile(after=1) == names[80:]


def test_what_fails_is_tried_again_after_a_pause(requeue_harness: RequeueHarness) -> None:
    requeue_harness.reject_pod("a")
    requeue_harness.set_quota("3")
    requeue_harness.api.on("*", "*", unavailable)
    assert requeue_harness.reconcile() == []
    tries = len(requeue_harness.touched) + len(requeue_harness.reads)
    requeue_harness.reconcile()
    assert len(requeue_harness.touched) + len(requeue_harness.reads) == tries
    requeue_harness.api.reset()
    assert requeue_harness.reconcile(after=2) == ["a"]
    assert requeue_harness.annotation("a")


def test_another_pod_of_the_name_is_not_touched(requeue_harness: RequeueHarness) -> None:
    requeue_harness.reject_pod("a")
    requeue_harness.set_quota("3")
    requeue_harness.harness.step()
    requeue_harness.harness.catch_up()
    requeue_harness.harness.delete("a")
    requeue_harness.harness.pod("a", "1", metadata={"uid": "uid-of-another"})
    requeue_harness.requeuer.run_pass()
    assert requeue_harness.annotation("a") == ""


def test_a_pod_that_has_its_node_leaves_nothing_behind(requeue_harness: RequeueHarness) -> None:
    requeue_harness.reject_pod("a")
    requeue_harness.set_quota("3")
    assert requeue_harness.reconcile() == ["a"]
    requeue_harness.harness.bind("a")
    requeue_harness.reconcile()
    requeue_harness.harness.finish("a")
    requeue_harness.reconcile(after=5)
    assert requeue_harness.requeuer.is_idle


def test_rules_of_the_line_that_change_are_looked_at(requeue_harness: RequeueHarness) -> None:
    requeue_harness.harness.policy = QueuePolicy(must_specify=True)
    requeue_harness.set_quota("9")
    requeue_harness.harness.api.patch(
        RESOURCE_QUOTAS,
        "p1",
        {"spec": {"hard": {"requests.cpu": "9", "requests.memory": "1Gi"}}},
        namespace=NAMESPACE,
    )
    message = "0/1 nodes are available: 1 failed quota: p1: must specify requests.memory for: main."
    requeue_harness.reject_pod("a", message=message)
    assert requeue_harness.reconcile() == []
    requeue_harness.harness.policy = QueuePolicy(must_specify=False)
    assert requeue_harness.reconcile() == ["a"]
