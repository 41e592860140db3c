"""No namespace keeps another asleep, none is woken for what others hold, or where nobody asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.admission.handlers.harness import a_namespace, eventually, new_cluster, opt_out
from tests.builders import a_quota
from tests.controllers.controller_harness import NAMESPACE, ControllerHarness
from tests.controllers.requeue.requeue_harness import NO_NODE, REFUSED, RequeueHarness
from tests.controllers.shared.shared_quota_steps import shared_quota, steps
from tests.reactions import Call, fail, for_name, in_namespace, preceded_by, unavailable
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    NAMESPACES,
    PODS,
    RESOURCE_QUOTAS,
    RequestTimeoutError,
)
from webhook.kube.errors import ForbiddenError
from webhook.quota.queue.queued_pods import QueuedPod
from webhook.quota.queue.requeue import fitting_pods
from webhook.quota.shared.grants import Grants, with_headroom
from webhook.state.well_known import MODE_LABEL

OTHER = "team-b"
SHARED = REFUSED.replace("p1", "cdq/both")


@pytest.fixture
def requeue_harness() -> Iterator[RequeueHarness]:
    """Two namespaces with a quota of 2 cpu each."""
    cluster = new_cluster()
    cluster.load(
        [
            (NAMESPACES, a_namespace()),
            (NAMESPACES, a_namespace(OTHER)),
            (RESOURCE_QUOTAS, a_quota("p1")),
            (RESOURCE_QUOTAS, a_quota("p1", namespace=OTHER)),
        ]
    )
    yield from _ringing(ControllerHarness(cluster))


@pytest.fixture
def sharing() -> Iterator[RequeueHarness]:
    """Two namespaces that share a quota of 4 cpu, which the other one uses up."""
    cluster = new_cluster()
    cluster.load(
        [
            (NAMESPACES, a_namespace()),
            (NAMESPACES, a_namespace(OTHER)),
            (CLUSTER_DEFERRED_QUOTAS, shared_quota("4")),
        ]
    )
    for made in _ringing(ControllerHarness(cluster, follows_ledgers=True)):
        steps(made.harness)
        made.harness.pod("big", "4", OTHER, node="n1")
        steps(made.harness)
        yield made


def _ringing(harness: ControllerHarness) -> Iterator[RequeueHarness]:
    made = RequeueHarness(harness)
    harness.start()
    try:
        harness.step()
        yield made
    finally:
        harness.stop()


def refuse(requeue_harness: RequeueHarness, *names: str) -> None:
    """Let a policy refuse every change of these pods."""
    deny = fail(ForbiddenError("a policy does not let it be changed"))
    for name in names:
        requeue_harness.api.on("patch", PODS, for_name(name, deny))


# -- other namespaces ------------------------------------------------------------------------


def test_a_namespace_rests_in_proportion_to_how_long_others_waited_for_it(
    requeue_harness: RequeueHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "webhook.controllers.requeue.controller.fitting_pods"
    looked: list[object] = []

    def slowly(*args: object, **_: object) -> tuple[object, ...]:
        looked.append(args)
        requeue_harness.harness.pass_time(0.3)
        return ()

    monkeypatch.setattr(name, slowly)
    requeue_harness.reject_pod("web-0")
    requeue_harness.reconcile()
    for number, count in ((1, 1), (2, 1), (3, 2)):
        requeue_harness.reject_pod(f"web-{number}")
        requeue_harness.reconcile(after=1)
        assert len(looked) == count


def test_others_have_their_turn_before_a_namespace_is_looked_at_once_more(
    requeue_harness: RequeueHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = requeue_harness.harness
    requeue_harness.run_pod("first", "1")  # there is room for one: all but the first are read later
    requeue_harness.reject_pod(*(f"web-{number}" for number in range(90)), message=NO_NODE)
    looked = looks_slowly(harness, monkeypatch, 0.3)
    for count in range(1, 6):
        requeue_harness.reconcile(after=3)
        assert len(looked) == count


def test_pods_that_no_node_takes_do_not_keep_those_behind_them_asleep_for_long(
    requeue_harness: RequeueHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = requeue_harness.harness
    requeue_harness.run_pod("first", "1")
    requeue_harness.reject_pod(*(f"web-{number:02}" for number in range(60)), message=NO_NODE)
    requeue_harness.reject_pod("last")
    looks_slowly(harness, monkeypatch, 0.1)
    for _ in range(8):
        requeue_harness.reconcile(after=1)
    assert requeue_harness.touched == ["last"]


def looks_slowly(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> list[float]:
    """Let every look of the requeuer take so long; return when they began, as they come."""
    began: list[float] = []

    def slowly(*args: Any, **given: Any) -> tuple[QueuedPod, ...]:
        began.append(harness.clock[0])
        harness.pass_time(seconds)
        return fitting_pods(*args, **given)

    monkeypatch.setattr("webhook.controllers.requeue.controller.fitting_pods", slowly)
    return began


def test_a_pod_that_may_not_be_changed_keeps_no_other_asleep(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.reject_pod("a", "b")
    requeue_harness.reject_pod("c", namespace=OTHER)
    refuse(requeue_harness, "a")
    assert sorted(requeue_harness.reconcile()) == ["a", "b", "c"]


def test_a_pod_that_may_not_be_changed_is_tried_less_and_less_often(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.reject_pod("a")
    refuse(requeue_harness, "a")
    for _ in range(600):
        requeue_harness.reconcile(after=1)
    assert 6 <= requeue_harness.touched.count("a") <= 10
    requeue_harness.api.reset()
    for _ in range(300):
        requeue_harness.reconcile(after=1)
    assert requeue_harness.annotation("a")


def test_a_namespace_in_which_nothing_is_answered_keeps_no_other_asleep(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.reject_pod("a", "b")
    requeue_harness.reject_pod("c", namespace=OTHER)
    requeue_harness.api.on("*", PODS, in_namespace(NAMESPACE, unavailable))
    assert requeue_harness.reconcile() == ["c"]
    tries = len(requeue_harness.reads)
    for _ in range(60):
        requeue_harness.reconcile(after=1)
    assert len(requeue_harness.reads) - tries <= 8


@pytest.mark.parametrize("comes_anew", [False, True])
def test_pods_that_take_too_long_to_change_seldom_have_the_thread(
    requeue_harness: RequeueHarness, *, comes_anew: bool
) -> None:
    harness, slow = requeue_harness.harness, "slow-0"

    def late(call: Call) -> None:
        if "slow" in call.name:
            harness.pass_time(10)
            raise RequestTimeoutError("no answer within 10 s")

    requeue_harness.api.on("patch", PODS, preceded_by(late))
    requeue_harness.reject_pod(*(f"slow-{number}" for number in range(5)), cpu="1m")
    began = harness.clock[0]
    for number in range(5, 605):
        requeue_harness.reconcile(after=1)
        if comes_anew:
            harness.delete(slow)
            slow = f"slow-{number}"
            requeue_harness.reject_pod(slow, cpu="1m")
        elif number % 5 == 0:  # one that is answered
            requeue_harness.reject_pod(f"web-{number}", cpu="1m")
    spent = 10 * sum("slow" in name for name in requeue_harness.touched)
    assert 0 < spent < (harness.clock[0] - began) / 10


def test_what_fails_in_no_foreseen_way_keeps_no_other_asleep(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.reject_pod("a")
    requeue_harness.reject_pod("c", namespace=OTHER)
    unreadable = fail(ValueError("it cannot be read"))
    requeue_harness.api.on("*", PODS, in_namespace(NAMESPACE, unreadable))
    assert requeue_harness.reconcile() == ["c"]


def test_a_namespace_that_takes_all_that_may_be_sent_comes_last_in_the_next_round(
    requeue_harness: RequeueHarness,
) -> None:
    names = [f"n{number:03}" for number in range(120)]
    requeue_harness.reject_pod(*names, cpu="1m", message=NO_NODE)
    requeue_harness.reject_pod("mine", namespace=OTHER)
    requeue_harness.reconcile()
    assert len(requeue_harness.reads) == 100
    assert requeue_harness.reconcile(after=0.1) == ["mine"]


def test_pods_that_have_no_node_for_another_reason_are_not_read_at_every_word(
    requeue_harness: RequeueHarness,
) -> None:
    for number in range(60):
        if number:
            requeue_harness.set_condition("a", NO_NODE)
        else:
            requeue_harness.reject_pod("a", message=NO_NODE)
        requeue_harness.reconcile(after=1)
    assert len(requeue_harness.reads) <= 8
    requeue_harness.set_condition("a", REFUSED)
    for _ in range(60):
        requeue_harness.reconcile(after=1)
    assert requeue_harness.touched[:1] == ["a"]


# -- in vain -----------------------------------------------------------------------------------


def test_one_that_is_refused_though_there_seems_to_be_room_is_woken_ever_less_often(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.reject_pod("a")
    for _ in range(1000):
        for name in requeue_harness.reconcile(after=1):
            requeue_harness.set_condition(name, REFUSED)
    assert 8 <= len(requeue_harness.touched) <= 12
    before = len(requeue_harness.touched)
    patch = {"spec": {"hard": {"requests.cpu": "3"}}}
    requeue_harness.harness.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)
    requeue_harness.reconcile(after=1)
    requeue_harness.reconcile(after=16)
    assert len(requeue_harness.touched) == before + 1


# -- shared quotas -------------------------------------------------------------------------------


def test_no_pod_is_woken_for_what_another_namespace_holds(sharing: RequeueHarness) -> None:
    sharing.reject_pod("a", message=SHARED)
    steps(sharing.harness)
    # as a leader knows it who has just begun: nothing in it says what others hold
    for namespace in (NAMESPACE, OTHER):
        sharing.harness.ledgers.forget(namespace)
    sharing.harness.ledgers.fetch(NAMESPACE)
    for _ in range(60):
        assert sharing.reconcile(after=1) == []
    assert sharing.reads == []


def test_what_another_namespace_gives_back_wakes(sharing: RequeueHarness) -> None:
    sharing.reject_pod("a", message=SHARED)
    assert sharing.reconcile(after=1) == []
    sharing.harness.finish("big", OTHER)
    woken = [name for _ in range(8) for name in sharing.reconcile(after=1)]
    assert woken == ["a"]


def test_what_another_namespace_does_not_use_wakes(sharing: RequeueHarness) -> None:
    sharing.reject_pod("a", message=SHARED)
    assert sharing.reconcile(after=1) == []
    known = sharing.harness.store.fetch("cdq/both")
    assert known is not None
    unused = known.grants.namespaces[OTHER]
    sharing.harness.store.write(known, with_headroom(known.grants, OTHER, unused))
    sharing.harness.catch_up()
    sharing.requeuer.run_pass()
    assert sharing.touched == ["a"]


def test_no_pod_is_woken_while_nothing_can_be_granted(sharing: RequeueHarness) -> None:
    sharing.harness.finish("big", OTHER)
    steps(sharing.harness)
    known = sharing.harness.store.fetch("cdq/both")
    assert known is not None
    sharing.harness.store.write(known, Grants({}))  # somebody has emptied its status
    sharing.harness.epoch[0] = 2
    sharing.reject_pod("a", message=SHARED)
    sharing.harness.catch_up()
    sharing.requeuer.run_pass()
    assert sharing.touched == []


# -- namespaces that opt out -----------------------------------------------------------------------


def leave(requeue_harness: RequeueHarness, mode: str | None) -> None:
    patch = {"metadata": {"labels": {MODE_LABEL: mode}}}
    requeue_harness.harness.api.patch(NAMESPACES, NAMESPACE, patch)
    eventually(
        lambda: requeue_harness.harness.namespaces.informer.get(NAMESPACE) is not True,
        "the cache knows it",
    )


@pytest.mark.parametrize("mode", ["shadow", None])
def test_a_pod_that_was_there_at_the_opt_out_is_woken_once(
    requeue_harness: RequeueHarness, mode: str | None
) -> None:
    requeue_harness.reject_pod("a", cpu="9")
    assert requeue_harness.reconcile() == []
    leave(requeue_harness, mode)
    assert requeue_harness.reconcile() == ["a"]
    for _ in range(400):
        for name in requeue_harness.reconcile(after=1):
            requeue_harness.set_condition(name, REFUSED)
    assert requeue_harness.touched == ["a"]


def test_a_pod_after_the_opt_out_is_neither_read_nor_touched(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.reject_pod("a", cpu="9")
    requeue_harness.reconcile()
    leave(requeue_harness, "shadow")
    requeue_harness.reconcile()
    reads = len(requeue_harness.reads)
    requeue_harness.reject_pod("late")
    for _ in range(20):
        requeue_harness.reconcile(after=1)
    assert "late" not in requeue_harness.touched
    assert len(requeue_harness.reads) == reads


def test_a_pod_without_a_node_for_another_reason_is_not_woken_at_the_opt_out(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.reject_pod("a", cpu="9", message=NO_NODE)
    requeue_harness.reconcile()
    leave(requeue_harness, "shadow")
    requeue_harness.reconcile()
    requeue_harness.set_condition("a", REFUSED)
    assert requeue_harness.reconcile(after=100) == []


def test_one_that_rests_is_woken_when_its_namespace_opts_out(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.reject_pod("a")
    for _ in range(30):
        for name in requeue_harness.reconcile(after=1):
            requeue_harness.set_condition(name, REFUSED)
    before = len(requeue_harness.touched)
    opt_out(requeue_harness.harness.api, NAMESPACE)
    requeue_harness.reconcile()
    assert requeue_harness.touched[before:] == ["a"]


def test_a_namespace_that_is_back_is_judged_by_its_quota_again(
    requeue_harness: RequeueHarness,
) -> None:
    requeue_harness.reject_pod("a", cpu="9")
    requeue_harness.reconcile()
    leave(requeue_harness, "shadow")
    assert requeue_harness.reconcile() == ["a"]
    requeue_harness.harness.api.patch(
        NAMESPACES, NAMESPACE, {"metadata": {"labels": {MODE_LABEL: "deferred"}}}
    )
    requeue_harness.set_condition("a", REFUSED)
    for _ in range(20):
        assert requeue_harness.reconcile(after=1) == []
    patch = {"spec": {"hard": {"requests.cpu": "20"}}}
    requeue_harness.harness.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)
    assert [name for _ in range(5) for name in requeue_harness.reconcile(after=1)] == ["a"]
