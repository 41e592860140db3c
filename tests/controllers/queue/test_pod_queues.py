"""Pods behind our gate are reserved for in their order, and only then lose the gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import pytest

from tests.admission.handlers.harness import a_namespace, eventually, opt_out
from tests.builders import a_quota, an_expression
from tests.controllers.controller_harness import (
    EXPIRE_SECONDS,
    GATE_RELEASE_SECONDS,
    NAMESPACE,
    RESYNC_SECONDS,
    ControllerHarness,
    new_harness,
    second_harness,
)
from tests.controllers.queue.queue_steps import Object, condition, gated, gates, released, why
from tests.controllers.shared.shared_quota_steps import granted, shared_quota, steps
from tests.counting import calls_of
from tests.reactions import preceded_by, unreachable
from webhook.controllers.ledger.usage_cache import NAMESPACE_CACHE_LAG_SECONDS
from webhook.controllers.queue import controller as queue_controller
from webhook.controllers.queue import gate_remover
from webhook.kube.api import (
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    InternalError,
    NotFoundError,
    Revision,
)
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.ledger.ledger import ReservationSource
from webhook.quota.ledger.ledger_codec import encode_status
from webhook.quota.ledger.ledger_room import is_large_for_releases
from webhook.quota.objects.compact import MAX_KEPT_GATES
from webhook.quota.queue.queued_pods import PendingReason, QueueingStrategy, QueuePolicy
from webhook.quota.shadow.record import Findings
from webhook.state.reserver import Reserved
from webhook.state.shadow_store import ShadowRecordStore
from webhook.state.well_known import SCHEDULING_GATE, gate_removal

OTHER = "example.com/other"


@pytest.fixture
def harness() -> Iterator[ControllerHarness]:
    """A quota of 2 cpu, counted."""
    with new_harness(a_quota("p1")) as made:
        made.step()
        yield made


def crowd(harness: ControllerHarness, count: int, **fields: object) -> list[str]:
    names = [f"w{number:04}" for number in range(count)]
    for name in names:
        gated(harness, name, **fields)  # type: ignore[arg-type]
    return names


# -- releasing -----------------------------------------------------------------------------


def test_what_fits_is_reserved_for_in_one_write_and_then_loses_its_gate(
    harness: ControllerHarness,
) -> None:
    names = crowd(harness, 5)
    harness.removes_gates_at_once = False
    before = harness.version()
    harness.step()
    after = harness.version()
    assert before is not None
    assert after is not None
    assert after.resource_version == before.resource_version + 5 + 1  # five pods, one write
    assert set(harness.held()) == {"w0000", "w0001"}
    assert {one.source for one in harness.held().values()} == {ReservationSource.RELEASE}
    assert released(harness) == []
    harness.removes_gates_at_once = True
    harness.reconcile_once()
    assert released(harness) == names[:2]
    assert harness.reserved() == {"requests.cpu": "2"}
    assert why(harness) == {
        "w0002": PendingReason.QUOTA_EXCEEDED,
        "w0003": PendingReason.BEHIND,
        "w0004": PendingReason.BEHIND,
    }


def test_nothing_loses_its_gate_when_the_write_fails(harness: ControllerHarness) -> None:
    gated(harness, "web")
    harness.client.on("update", QUOTA_LEDGERS, unreachable)
    harness.step()
    assert released(harness) == []
    harness.client.reset()
    harness.pass_time(2)
    harness.step()
    assert released(harness) == ["web"]


def test_a_handler_that_was_faster_is_taken_into_account(harness: ControllerHarness) -> None:
    harness.pod("bound", "1500m")
    harness.step()
    gated(harness, "web")
    harness.catch_up()

    def reserve() -> None:
        assert isinstance(harness.reserve("bound"), Reserved)

    harness.client.on(
        "update", "*", preceded_by(lambda _: reserve()), subresource="status", times=1
    )
    harness.reconcile_once()
    assert set(harness.held()) == {"bound"}
    assert gates(harness, "web") == [SCHEDULING_GATE]
    assert why(harness) == {"web": PendingReason.QUOTA_EXCEEDED}


@pytest.mark.parametrize("end", ["finish", "delete", "raise the quota", "delete the quota"])
def test_what_becomes_free_is_given_on_in_the_write_that_notices_it(
    harness: ControllerHarness, end: str
) -> None:
    harness.pod("old", "2", node="node-1")
    gated(harness, "next", "2")
    harness.step()
    assert released(harness) == ["old"]
    before = harness.metric("ledger_settlements_total", result="written")
    if end == "finish":
        harness.finish("old")
    elif end == "delete":
        harness.delete("old")
    elif end == "raise the quota":
        patch = {"spec": {"hard": {"requests.cpu": "4"}}}
        harness.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)
    else:
        harness.api.delete(RESOURCE_QUOTAS, "p1", namespace=NAMESPACE)
    harness.step()
    assert gates(harness, "next") == []
    assert harness.metric("ledger_settlements_total", result="written") == before + 1


def test_a_thousand_pods_against_room_for_two_hundred() -> None:
    with new_harness(a_quota("p1", hard={"requests.cpu": "200"})) as harness:
        harness.step()
        names = crowd(harness, 1000)
        harness.step()
        assert released(harness) == names[:200]
        assert harness.reserved() == {"requests.cpu": "200"}
        for name in names[:200]:
            assert isinstance(harness.reserve(name), Reserved)
            harness.bind(name)
        harness.step()
        assert (harness.used(), harness.held()) == ({"requests.cpu": "200"}, {})
        for name in names[:100]:
            harness.finish(name)
        harness.step()
        assert [name for name in names if not gates(harness, name)] == names[:300]
        assert harness.reserved() == {"requests.cpu": "100"}
        assert harness.is_exact()


def test_of_forty_in_order_the_first_ten_go() -> None:
    with new_harness(a_quota("p1", hard={"requests.cpu": "10"})) as harness:
        harness.step()
        names = crowd(harness, 40)
        harness.step()
        assert released(harness) == names[:10]


def test_a_high_priority_goes_first_however_late(harness: ControllerHarness) -> None:
    harness.pod("old", "2", node="node-1")
    crowd(harness, 5)
    harness.step()
    gated(harness, "urgent", priority=1000)
    harness.finish("old")
    harness.step()
    assert released(harness) == ["old", "urgent", "w0000"]


def test_a_large_pod_in_front_is_not_starved(harness: ControllerHarness) -> None:
    harness.pod("old", "1", node="node-1")
    gated(harness, "large", "2")
    crowd(harness, 20)
    harness.step()
    assert released(harness) == ["old"]
    harness.finish("old")
    harness.step()
    assert released(harness) == ["large", "old"]


def test_with_best_effort_a_large_pod_is_passed_so_many_times_and_no_more(
    harness: ControllerHarness,
) -> None:
    harness.policy = QueuePolicy(order=QueueingStrategy.BEST_EFFORT, max_overtakes=3)
    harness.pod("old", "1", node="node-1")
    gated(harness, "large", "2")
    names = crowd(harness, 20)
    for number in range(3):
        harness.step()
        assert gates(harness, names[number]) == []
        harness.api.delete(PODS, names[number], namespace=NAMESPACE)
    harness.step()
    assert gates(harness, names[3]) == [SCHEDULING_GATE]
    harness.finish("old")
    harness.step()
    assert gates(harness, "large") == []


def test_with_best_effort_a_pod_that_waited_too_long_is_passed_no_more(
    harness: ControllerHarness,
) -> None:
    harness.policy = QueuePolicy(order=QueueingStrategy.BEST_EFFORT, max_wait_seconds=30)
    harness.pod("old", "1", node="node-1")
    gated(harness, "large", "2")
    harness.step()
    harness.pass_time(31)
    gated(harness, "small", "1")
    harness.step()
    assert gates(harness, "small") == [SCHEDULING_GATE]
    assert why(harness)["small"] is PendingReason.BEHIND


def test_what_it_has_waited_is_not_forgotten_because_it_could_never_fit_for_a_while(
    harness: ControllerHarness,
) -> None:
    harness.policy = QueuePolicy(order=QueueingStrategy.BEST_EFFORT, max_wait_seconds=30)
    harness.pod("busy", "1", node="node-1")
    gated(harness, "large", "2")
    harness.step()
    harness.pass_time(20)
    for cpu in ("1", "2"):
        patch = {"spec": {"hard": {"requests.cpu": cpu}}}
        harness.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)
        harness.step()
    harness.pass_time(20)
    gated(harness, "small", "1")
    harness.step()
    assert why(harness) == {"large": PendingReason.QUOTA_EXCEEDED, "small": PendingReason.BEHIND}


def test_other_rules_take_effect_without_a_restart(harness: ControllerHarness) -> None:
    harness.pod("old", "1", node="node-1")
    gated(harness, "large", "2")
    gated(harness, "small", "1")
    harness.step()
    assert gates(harness, "small") == [SCHEDULING_GATE]
    harness.policy = QueuePolicy(order=QueueingStrategy.BEST_EFFORT)
    harness.controller.requeue_waiting()
    harness.step()
    assert gates(harness, "small") == []


def test_a_pod_that_no_quota_concerns_goes_without_a_reservation() -> None:
    gold = an_expression("PriorityClass", "In", "gold")
    with new_harness(a_quota("p1", expressions=[gold])) as harness:
        gated(harness, "plain", "99")
        harness.step()
        assert released(harness) == ["plain"]
        assert harness.held() == {}


def test_without_any_quota_gates_go_too() -> None:
    with new_harness() as harness:
        gated(harness, "plain", "99")
        gated(harness, "twice", "99", OTHER)
        harness.step()
        assert released(harness) == ["plain"]
        assert gates(harness, "twice") == [OTHER]
        assert not harness.has_ledger()


def test_ours_goes_last_where_there_are_gates_of_others(harness: ControllerHarness) -> None:
    gated(harness, "web", "1", OTHER)
    harness.step()
    assert (gates(harness, "web"), harness.held()) == ([OTHER, SCHEDULING_GATE], {})
    assert why(harness) == {"web": PendingReason.OTHER_GATES}
    patch = {"spec": {"schedulingGates": [{"name": SCHEDULING_GATE}]}}
    harness.api.patch(PODS, "web", patch, namespace=NAMESPACE)
    harness.step()
    assert (gates(harness, "web"), set(harness.held())) == ([], {"web"})


def test_a_full_ledger_lets_no_more_go_until_there_is_room() -> None:
    with new_harness(a_quota("p1", hard={"requests.cpu": "9"}), max_reservations=2) as harness:
        harness.step()
        names = crowd(harness, 3)
        harness.step()
        assert released(harness) == names[:2]
        assert why(harness) == {"w0002": PendingReason.LEDGER_FULL}
        harness.reserve(names[0])
        harness.bind(names[0])
        harness.step()
        assert released(harness) == names


def test_releases_leave_binds_a_quarter_of_the_ledger() -> None:
    with new_harness(a_quota("p1", hard={"requests.cpu": "9"}), max_reservations=8) as harness:
        harness.step()
        names = crowd(harness, 8, cpu="1m")
        harness.step()
        assert released(harness) == names[:6]
        assert why(harness)[names[6]] is PendingReason.LEDGER_FULL
        harness.bind(names[0])
        harness.step()
        assert released(harness) == names[:7]


def test_releases_leave_binds_a_quarter_of_what_one_object_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = partial(is_large_for_releases, max_bytes=9000)
    monkeypatch.setattr(queue_controller, "is_large_for_releases", large)
    with new_harness(a_quota("p1", hard={"requests.cpu": "9"})) as harness:
        harness.step()
        name = "x" * 250
        for number in range(20):
            gated(harness, f"{name}{number:02}", "1m")
        harness.step()
        ledger = harness.ledger()
        of_quotas = len(encode_status(replace(ledger, reservations={})))
        assert 3 < len(ledger.reservations) < 20
        assert (len(encode_status(ledger)) - of_quotas) * 4 <= (9000 - of_quotas) * 3


def test_a_namespace_that_opts_out_leaves_no_pod_behind_the_gate(
    harness: ControllerHarness,
) -> None:
    names = crowd(harness, 5)
    harness.step()
    assert released(harness) == names[:2]
    opt_out(harness.api, NAMESPACE)
    harness.step()
    assert released(harness) == names
    harness.step()
    assert not harness.is_tracked()


def test_the_condition_of_a_pod_released_for_that_does_not_say_that_quota_is_reserved(
    harness: ControllerHarness,
) -> None:
    names = crowd(harness, 5)
    harness.step()
    assert {uid for _, _, releasable in harness.queue_updates for uid in releasable} == {
        "uid-w0000",
        "uid-w0001",
    }
    harness.queue_updates.clear()
    opt_out(harness.api, NAMESPACE)
    harness.step()
    assert released(harness) == names
    assert [(held, list(releasable)) for _, held, releasable in harness.queue_updates] == [({}, [])]


def test_it_is_not_left_before_every_gate_is_off(harness: ControllerHarness) -> None:
    names = crowd(harness, 3)
    harness.step()
    harness.removes_gates_at_once = False
    opt_out(harness.api, NAMESPACE)
    harness.step()
    harness.step()
    assert harness.is_tracked()
    harness.removes_gates_at_once = True
    harness.reconcile_once()
    harness.pass_time(1)
    harness.step()
    assert released(harness) == names
    harness.step()
    assert not harness.is_tracked()


def test_a_gate_that_comes_after_that_is_taken_off_a_little_later(
    harness: ControllerHarness,
) -> None:
    opt_out(harness.api, NAMESPACE)
    harness.step()
    harness.step()
    gated(harness, "web")  # it was on its way
    harness.step()
    assert gates(harness, "web") == [SCHEDULING_GATE]
    harness.pass_time(NAMESPACE_CACHE_LAG_SECONDS)
    harness.step()
    assert gates(harness, "web") == []
    harness.step()
    assert not harness.is_tracked()


def test_a_pod_that_is_seen_before_the_opt_in_keeps_its_gate_and_its_place() -> None:
    with new_harness(a_quota("p1"), mode="") as harness:
        harness.step()
        gated(harness, "huge", "2")
        gated(harness, "web")
        harness.step()
        harness.api.patch(
            NAMESPACES, NAMESPACE, {"metadata": {"labels": {"deferredquota.io/mode": "deferred"}}}
        )
        harness.step()
        harness.pass_time(NAMESPACE_CACHE_LAG_SECONDS)
        harness.step()
        assert released(harness) == ["huge"]
        assert set(harness.held()) == {"huge"}


def opt_in(harness: ControllerHarness) -> None:
    labels = {"deferredquota.io/mode": "deferred"}
    harness.api.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": labels}})


@pytest.mark.parametrize("is_new_leader", [False, True])
def test_nor_does_it_lose_them_while_that_opt_in_is_not_seen_for_long(
    *, is_new_leader: bool
) -> None:
    with new_harness(a_quota("p1"), mode="") as harness:
        harness.step()
        harness.client.pause(NAMESPACES)
        opt_in(harness)
        gated(harness, "huge", "2")
        gated(harness, "web")
        eventually(lambda: len(harness.controller.pods) == 2, "the pods are seen")
        harness.epoch[0] += is_new_leader
        for _ in range(3):
            harness.pass_time(NAMESPACE_CACHE_LAG_SECONDS)
            harness.reconcile_once()
        assert released(harness) == []
        harness.client.resume()
        harness.step()
        assert released(harness) == ["huge"]
        assert set(harness.held()) == {"huge"}


def test_a_standby_does_not_keep_a_namespace_for_a_gate_that_came_and_went() -> None:
    with (
        new_harness(a_quota("p1"), mode="") as harness,
        second_harness(harness, epoch=[0]) as standby,
    ):
        harness.step()
        gated(harness, "web")
        standby.step()
        assert standby.is_tracked()
        harness.step()
        harness.pass_time(NAMESPACE_CACHE_LAG_SECONDS)
        harness.step()
        assert gates(harness, "web") == []
        standby.step()
        assert not standby.is_tracked()


def test_gates_that_were_left_behind_are_taken_off_by_the_next_leader(
    harness: ControllerHarness,
) -> None:
    opt_out(harness.api, NAMESPACE)
    harness.step()
    harness.step()
    gated(harness, "web")
    harness.step()
    assert gates(harness, "web") == [SCHEDULING_GATE]
    harness.epoch[0] += 1
    harness.step()
    assert gates(harness, "web") == []
    assert harness.held() == {}


def test_gates_go_in_shadow_mode_and_its_record_stays() -> None:
    with new_harness(mode="shadow", follows_ledgers=True) as harness:
        books = ShadowRecordStore(harness.api)
        books.add(NAMESPACE, Findings({}), writer="w", number=1, begins=True)
        books.add(NAMESPACE, Findings({"attempts": 7}), writer="w", number=2)
        gated(harness, "web")
        before = harness.api.get(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
        for _ in range(4):
            harness.step()
            harness.pass_time(1.5)
        assert gates(harness, "web") == []
        assert harness.api.get(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE) == before
        assert not harness.is_tracked()


def test_what_a_namespace_holds_of_a_shared_quota_is_given_back_though_its_ledger_is_gone() -> None:
    with new_harness(a_namespace("team-b"), shared_quota(), follows_ledgers=True) as harness:
        steps(harness)
        harness.pod("mine", "3", node="n1")
        steps(harness)
        assert granted(harness)[NAMESPACE] == "3"
        found = harness.api.get(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
        harness.api.update_status(QUOTA_LEDGERS, {**found, "status": {}})
        opt_out(harness.api, NAMESPACE)
        for _ in range(4):
            steps(harness)
            harness.pass_time(EXPIRE_SECONDS)
        assert NAMESPACE not in granted(harness)


def test_what_is_not_wanted_any_more_is_not_sent(harness: ControllerHarness) -> None:
    harness.removes_gates_at_once = False
    gated(harness, "web")
    harness.step()
    remover = harness.controller.gate_remover
    assert remover.backlog == 1
    remover.enqueue(NAMESPACE, (), since=0.0, is_leader=lambda: True)
    assert remover.remove_next(0)
    assert gates(harness, "web") == [SCHEDULING_GATE]


def test_a_pod_that_takes_nothing_goes_without_a_reservation(harness: ControllerHarness) -> None:
    harness.pod("old", "2", node="node-1")
    gated(harness, "web", "0")
    harness.step()
    assert (gates(harness, "web"), harness.held()) == ([], {})


def test_a_standby_releases_nothing(harness: ControllerHarness) -> None:
    harness.epoch[0] = 0
    gated(harness, "web")
    harness.step()
    assert (gates(harness, "web"), harness.held()) == ([SCHEDULING_GATE], {})


def test_a_pod_whose_gate_another_client_removed_is_out_of_the_queue(
    harness: ControllerHarness,
) -> None:
    harness.pod("old", "2", node="node-1")
    gated(harness, "web")
    harness.step()
    patch: Object = {"spec": {"schedulingGates": []}}
    harness.api.patch(PODS, "web", patch, namespace=NAMESPACE)
    harness.step()
    assert harness.held() == {}
    assert isinstance(harness.reserve("web"), QuotaExceeded)


# -- when something fails ------------------------------------------------------------------


def test_the_next_leader_removes_the_gates_that_this_one_did_not(
    harness: ControllerHarness,
) -> None:
    harness.removes_gates_at_once = False
    crowd(harness, 3)
    harness.step()
    harness.epoch[0] = 0
    with second_harness(harness, epoch=[2]) as other:
        before = harness.version()
        other.step()
        assert released(other) == ["w0000", "w0001"]
        assert harness.version() == before  # reserved once
        assert set(other.held()) == {"w0000", "w0001"}


def test_a_leader_that_is_none_any_more_removes_no_gate(harness: ControllerHarness) -> None:
    harness.removes_gates_at_once = False
    gated(harness, "web")
    harness.step()
    harness.epoch[0] = 0
    assert harness.controller.gate_remover.remove_next(0)
    assert gates(harness, "web") == [SCHEDULING_GATE]
    assert harness.metric("gate_removals_total", result="dropped") == 1


def test_a_patch_that_failed_is_sent_again(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = harness.client.patch

    def fail(*_: object, **__: object) -> Revision:
        raise InternalError("no")

    monkeypatch.setattr(harness.client, "patch", fail)
    gated(harness, "web")
    harness.step()
    assert gates(harness, "web") == [SCHEDULING_GATE]
    assert harness.metric("gate_removals_total", result="failed") == 1
    monkeypatch.setattr(harness.client, "patch", genuine)
    harness.pass_time(1.5)
    harness.step()
    assert gates(harness, "web") == []
    assert harness.metric("gate_removals_total", result="removed") == 1


def test_a_fault_of_the_program_does_not_lose_a_gate(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = harness.client.patch

    def fail(*_: object, **__: object) -> Revision:
        monkeypatch.setattr(harness.client, "patch", genuine)
        raise RuntimeError("a fault")

    monkeypatch.setattr(harness.client, "patch", fail)
    gated(harness, "web")
    with pytest.raises(RuntimeError):
        harness.step()
    harness.pass_time(1.5)
    harness.step()
    assert gates(harness, "web") == []


def test_another_pod_of_the_name_keeps_its_gate(harness: ControllerHarness) -> None:
    harness.removes_gates_at_once = False
    gated(harness, "web", "2")
    harness.step()
    harness.delete("web")
    harness.pod(
        "web", "2", schedulingGates=[{"name": SCHEDULING_GATE}], metadata={"uid": "another"}
    )
    harness.controller.gate_remover.remove_next(0)
    assert gates(harness, "web") == [SCHEDULING_GATE]
    assert harness.metric("gate_removals_total", result="changed") == 1
    harness.removes_gates_at_once = True
    harness.pass_time(1.5)
    harness.step()
    assert gates(harness, "web") == []
    assert [one.uid for one in harness.held().values()] == ["another"]


def test_gates_that_moved_are_looked_at_again(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:

    def elsewhere(_uid: str, _index: int) -> list[dict[str, object]]:
        monkeypatch.setattr(gate_remover, "gate_removal", gate_removal)
        gate = "/spec/schedulingGates/3"
        return [{"op": "test", "path": f"{gate}/name", "value": SCHEDULING_GATE}]

    monkeypatch.setattr(gate_remover, "gate_removal", elsewhere)
    gated(harness, "web")
    harness.step()
    assert gates(harness, "web") == [SCHEDULING_GATE]
    harness.pass_time(1.5)
    harness.step()
    assert gates(harness, "web") == []


def test_ours_goes_from_a_pod_of_more_gates_than_are_kept_of_one() -> None:
    others = [f"example.com/{number}" for number in range(MAX_KEPT_GATES)]
    with new_harness() as harness:
        gated(harness, "web", "1", *others)
        harness.step()
        assert gates(harness, "web") == others
        assert len(harness.client.calls_of("patch", PODS)) == 1


@pytest.mark.parametrize("change", ["ungated", "deleted"])
def test_a_pod_of_so_many_gates_that_has_changed_is_not_written(change: str) -> None:
    others = [f"example.com/{number}" for number in range(MAX_KEPT_GATES)]
    with new_harness() as harness:
        gated(harness, "web", "1", *others)
        harness.catch_up()

        def leave(_call: object) -> None:
            patch: Object = {"spec": {"schedulingGates": [{"name": OTHER}]}}
            if change == "ungated":
                harness.api.patch(PODS, "web", patch, namespace=NAMESPACE)
            else:
                harness.delete("web")

        harness.client.on("get", PODS, preceded_by(leave), times=1)
        harness.step()
        assert harness.client.calls_of("patch", PODS) == []
        assert harness.metric("gate_removals_total", result="changed") == 1


def test_a_gate_is_removed_once_however_late_the_cache_is(harness: ControllerHarness) -> None:
    gated(harness, "web")
    harness.catch_up()
    harness.client.pause(PODS)
    harness.reconcile_once()
    for _ in range(3):
        harness.mark_dirty()
        harness.reconcile_once()
    harness.client.resume()
    harness.step()
    assert harness.metric("gate_removals_total", result="removed") == 1
    assert harness.metric("gate_removals_total", result="changed") == 0


# -- binding what was released -------------------------------------------------------------


def test_the_bind_of_a_released_pod_finds_its_reservation_and_is_not_charged_twice(
    harness: ControllerHarness,
) -> None:
    gated(harness, "web", "2")
    harness.step()
    (before,) = harness.held().values()
    assert isinstance(harness.reserve("web"), Reserved)
    (after,) = harness.held().values()
    assert (before.source, after.source) == (ReservationSource.RELEASE, ReservationSource.BIND)
    assert after.serial > before.serial
    assert harness.reserved() == {"requests.cpu": "2"}
    harness.bind("web")
    harness.step()
    assert (harness.used(), harness.held()) == ({"requests.cpu": "2"}, {})


def test_what_is_reserved_for_a_released_pod_goes_to_no_other(harness: ControllerHarness) -> None:
    harness.pod("other", "1")
    gated(harness, "web", "2")
    harness.step()
    assert isinstance(harness.reserve("other"), QuotaExceeded)


def test_a_lowered_quota_leaves_reservations_as_they_are(harness: ControllerHarness) -> None:
    gated(harness, "web", "2")
    harness.step()
    patch = {"spec": {"hard": {"requests.cpu": "1"}}}
    harness.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)
    harness.step()
    assert harness.reserved() == {"requests.cpu": "2"}
    assert isinstance(harness.reserve("web"), QuotaExceeded)


# -- pods that no node takes ---------------------------------------------------------------


def long_enough(harness: ControllerHarness) -> None:
    for _ in range(4):
        harness.pass_time(GATE_RELEASE_SECONDS / 2 + 1)
        harness.step()


@pytest.fixture
def stuck(harness: ControllerHarness) -> ControllerHarness:
    """Pod `web` was released and takes all of the quota; `next` waits."""
    gated(harness, "web", "2")
    gated(harness, "next", "2")
    harness.step()
    assert released(harness) == ["web"]
    return harness


def test_a_released_pod_that_no_node_takes_gives_its_quota_to_the_next(
    stuck: ControllerHarness,
) -> None:
    condition(stuck, "web")
    stuck.step()
    stuck.pass_time(GATE_RELEASE_SECONDS - 1)
    stuck.step()
    assert set(stuck.held()) == {"web"}
    stuck.pass_time(2)
    stuck.step()
    assert set(stuck.held()) == {"next"}
    assert gates(stuck, "next") == []
    assert isinstance(stuck.reserve("web"), QuotaExceeded)
    assert stuck.lost_reservations == [(NAMESPACE, ["uid-web"])]


@pytest.mark.parametrize("end", ["bound", "deleted"])
def test_no_more_pods_that_may_preempt_are_without_a_node_than_a_quota_has_room_for(
    harness: ControllerHarness, end: str
) -> None:
    high = {"priority": 1000}
    gated(harness, "web", "2", **high)
    for name in ("next", "last"):
        gated(harness, name, "1", **high)
    gated(harness, "polite", "1", preemptionPolicy="Never", priority=500)
    harness.step()
    condition(harness, "web")
    harness.step()
    harness.pass_time(GATE_RELEASE_SECONDS + 1)
    harness.step()
    assert released(harness) == ["polite", "web"]
    assert why(harness) == dict.fromkeys(("next", "last"), PendingReason.PREEMPTORS_UNBOUND)
    if end == "deleted":
        harness.delete("web")
        harness.step()
        assert released(harness) == ["next", "polite"]
    else:
        harness.delete("polite")
        harness.step()
        assert isinstance(harness.reserve("web"), Reserved)
        harness.bind("web")
        harness.step()
        assert why(harness) == {
            "next": PendingReason.QUOTA_EXCEEDED,
            "last": PendingReason.BEHIND,
        }


def test_one_that_no_scheduler_tries_gives_it_back_in_the_end(stuck: ControllerHarness) -> None:
    stuck.step()  # it is seen without its gate
    stuck.pass_time(10 * GATE_RELEASE_SECONDS - 1)
    stuck.step()
    assert set(stuck.held()) == {"web"}
    stuck.pass_time(2)
    stuck.step()
    assert set(stuck.held()) == {"next"}


def test_one_whose_bind_is_refused_gives_its_quota_to_the_next(stuck: ControllerHarness) -> None:
    condition(stuck, "web", "SchedulerError")
    stuck.step()
    stuck.pass_time(GATE_RELEASE_SECONDS + 1)
    stuck.step()
    assert set(stuck.held()) == {"next"}


KEPT: Mapping[str, Mapping[str, str]] = {
    "nobody has tried it": {},
    "it is to get a node": {"reason": "Unschedulable", "nominatedNodeName": "node-1"},
    "it was behind the gate when it was tried": {"reason": "SchedulingGated"},
}


@pytest.mark.parametrize("said", KEPT.values(), ids=KEPT.keys())
def test_one_that_may_get_a_node_keeps_its_quota(
    stuck: ControllerHarness, said: Mapping[str, str]
) -> None:
    if said:
        condition(stuck, "web", **said)
    stuck.step()
    long_enough(stuck)
    assert set(stuck.held()) == {"web"}


def test_one_that_got_a_chance_in_between_is_watched_anew(stuck: ControllerHarness) -> None:
    condition(stuck, "web")
    stuck.step()
    stuck.pass_time(GATE_RELEASE_SECONDS - 5)
    condition(stuck, "web", nominatedNodeName="node-1")
    stuck.step()
    condition(stuck, "web", nominatedNodeName=None)
    stuck.step()
    stuck.pass_time(10)
    stuck.step()
    assert set(stuck.held()) == {"web"}
    stuck.pass_time(GATE_RELEASE_SECONDS)
    stuck.step()
    assert set(stuck.held()) == {"next"}


def test_one_that_gets_a_chance_again_and_again_gives_it_back_in_the_end(
    stuck: ControllerHarness,
) -> None:
    for number in range(2 * 10):
        condition(stuck, "web", nominatedNodeName=None if number % 2 else "node-1")
        stuck.step()
        assert set(stuck.held()) == {"web"}
        stuck.pass_time(GATE_RELEASE_SECONDS / 2)
    stuck.pass_time(2)
    stuck.step()
    assert set(stuck.held()) == {"next"}


def test_what_a_bind_reserved_is_kept_while_others_are_evicted_for_the_pod(
    harness: ControllerHarness,
) -> None:
    harness.pod("web", "2")
    harness.catch_up()
    harness.step()
    assert isinstance(harness.reserve("web"), Reserved)
    condition(harness, "web", nominatedNodeName="node-1")
    harness.step()
    harness.pass_time(10 * GATE_RELEASE_SECONDS - 1)
    harness.step()
    assert set(harness.held()) == {"web"}
    harness.pass_time(2)
    harness.step()
    assert not harness.held()


def test_one_that_still_has_the_gate_keeps_its_quota(harness: ControllerHarness) -> None:
    harness.removes_gates_at_once = False
    gated(harness, "web", "2")
    harness.step()
    long_enough(harness)
    assert set(harness.held()) == {"web"}


def test_one_whose_gate_stays_on_is_reserved_for_anew_in_its_turn(
    harness: ControllerHarness,
) -> None:
    harness.removes_gates_at_once = False
    gated(harness, "web", "2")
    harness.step()
    gated(harness, "urgent", "2", priority=1000)
    harness.pass_time(GATE_RELEASE_SECONDS - 1)
    harness.step()
    assert set(harness.held()) == {"web"}
    harness.pass_time(EXPIRE_SECONDS)
    harness.step()
    assert set(harness.held()) == {"urgent"}


def test_a_resize_of_a_released_pod_does_not_take_its_promise_away(
    harness: ControllerHarness,
) -> None:
    gated(harness, "web", "1")
    harness.step()
    assert isinstance(harness.reserve_resize("web", "3"), QuotaExceeded)
    assert isinstance(harness.reserve_resize("web", "2"), Reserved)
    assert harness.reserved() == {"requests.cpu": "2"}
    harness.step()
    long_enough(harness)
    assert [one.source for one in harness.held().values()] == [ReservationSource.RELEASE]


def test_nothing_is_given_back_while_the_api_server_shows_something_else(
    stuck: ControllerHarness,
) -> None:
    condition(stuck, "web")
    stuck.step()
    stuck.pass_time(GATE_RELEASE_SECONDS + 1)
    stuck.client.pause(PODS)
    stuck.api.patch(PODS, "web", {"metadata": {"labels": {"a": "b"}}}, namespace=NAMESPACE)
    stuck.reconcile_once()
    assert set(stuck.held()) == {"web"}


def test_one_that_was_tried_by_a_bind_is_watched_like_any_bind(stuck: ControllerHarness) -> None:
    assert isinstance(stuck.reserve("web"), Reserved)
    stuck.step()
    stuck.pass_time(EXPIRE_SECONDS + 1)
    stuck.step()
    assert set(stuck.held()) == {"next"}


@pytest.mark.parametrize("end", ["finish", "delete"])
def test_a_released_pod_that_is_no_more_leaves_its_quota_at_once(
    stuck: ControllerHarness, end: str
) -> None:
    if end == "finish":
        stuck.finish("web")
    else:
        stuck.delete("web")
    stuck.step()
    assert set(stuck.held()) == {"next"}
    assert stuck.lost_reservations == []
    if end == "delete":
        with pytest.raises(NotFoundError):
            stuck.api.get(PODS, "web", namespace=NAMESPACE)


# -- what is told --------------------------------------------------------------------------


def test_what_is_reported_is_what_is_written(harness: ControllerHarness) -> None:
    harness.queue_updates.clear()
    crowd(harness, 4)
    harness.step()
    namespace, held, releasable = harness.queue_updates[-1]
    assert namespace == NAMESPACE
    assert releasable == ["uid-w0000", "uid-w0001"]
    assert [(one.position, one.blocked_by) for one in held.values()] == [(1, ""), (2, "w0002")]
    assert held["uid-w0002"].message == (
        "exceeded quota: p1, requested: requests.cpu=1, used: requests.cpu=2,"
        " limited: requests.cpu=2"
    )
    assert harness.metric("released_pods_total") == 2
    assert harness.metric("queue_wait_seconds_count") == 2
    assert harness.metric("waiting_pods", state="Behind") == 1
    assert harness.metric("waiting_pods", state="Reserved") == 2
    harness.step()
    harness.mark_dirty()
    harness.step()
    assert harness.queue_updates[-1][2] == []
    assert harness.metric("waiting_pods", state="Reserved") == 0


def test_where_no_pod_waits_nothing_is_reported(harness: ControllerHarness) -> None:
    harness.pod("web", node="node-1")
    harness.step()
    assert harness.queue_updates == []


def test_a_pod_that_may_fit_is_looked_at_at_once_and_one_that_cannot_later() -> None:
    with new_harness(a_quota("p1"), fold_seconds=5.0) as harness:
        harness.step()
        _may_fit_at_once_and_cannot_later(harness)


def _may_fit_at_once_and_cannot_later(harness: ControllerHarness) -> None:
    gated(harness, "a", "1")
    gated(harness, "b", "2")
    harness.step()
    assert gates(harness, "a") == []
    harness.catch_up()
    harness.pass_time(6)
    harness.reconcile_once()
    gated(harness, "behind", "1")
    harness.catch_up()
    assert harness.seconds_to_next() >= 4.9
    gated(harness, "first", "500m", priority=9)
    harness.catch_up()
    assert harness.seconds_to_next() == 0


def test_another_leadership_of_the_process_reports_that_no_pod_waits_any_more(
    harness: ControllerHarness,
) -> None:
    names = crowd(harness, 4)
    harness.step()
    assert harness.metric("waiting_pods", state="QuotaExceeded") == 1
    harness.epoch[0] = 2
    for name in names:  # another process has led meanwhile
        harness.delete(name)
    harness.step()
    assert harness.queue_updates[-1] == (NAMESPACE, {}, [])
    assert harness.metric("waiting_pods", state="QuotaExceeded") == 0
    told = len(harness.queue_updates)
    harness.mark_dirty()
    harness.step()
    assert len(harness.queue_updates) == told  # once


def test_when_a_namespace_is_gone_that_is_reported_although_no_pod_has_waited_any_more(
    harness: ControllerHarness,
) -> None:
    gated(harness, "w", "1")
    harness.step()
    harness.reserve("w")
    harness.bind("w")
    harness.step()
    harness.delete("w")
    harness.step()
    harness.queue_updates.clear()
    harness.api.delete(NAMESPACES, NAMESPACE)
    harness.catch_up()
    harness.pass_time(RESYNC_SECONDS)
    harness.step()
    assert not harness.is_tracked()
    assert harness.queue_updates[-1:] == [(NAMESPACE, {}, [])]


def test_a_look_at_a_namespace_sums_no_others_in_which_pods_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    teams = [f"busy-{number}" for number in range(20)]
    full = [a_quota("p1", hard={"requests.cpu": "1"}, namespace=one) for one in teams]
    with new_harness(*map(a_namespace, teams), *full) as harness:
        for one in teams:
            harness.pod(f"runs-{one}", namespace=one, node="node-1")
            gated(harness, one, namespace=one)
        steps(harness)
        assert harness.metric("waiting_pods", state="QuotaExceeded") == 20
        sums = calls_of(monkeypatch, Counter, "update")
        harness.mark_dirty(teams[0])
        harness.step()
        assert 0 < len(sums) <= 4
        harness.delete(teams[0], namespace=teams[0])
        opt_out(harness.api, teams[1])
        harness.step()
        assert harness.metric("waiting_pods", state="QuotaExceeded") == 18
