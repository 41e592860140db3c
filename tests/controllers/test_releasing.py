"""Pods behind our gate are reserved for in their order, and only then lose the gate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import pytest

from tests.admission.doors.desk import a_namespace, eventually, opt_out
from tests.builders import a_quota, an_expression
from tests.controllers.rig import (
    EXPIRE_SECONDS,
    GIVE_UP_SECONDS,
    NAMESPACE,
    Rig,
    a_rig,
    another_rig,
)
from tests.controllers.sharers import granted, shared_quota, steps
from webhook.cluster.api import (
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    InternalError,
    NotFoundError,
    Revision,
)
from webhook.controllers import gates as gates_module
from webhook.controllers.counts import LATE_SECONDS
from webhook.quota.ledger import Door
from webhook.quota.line import LineRules, Order, Waits
from webhook.quota.refusals import QuotaExceeded
from webhook.quota.shadow import Findings
from webhook.state.gates import gate_removal
from webhook.state.names import GATE
from webhook.state.reserver import Reserved
from webhook.state.shadow_books import ShadowBooks

Object = dict[str, object]

OTHER = "example.com/other"


@pytest.fixture
def rig() -> Iterator[Rig]:
    """A quota of 2 cpu, counted."""
    with a_rig(a_quota("p1")) as made:
        made.step()
        yield made


def gated(rig: Rig, name: str, cpu: str = "1", *others: str, **fields: object) -> None:
    """Store a pod that waits behind our gate, and perhaps behind gates of others."""
    gates = [{"name": gate} for gate in (*others, GATE)]
    rig.pod(name, cpu, schedulingGates=gates, **fields)  # type: ignore[arg-type]


def crowd(rig: Rig, count: int, **fields: object) -> list[str]:
    names = [f"w{number:04}" for number in range(count)]
    for name in names:
        gated(rig, name, **fields)  # type: ignore[arg-type]
    return names


def gates(rig: Rig, name: str) -> list[str]:
    spec = cast("Object", rig.api.get(PODS, name, namespace=NAMESPACE)["spec"])
    return [str(one["name"]) for one in cast("list[Object]", spec.get("schedulingGates") or [])]


def released(rig: Rig) -> list[str]:
    """Names of the pods that were gated and are not any more, in the order of their names."""
    found = rig.api.list(PODS, namespace=NAMESPACE).items
    named = {str(cast("Object", one["metadata"])["name"]) for one in found}
    return sorted(name for name in named if not gates(rig, name))


def condition(rig: Rig, name: str, reason: str = "Unschedulable", **status: object) -> None:
    """Let the scheduler say that it has tried a pod in vain."""
    said = {"type": "PodScheduled", "status": "False", "reason": reason}
    patch = {"status": {"conditions": [said], **status}}
    rig.api.patch(PODS, name, patch, namespace=NAMESPACE, subresource="status")


def why(rig: Rig) -> dict[str, Waits]:
    """Why pods wait, as it was told last, by name."""
    _, held, _ = rig.told_lines[-1]
    return {uid.removeprefix("uid-"): one.reason for uid, one in held.items()}


# -- releasing -----------------------------------------------------------------------------


def test_what_fits_is_reserved_for_in_one_write_and_then_loses_its_gate(rig: Rig) -> None:
    names = crowd(rig, 5)
    rig.removes_gates = False
    before = rig.version()
    rig.step()
    after = rig.version()
    assert before is not None
    assert after is not None
    assert after.resource_version == before.resource_version + 5 + 1  # five pods, one write
    assert set(rig.held()) == {"w0000", "w0001"}
    assert {one.door for one in rig.held().values()} == {Door.RELEASE}
    assert released(rig) == []
    rig.removes_gates = True
    rig.round()
    assert released(rig) == names[:2]
    assert rig.reserved() == {"requests.cpu": "2"}
    assert why(rig) == {
        "w0002": Waits.QUOTA_EXCEEDED,
        "w0003": Waits.BEHIND,
        "w0004": Waits.BEHIND,
    }


def test_nothing_loses_its_gate_when_the_write_fails(rig: Rig) -> None:
    gated(rig, "web")
    rig.line.broken.add(("update_status", "quotaledgers"))
    rig.step()
    assert released(rig) == []
    rig.line.broken.clear()
    rig.pass_time(2)
    rig.step()
    assert released(rig) == ["web"]


def test_a_door_that_was_faster_is_taken_into_account(rig: Rig) -> None:
    rig.pod("bound", "1500m")
    rig.step()
    gated(rig, "web")
    rig.catch_up()

    def reserve() -> None:
        rig.line.before_write = None
        assert isinstance(rig.reserve("bound"), Reserved)

    rig.line.before_write = reserve
    rig.round()
    assert set(rig.held()) == {"bound"}
    assert gates(rig, "web") == [GATE]
    assert why(rig) == {"web": Waits.QUOTA_EXCEEDED}


@pytest.mark.parametrize("end", ["finish", "delete", "raise the quota", "delete the quota"])
def test_what_becomes_free_is_given_on_in_the_write_that_notices_it(rig: Rig, end: str) -> None:
    rig.pod("old", "2", node="node-1")
    gated(rig, "next", "2")
    rig.step()
    assert released(rig) == ["old"]
    before = rig.counted("ledger_settlements_total", result="written")
    if end == "finish":
        rig.finish("old")
    elif end == "delete":
        rig.delete("old")
    elif end == "raise the quota":
        patch = {"spec": {"hard": {"requests.cpu": "4"}}}
        rig.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)
    else:
        rig.api.delete(RESOURCE_QUOTAS, "p1", namespace=NAMESPACE)
    rig.step()
    assert gates(rig, "next") == []
    assert rig.counted("ledger_settlements_total", result="written") == before + 1


def test_a_thousand_pods_against_room_for_two_hundred() -> None:
    with a_rig(a_quota("p1", hard={"requests.cpu": "200"})) as rig:
        rig.step()
        names = crowd(rig, 1000)
        rig.step()
        assert released(rig) == names[:200]
        assert rig.reserved() == {"requests.cpu": "200"}
        for name in names[:200]:
            assert isinstance(rig.reserve(name), Reserved)
            rig.bind(name)
        rig.step()
        assert (rig.used(), rig.held()) == ({"requests.cpu": "200"}, {})
        for name in names[:100]:
            rig.finish(name)
        rig.step()
        assert [name for name in names if not gates(rig, name)] == names[:300]
        assert rig.reserved() == {"requests.cpu": "100"}
        assert rig.is_exact()


def test_of_forty_in_order_the_first_ten_go() -> None:
    with a_rig(a_quota("p1", hard={"requests.cpu": "10"})) as rig:
        rig.step()
        names = crowd(rig, 40)
        rig.step()
        assert released(rig) == names[:10]


def test_a_high_priority_goes_first_however_late(rig: Rig) -> None:
    rig.pod("old", "2", node="node-1")
    crowd(rig, 5)
    rig.step()
    gated(rig, "urgent", priority=1000)
    rig.finish("old")
    rig.step()
    assert released(rig) == ["old", "urgent", "w0000"]


def test_a_large_pod_in_front_is_not_starved(rig: Rig) -> None:
    rig.pod("old", "1", node="node-1")
    gated(rig, "large", "2")
    crowd(rig, 20)
    rig.step()
    assert released(rig) == ["old"]
    rig.finish("old")
    rig.step()
    assert released(rig) == ["large", "old"]


def test_with_best_effort_a_large_pod_is_passed_so_many_times_and_no_more(rig: Rig) -> None:
    rig.rules = LineRules(order=Order.BEST_EFFORT, most_overtakes=3)
    rig.pod("old", "1", node="node-1")
    gated(rig, "large", "2")
    names = crowd(rig, 20)
    for number in range(3):
        rig.step()
        assert gates(rig, names[number]) == []
        rig.api.delete(PODS, names[number], namespace=NAMESPACE)
    rig.step()
    assert gates(rig, names[3]) == [GATE]
    rig.finish("old")
    rig.step()
    assert gates(rig, "large") == []


def test_with_best_effort_a_pod_that_waited_too_long_is_passed_no_more(rig: Rig) -> None:
    rig.rules = LineRules(order=Order.BEST_EFFORT, longest_wait_seconds=30)
    rig.pod("old", "1", node="node-1")
    gated(rig, "large", "2")
    rig.step()
    rig.pass_time(31)
    gated(rig, "small", "1")
    rig.step()
    assert gates(rig, "small") == [GATE]
    assert why(rig)["small"] is Waits.BEHIND


def test_what_it_has_waited_is_not_forgotten_because_it_could_never_fit_for_a_while(
    rig: Rig,
) -> None:
    rig.rules = LineRules(order=Order.BEST_EFFORT, longest_wait_seconds=30)
    rig.pod("busy", "1", node="node-1")
    gated(rig, "large", "2")
    rig.step()
    rig.pass_time(20)
    for cpu in ("1", "2"):
        patch = {"spec": {"hard": {"requests.cpu": cpu}}}
        rig.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)
        rig.step()
    rig.pass_time(20)
    gated(rig, "small", "1")
    rig.step()
    assert why(rig) == {"large": Waits.QUOTA_EXCEEDED, "small": Waits.BEHIND}


def test_other_rules_take_effect_without_a_restart(rig: Rig) -> None:
    rig.pod("old", "1", node="node-1")
    gated(rig, "large", "2")
    gated(rig, "small", "1")
    rig.step()
    assert gates(rig, "small") == [GATE]
    rig.rules = LineRules(order=Order.BEST_EFFORT)
    rig.tracker.look_at_lines()
    rig.step()
    assert gates(rig, "small") == []


def test_a_pod_that_no_quota_concerns_goes_without_a_reservation() -> None:
    gold = an_expression("PriorityClass", "In", "gold")
    with a_rig(a_quota("p1", expressions=[gold])) as rig:
        gated(rig, "plain", "99")
        rig.step()
        assert released(rig) == ["plain"]
        assert rig.held() == {}


def test_without_any_quota_gates_go_too() -> None:
    with a_rig() as rig:
        gated(rig, "plain", "99")
        gated(rig, "twice", "99", OTHER)
        rig.step()
        assert released(rig) == ["plain"]
        assert gates(rig, "twice") == [OTHER]
        assert not rig.has_ledger()


def test_ours_goes_last_where_there_are_gates_of_others(rig: Rig) -> None:
    gated(rig, "web", "1", OTHER)
    rig.step()
    assert (gates(rig, "web"), rig.held()) == ([OTHER, GATE], {})
    assert why(rig) == {"web": Waits.OTHER_GATES}
    patch = {"spec": {"schedulingGates": [{"name": GATE}]}}
    rig.api.patch(PODS, "web", patch, namespace=NAMESPACE)
    rig.step()
    assert (gates(rig, "web"), set(rig.held())) == ([], {"web"})


def test_a_full_ledger_lets_no_more_go_until_there_is_room() -> None:
    with a_rig(a_quota("p1", hard={"requests.cpu": "9"}), capacity=2) as rig:
        rig.step()
        names = crowd(rig, 3)
        rig.step()
        assert released(rig) == names[:2]
        assert why(rig) == {"w0002": Waits.LEDGER_FULL}
        rig.reserve(names[0])
        rig.bind(names[0])
        rig.step()
        assert released(rig) == names


def test_a_namespace_that_opts_out_leaves_no_pod_behind_the_gate(rig: Rig) -> None:
    names = crowd(rig, 5)
    rig.step()
    assert released(rig) == names[:2]
    opt_out(rig.api, NAMESPACE)
    rig.step()
    assert released(rig) == names
    rig.step()
    assert NAMESPACE not in rig.tracker._counts.tracked


def test_of_who_goes_because_of_that_nobody_says_that_quota_is_reserved(rig: Rig) -> None:
    names = crowd(rig, 5)
    rig.step()
    assert {uid for _, _, may_go in rig.told_lines for uid in may_go} == {"uid-w0000", "uid-w0001"}
    rig.told_lines.clear()
    opt_out(rig.api, NAMESPACE)
    rig.step()
    assert released(rig) == names
    assert [(held, list(may_go)) for _, held, may_go in rig.told_lines] == [({}, [])]


def test_it_is_not_left_before_every_gate_is_off(rig: Rig) -> None:
    names = crowd(rig, 3)
    rig.step()
    rig.removes_gates = False
    opt_out(rig.api, NAMESPACE)
    rig.step()
    rig.step()
    assert NAMESPACE in rig.tracker._counts.tracked
    rig.removes_gates = True
    rig.round()
    rig.pass_time(1)
    rig.step()
    assert released(rig) == names
    rig.step()
    assert NAMESPACE not in rig.tracker._counts.tracked


def test_a_gate_that_comes_after_that_is_taken_off_a_little_later(rig: Rig) -> None:
    opt_out(rig.api, NAMESPACE)
    rig.step()
    rig.step()
    gated(rig, "web")  # it was on its way
    rig.step()
    assert gates(rig, "web") == [GATE]
    rig.pass_time(LATE_SECONDS)
    rig.step()
    assert gates(rig, "web") == []
    rig.step()
    assert NAMESPACE not in rig.tracker._counts.tracked


def test_a_pod_that_is_seen_before_the_opt_in_keeps_its_gate_and_its_place() -> None:
    with a_rig(a_quota("p1"), mode="") as rig:
        rig.step()
        gated(rig, "huge", "2")
        gated(rig, "web")
        rig.step()
        rig.api.patch(
            NAMESPACES, NAMESPACE, {"metadata": {"labels": {"deferredquota.io/mode": "deferred"}}}
        )
        rig.step()
        rig.pass_time(LATE_SECONDS)
        rig.step()
        assert released(rig) == ["huge"]
        assert set(rig.held()) == {"huge"}


def opt_in(rig: Rig) -> None:
    labels = {"deferredquota.io/mode": "deferred"}
    rig.api.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": labels}})


@pytest.mark.parametrize("is_new_leader", [False, True])
def test_nor_does_it_lose_them_while_that_opt_in_is_not_seen_for_long(
    *, is_new_leader: bool
) -> None:
    with a_rig(a_quota("p1"), mode="") as rig:
        rig.step()
        rig.line.hold(NAMESPACES)
        opt_in(rig)
        gated(rig, "huge", "2")
        gated(rig, "web")
        eventually(lambda: len(rig.tracker.pods) == 2, "the pods are seen")
        rig.term[0] += is_new_leader
        for _ in range(3):
            rig.pass_time(LATE_SECONDS)
            rig.round()
        assert released(rig) == []
        rig.line.resume()
        rig.step()
        assert released(rig) == ["huge"]
        assert set(rig.held()) == {"huge"}


def test_a_standby_does_not_keep_a_namespace_for_a_gate_that_came_and_went() -> None:
    with a_rig(a_quota("p1"), mode="") as rig, another_rig(rig, term=[0]) as standby:
        rig.step()
        gated(rig, "web")
        standby.step()
        assert NAMESPACE in standby.tracker._counts.tracked
        rig.step()
        rig.pass_time(LATE_SECONDS)
        rig.step()
        assert gates(rig, "web") == []
        standby.step()
        assert NAMESPACE not in standby.tracker._counts.tracked


def test_gates_that_were_left_behind_are_taken_off_by_the_next_leader(rig: Rig) -> None:
    opt_out(rig.api, NAMESPACE)
    rig.step()
    rig.step()
    gated(rig, "web")
    rig.step()
    assert gates(rig, "web") == [GATE]
    rig.term[0] += 1
    rig.step()
    assert gates(rig, "web") == []
    assert rig.held() == {}


def test_gates_go_in_shadow_mode_and_its_record_stays() -> None:
    with a_rig(mode="shadow", follows=True) as rig:
        books = ShadowBooks(rig.api)
        books.add(NAMESPACE, Findings({}), writer="w", number=1, begins=True)
        books.add(NAMESPACE, Findings({"attempts": 7}), writer="w", number=2)
        gated(rig, "web")
        before = rig.api.get(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
        for _ in range(4):
            rig.step()
            rig.pass_time(1.5)
        assert gates(rig, "web") == []
        assert rig.api.get(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE) == before
        assert NAMESPACE not in rig.tracker._counts.tracked


def test_what_a_namespace_holds_of_a_shared_quota_is_given_back_though_its_ledger_is_gone() -> None:
    with a_rig(a_namespace("team-b"), shared_quota(), follows=True) as rig:
        steps(rig)
        rig.pod("mine", "3", node="n1")
        steps(rig)
        assert granted(rig)[NAMESPACE] == "3"
        found = rig.api.get(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
        rig.api.update_status(QUOTA_LEDGERS, {**found, "status": {}})
        opt_out(rig.api, NAMESPACE)
        for _ in range(4):
            steps(rig)
            rig.pass_time(EXPIRE_SECONDS)
        assert NAMESPACE not in granted(rig)


def test_what_is_not_wanted_any_more_is_not_sent(rig: Rig) -> None:
    rig.removes_gates = False
    gated(rig, "web")
    rig.step()
    remover = rig.tracker._lines._gates
    assert remover.waiting == 1
    remover.want(NAMESPACE, (), since=0.0, may=lambda: True)
    assert remover.work(0)
    assert gates(rig, "web") == [GATE]


def test_a_pod_that_takes_nothing_goes_without_a_reservation(rig: Rig) -> None:
    rig.pod("old", "2", node="node-1")
    gated(rig, "web", "0")
    rig.step()
    assert (gates(rig, "web"), rig.held()) == ([], {})


def test_a_standby_releases_nothing(rig: Rig) -> None:
    rig.term[0] = 0
    gated(rig, "web")
    rig.step()
    assert (gates(rig, "web"), rig.held()) == ([GATE], {})


def test_a_pod_whose_gate_somebody_else_removed_is_out_of_the_line(rig: Rig) -> None:
    rig.pod("old", "2", node="node-1")
    gated(rig, "web")
    rig.step()
    patch: Object = {"spec": {"schedulingGates": []}}
    rig.api.patch(PODS, "web", patch, namespace=NAMESPACE)
    rig.step()
    assert rig.held() == {}
    assert isinstance(rig.reserve("web"), QuotaExceeded)


# -- when something fails ------------------------------------------------------------------


def test_the_next_leader_removes_the_gates_that_this_one_did_not(rig: Rig) -> None:
    rig.removes_gates = False
    crowd(rig, 3)
    rig.step()
    rig.term[0] = 0
    with another_rig(rig, term=[2]) as other:
        before = rig.version()
        other.step()
        assert released(other) == ["w0000", "w0001"]
        assert rig.version() == before  # reserved once
        assert set(other.held()) == {"w0000", "w0001"}


def test_a_leader_that_is_none_any_more_removes_no_gate(rig: Rig) -> None:
    rig.removes_gates = False
    gated(rig, "web")
    rig.step()
    rig.term[0] = 0
    assert rig.tracker._gates.work(0)
    assert gates(rig, "web") == [GATE]
    assert rig.counted("gate_removals_total", result="dropped") == 1


def test_a_patch_that_failed_is_sent_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = rig.line.patch

    def fail(*_: object, **__: object) -> Revision:
        raise InternalError("no")

    monkeypatch.setattr(rig.line, "patch", fail)
    gated(rig, "web")
    rig.step()
    assert gates(rig, "web") == [GATE]
    assert rig.counted("gate_removals_total", result="failed") == 1
    monkeypatch.setattr(rig.line, "patch", genuine)
    rig.pass_time(1.5)
    rig.step()
    assert gates(rig, "web") == []
    assert rig.counted("gate_removals_total", result="removed") == 1


def test_a_fault_of_the_program_does_not_lose_a_gate(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = rig.line.patch

    def fail(*_: object, **__: object) -> Revision:
        monkeypatch.setattr(rig.line, "patch", genuine)
        raise RuntimeError("a fault")

    monkeypatch.setattr(rig.line, "patch", fail)
    gated(rig, "web")
    with pytest.raises(RuntimeError):
        rig.step()
    rig.pass_time(1.5)
    rig.step()
    assert gates(rig, "web") == []


def test_another_pod_of_the_name_keeps_its_gate(rig: Rig) -> None:
    rig.removes_gates = False
    gated(rig, "web", "2")
    rig.step()
    rig.delete("web")
    rig.pod("web", "2", schedulingGates=[{"name": GATE}], metadata={"uid": "another"})
    rig.tracker._gates.work(0)
    assert gates(rig, "web") == [GATE]
    assert rig.counted("gate_removals_total", result="changed") == 1
    rig.removes_gates = True
    rig.pass_time(1.5)
    rig.step()
    assert gates(rig, "web") == []
    assert [one.uid for one in rig.held().values()] == ["another"]


def test_gates_that_moved_are_looked_at_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:

    def elsewhere(_uid: str, _index: int) -> list[dict[str, object]]:
        monkeypatch.setattr(gates_module, "gate_removal", gate_removal)
        gate = "/spec/schedulingGates/3"
        return [{"op": "test", "path": f"{gate}/name", "value": GATE}]

    monkeypatch.setattr(gates_module, "gate_removal", elsewhere)
    gated(rig, "web")
    rig.step()
    assert gates(rig, "web") == [GATE]
    rig.pass_time(1.5)
    rig.step()
    assert gates(rig, "web") == []


def test_a_gate_is_removed_once_however_late_the_cache_is(rig: Rig) -> None:
    gated(rig, "web")
    rig.catch_up()
    rig.line.hold(PODS)
    rig.round()
    for _ in range(3):
        rig.poke()
        rig.round()
    rig.line.resume()
    rig.step()
    assert rig.counted("gate_removals_total", result="removed") == 1
    assert rig.counted("gate_removals_total", result="changed") == 0


# -- binding what was released -------------------------------------------------------------


def test_the_bind_of_a_released_pod_finds_its_reservation_and_is_not_charged_twice(
    rig: Rig,
) -> None:
    gated(rig, "web", "2")
    rig.step()
    (before,) = rig.held().values()
    assert isinstance(rig.reserve("web"), Reserved)
    (after,) = rig.held().values()
    assert (before.door, after.door) == (Door.RELEASE, Door.BIND)
    assert after.serial > before.serial
    assert rig.reserved() == {"requests.cpu": "2"}
    rig.bind("web")
    rig.step()
    assert (rig.used(), rig.held()) == ({"requests.cpu": "2"}, {})


def test_what_is_reserved_for_a_released_pod_goes_to_no_other(rig: Rig) -> None:
    rig.pod("other", "1")
    gated(rig, "web", "2")
    rig.step()
    assert isinstance(rig.reserve("other"), QuotaExceeded)


def test_a_lowered_quota_leaves_reservations_as_they_are(rig: Rig) -> None:
    gated(rig, "web", "2")
    rig.step()
    patch = {"spec": {"hard": {"requests.cpu": "1"}}}
    rig.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)
    rig.step()
    assert rig.reserved() == {"requests.cpu": "2"}
    assert isinstance(rig.reserve("web"), QuotaExceeded)


# -- pods that no node takes ---------------------------------------------------------------


def long_enough(rig: Rig) -> None:
    for _ in range(4):
        rig.pass_time(GIVE_UP_SECONDS / 2 + 1)
        rig.step()


@pytest.fixture
def stuck(rig: Rig) -> Rig:
    """Pod `web` was released and takes all of the quota; `next` waits."""
    gated(rig, "web", "2")
    gated(rig, "next", "2")
    rig.step()
    assert released(rig) == ["web"]
    return rig


def test_a_released_pod_that_no_node_takes_gives_its_quota_to_the_next(stuck: Rig) -> None:
    condition(stuck, "web")
    stuck.step()
    stuck.pass_time(GIVE_UP_SECONDS - 1)
    stuck.step()
    assert set(stuck.held()) == {"web"}
    stuck.pass_time(2)
    stuck.step()
    assert set(stuck.held()) == {"next"}
    assert gates(stuck, "next") == []
    assert isinstance(stuck.reserve("web"), QuotaExceeded)
    assert stuck.told_given_up == [(NAMESPACE, ["uid-web"])]


def test_one_that_no_scheduler_tries_gives_it_back_in_the_end(stuck: Rig) -> None:
    stuck.step()  # it is seen without its gate
    stuck.pass_time(10 * GIVE_UP_SECONDS - 1)
    stuck.step()
    assert set(stuck.held()) == {"web"}
    stuck.pass_time(2)
    stuck.step()
    assert set(stuck.held()) == {"next"}


def test_one_whose_bind_is_refused_gives_its_quota_to_the_next(stuck: Rig) -> None:
    condition(stuck, "web", "SchedulerError")
    stuck.step()
    stuck.pass_time(GIVE_UP_SECONDS + 1)
    stuck.step()
    assert set(stuck.held()) == {"next"}


KEPT: Mapping[str, Mapping[str, str]] = {
    "nobody has tried it": {},
    "it is to get a node": {"reason": "Unschedulable", "nominatedNodeName": "node-1"},
    "it was behind the gate when it was tried": {"reason": "SchedulingGated"},
}


@pytest.mark.parametrize("said", KEPT.values(), ids=KEPT.keys())
def test_one_that_may_get_a_node_keeps_its_quota(stuck: Rig, said: Mapping[str, str]) -> None:
    if said:
        condition(stuck, "web", **said)
    stuck.step()
    long_enough(stuck)
    assert set(stuck.held()) == {"web"}


def test_one_that_got_a_chance_in_between_is_watched_anew(stuck: Rig) -> None:
    condition(stuck, "web")
    stuck.step()
    stuck.pass_time(GIVE_UP_SECONDS - 5)
    condition(stuck, "web", nominatedNodeName="node-1")
    stuck.step()
    condition(stuck, "web", nominatedNodeName=None)
    stuck.step()
    stuck.pass_time(10)
    stuck.step()
    assert set(stuck.held()) == {"web"}
    stuck.pass_time(GIVE_UP_SECONDS)
    stuck.step()
    assert set(stuck.held()) == {"next"}


def test_one_that_still_has_the_gate_keeps_its_quota(rig: Rig) -> None:
    rig.removes_gates = False
    gated(rig, "web", "2")
    rig.step()
    long_enough(rig)
    assert set(rig.held()) == {"web"}


def test_a_resize_of_a_released_pod_does_not_take_its_promise_away(rig: Rig) -> None:
    gated(rig, "web", "1")
    rig.step()
    assert isinstance(rig.reserve_resize("web", "3"), QuotaExceeded)
    assert isinstance(rig.reserve_resize("web", "2"), Reserved)
    assert rig.reserved() == {"requests.cpu": "2"}
    rig.step()
    long_enough(rig)
    assert [one.door for one in rig.held().values()] == [Door.RELEASE]


def test_nothing_is_given_back_while_the_api_server_shows_something_else(stuck: Rig) -> None:
    condition(stuck, "web")
    stuck.step()
    stuck.pass_time(GIVE_UP_SECONDS + 1)
    stuck.line.hold(PODS)
    stuck.api.patch(PODS, "web", {"metadata": {"labels": {"a": "b"}}}, namespace=NAMESPACE)
    stuck.round()
    assert set(stuck.held()) == {"web"}


def test_one_that_was_tried_at_the_door_is_watched_like_any_bind(stuck: Rig) -> None:
    assert isinstance(stuck.reserve("web"), Reserved)
    stuck.step()
    stuck.pass_time(EXPIRE_SECONDS + 1)
    stuck.step()
    assert set(stuck.held()) == {"next"}


@pytest.mark.parametrize("end", ["finish", "delete"])
def test_a_released_pod_that_is_no_more_leaves_its_quota_at_once(stuck: Rig, end: str) -> None:
    if end == "finish":
        stuck.finish("web")
    else:
        stuck.delete("web")
    stuck.step()
    assert set(stuck.held()) == {"next"}
    assert stuck.told_given_up == []
    if end == "delete":
        with pytest.raises(NotFoundError):
            stuck.api.get(PODS, "web", namespace=NAMESPACE)


# -- what is told --------------------------------------------------------------------------


def test_what_is_told_is_what_is_written(rig: Rig) -> None:
    rig.told_lines.clear()
    crowd(rig, 4)
    rig.step()
    namespace, held, may_go = rig.told_lines[-1]
    assert namespace == NAMESPACE
    assert may_go == ["uid-w0000", "uid-w0001"]
    assert [(one.place, one.holder) for one in held.values()] == [(1, ""), (2, "w0002")]
    assert held["uid-w0002"].message == (
        "exceeded quota: p1, requested: requests.cpu=1, used: requests.cpu=2,"
        " limited: requests.cpu=2"
    )
    assert rig.counted("released_pods_total") == 2
    assert rig.counted("waiting_pods", state="Behind") == 1
    assert rig.counted("waiting_pods", state="Reserved") == 2
    rig.step()
    rig.poke()
    rig.step()
    assert rig.told_lines[-1][2] == []
    assert rig.counted("waiting_pods", state="Reserved") == 0


def test_where_nobody_waits_nothing_is_told(rig: Rig) -> None:
    rig.pod("web", node="node-1")
    rig.step()
    assert rig.told_lines == []


def test_a_pod_that_may_fit_is_looked_at_at_once_and_one_that_cannot_later(rig: Rig) -> None:
    timing = rig.tracker._timing
    object.__setattr__(timing, "fold_seconds", 5.0)
    gated(rig, "a", "1")
    gated(rig, "b", "2")
    rig.step()
    assert gates(rig, "a") == []
    rig.catch_up()
    rig.pass_time(6)
    rig.round()
    gated(rig, "behind", "1")
    rig.catch_up()
    assert rig.tracker._agenda.next_moment() >= rig.clock[0] + 4.9
    gated(rig, "first", "500m", priority=9)
    rig.catch_up()
    assert rig.tracker._agenda.next_moment() <= rig.clock[0]
