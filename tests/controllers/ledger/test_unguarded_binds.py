"""Pods that got their nodes past the handlers are told, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.admission.handlers.harness import opt_in, opt_out
from tests.builders import a_quota
from tests.controllers.controller_harness import (
    EXPIRE_SECONDS,
    NAMESPACE,
    ControllerHarness,
    new_harness,
    second_harness,
)
from tests.reactions import preceded_by, unreachable
from webhook.controllers.ledger.recent_binds import _MAX_PODS
from webhook.kube.api import (
    EVENTS,
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    UnreachableError,
)
from webhook.state.ledger_store import LedgerVersion
from webhook.state.reserver import Reserved

HARD = {"requests.cpu": "90"}


@pytest.fixture
def harness() -> Iterator[ControllerHarness]:
    """A quota that has been counted for longer than a request lasts, in writes of one leader."""
    with new_harness(a_quota("p1", hard=HARD)) as made:
        made.step()
        watched(made)
        yield made


def watched(harness: ControllerHarness) -> None:
    """Let the ledger count the same for longer than a request lasts, and be written then."""
    harness.pass_time(EXPIRE_SECONDS + 1)
    guarded(harness, f"w{harness.cluster.resource_version}")
    harness.step()
    harness.catch_up()


def guarded(harness: ControllerHarness, name: str, **fields: Any) -> None:
    """Bind a pod that was claimed for."""
    harness.pod(name, **fields)
    harness.catch_up()
    assert isinstance(harness.reserve(name), Reserved)
    harness.bind(name)


def unguarded(harness: ControllerHarness, name: str, **fields: Any) -> None:
    """Bind a pod that nobody was asked about."""
    harness.pod(name, **fields)
    harness.catch_up()
    harness.bind(name)


def told(harness: ControllerHarness) -> float:
    assert harness.events_recorded().count("UnguardedBind") == harness.metric(
        "unguarded_binds_total"
    )
    return harness.metric("unguarded_binds_total")


# -- what is told ------------------------------------------------------------------------------


def test_a_pod_that_was_not_reviewed_is_counted_and_reported(harness: ControllerHarness) -> None:
    before = harness.used()
    unguarded(harness, "past")
    harness.step()
    assert harness.used() != before
    assert told(harness) == 1
    (event,) = [one for one in harness.api.list(EVENTS).items if one["reason"] == "UnguardedBind"]
    assert (event["type"], event["involvedObject"]["name"]) == ("Warning", "past")  # type: ignore[index]
    assert str(event["message"]).startswith("pod past got its node past the quota")


def test_it_is_reported_once(harness: ControllerHarness) -> None:
    unguarded(harness, "past")
    harness.step()
    for number in range(3):
        guarded(harness, f"next-{number}")
        harness.pass_time(1)
        harness.step()
    assert told(harness) == 1


def test_one_that_was_created_with_a_node_is_reported(harness: ControllerHarness) -> None:
    harness.pod("past", node="node-1")
    harness.step()
    assert told(harness) == 1


def test_it_is_found_among_others(harness: ControllerHarness) -> None:
    guarded(harness, "asked")
    unguarded(harness, "past")
    guarded(harness, "asked-too")
    harness.step()
    assert told(harness) == 1


def test_of_many_only_some_have_an_event_and_all_are_counted(harness: ControllerHarness) -> None:
    for number in range(8):
        unguarded(harness, f"past-{number}")
    harness.step()
    assert harness.events_recorded().count("UnguardedBind") == 5
    assert harness.metric("unguarded_binds_total") == 8


def test_it_is_reported_after_a_race_with_a_handler_was_lost(harness: ControllerHarness) -> None:
    unguarded(harness, "past")
    harness.pod("asked")
    harness.catch_up()

    def claim() -> None:
        assert isinstance(harness.reserve("asked"), Reserved)

    harness.client.on("update", "*", preceded_by(lambda _: claim()), subresource="status", times=1)
    harness.step()
    assert harness.metric("ledger_settlements_total", result="conflict") == 1
    assert told(harness) == 1


def test_nothing_is_asked_to_find_that_there_is_nothing(harness: ControllerHarness) -> None:
    guarded(harness, "asked")
    harness.catch_up()
    harness.client.calls.clear()
    harness.reconcile_once()
    assert harness.client.calls_of("*", NAMESPACES) == []


# -- what is not told --------------------------------------------------------------------------


def test_pods_that_were_claimed_for_are_not_reported(harness: ControllerHarness) -> None:
    for number in range(3):
        for name in (f"a-{number}", f"b-{number}"):
            guarded(harness, name)
        harness.pass_time(1)
        harness.step()
    assert told(harness) == 0


def test_a_claim_between_the_count_and_its_write_is_seen(harness: ControllerHarness) -> None:
    harness.pod("late")
    guarded(harness, "asked")
    harness.catch_up()

    def claim_and_bind() -> None:
        assert isinstance(harness.reserve("late"), Reserved)
        harness.bind("late")
        harness.catch_up()

    harness.client.on(
        "update", "*", preceded_by(lambda _: claim_and_bind()), subresource="status", times=1
    )
    harness.step()
    harness.pass_time(1)
    harness.step()
    assert told(harness) == 0


SPARED: dict[str, dict[str, Any]] = {
    "nothing": {"requests": {}},
    "what no quota limits": {"requests": {"memory": "1Gi"}},
    "nothing of its own: it mirrors what runs": {
        "metadata": {"annotations": {"kubernetes.io/config.mirror": "a"}}
    },
}


@pytest.mark.parametrize("fields", SPARED.values(), ids=SPARED)
@pytest.mark.parametrize("has_node", [False, True])
def test_a_pod_is_not_reported_that_takes(
    harness: ControllerHarness, fields: dict[str, Any], has_node: bool
) -> None:
    if has_node:
        harness.pod("small", **fields, node="node-1")
    else:
        unguarded(harness, "small", **fields)
    harness.step()
    guarded(harness, "asked")
    harness.pass_time(1)
    harness.step()
    assert told(harness) == 0


@pytest.mark.parametrize("end", ["finish", "delete"])
def test_a_pod_that_has_ended_by_then_is_not_reported(harness: ControllerHarness, end: str) -> None:
    unguarded(harness, "past")
    harness.catch_up()
    getattr(harness, end)("past")
    harness.step()
    guarded(harness, "asked")
    harness.step()
    assert told(harness) == 0


def test_a_bind_that_was_answered_before_the_first_quota_was_counted_is_not_reported() -> None:
    with new_harness() as harness:
        harness.pod("early")
        harness.step()
        harness.create(a_quota("p1", hard=HARD))
        harness.step()
        harness.pass_time(20)
        guarded(harness, "asked-before")
        harness.step()
        harness.catch_up()
        harness.pass_time(20)
        harness.bind("early")  # it was answered when there was nothing to claim
        harness.step()
        guarded(harness, "asked")
        harness.step()
        assert told(harness) == 0
        watched(harness)
        unguarded(harness, "past")
        harness.step()
        assert told(harness) == 1


def test_a_bind_that_is_shown_late_is_not_reported() -> None:
    """A watch that lags shows only now what was answered before the quota was counted."""
    with new_harness() as harness:
        harness.pod("early")
        harness.pod("never")
        harness.step()
        harness.create(a_quota("p1", hard=HARD))
        harness.step()
        harness.client.pause(PODS)
        harness.bind("early")
        assert isinstance(harness.reserve("never"), Reserved)
        for _ in range(3):
            harness.mark_dirty()
            harness.pass_time(EXPIRE_SECONDS / 2 + 1)
            harness.reconcile_once()
        assert harness.held() == {}, "what expired was written, long after the quota was counted"
        harness.client.resume()
        harness.step()
        harness.pass_time(1)
        harness.step()
        assert harness.used() == {"requests.cpu": "1"}
        assert told(harness) == 0


def test_a_pod_that_changes_later_is_not_reported(harness: ControllerHarness) -> None:
    guarded(harness, "asked")
    harness.step()
    harness.api.patch(PODS, "asked", {"metadata": {"labels": {"a": "b"}}}, namespace=NAMESPACE)
    harness.pass_time(1)
    harness.step()
    guarded(harness, "next")
    harness.pass_time(1)
    harness.step()
    assert told(harness) == 0


QUOTAS_CHANGE = {
    "a quota comes": lambda harness: harness.create(a_quota("p2", hard={"limits.cpu": "9"})),
    "a limit is raised": lambda harness: harness.api.patch(
        RESOURCE_QUOTAS, "p1", {"spec": {"hard": {"requests.cpu": "91"}}}, namespace=NAMESPACE
    ),
    "a quota is left to the API server": lambda harness: harness.api.patch(
        RESOURCE_QUOTAS,
        "p1",
        {"metadata": {"annotations": {"deferredquota.io/exclude": "true"}}},
        namespace=NAMESPACE,
    ),
}


@pytest.mark.parametrize("change", QUOTAS_CHANGE.values(), ids=QUOTAS_CHANGE)
def test_nothing_is_reported_for_the_time_of_a_request_after(
    harness: ControllerHarness, change: Any
) -> None:
    change(harness)
    unguarded(harness, "one")
    harness.step()
    harness.pass_time(30)
    unguarded(harness, "two")
    harness.step()
    assert told(harness) == 0


def test_nothing_is_reported_where_the_last_quota_is_gone(harness: ControllerHarness) -> None:
    harness.api.delete(RESOURCE_QUOTAS, "p1", namespace=NAMESPACE)
    harness.step()
    harness.pass_time(EXPIRE_SECONDS + 1)
    unguarded(harness, "free")
    harness.step()
    harness.create(a_quota("p1", hard=HARD))
    harness.step()
    assert told(harness) == 0


def test_what_another_leader_has_counted_is_not_reported(harness: ControllerHarness) -> None:
    """It took the reservation out of the ledger, and this process did not see that."""
    with second_harness(harness, epoch=[0]) as other:
        harness.pod("asked")
        harness.step()
        harness.reserve("asked")
        harness.client.pause(PODS)
        harness.bind("asked")
        other.epoch[0] = 2
        other.step()
        assert other.held() == {}
        other.epoch[0] = 0
        harness.client.resume()
        harness.epoch[0] = 3
        harness.step()
        guarded(harness, "next")
        harness.pass_time(1)
        harness.step()
        assert told(harness) == told(other) == 0


def test_what_is_written_under_the_same_leadership_is_noticed(
    harness: ControllerHarness,
) -> None:
    """Two leaders should not be; if there are, the ledger says how far the other has counted."""
    with second_harness(harness, epoch=[9]) as other:
        harness.pod("asked")
        harness.step()
        harness.reserve("asked")
        harness.bind("asked")
        harness.catch_up()
        other.step()
        harness.reconcile_once()
        guarded(harness, "next")
        harness.pass_time(1)
        harness.step()
        assert told(harness) == 0


def test_a_write_whose_answer_was_lost_leaves_no_alarm(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded(harness, "asked")
    write = harness.ledgers.write

    def lost(*given: Any) -> LedgerVersion:
        write(*given)
        raise UnreachableError("the answer did not come")

    monkeypatch.setattr(harness.ledgers, "write", lost)
    harness.step()
    monkeypatch.undo()
    harness.pass_time(40)
    harness.step()
    guarded(harness, "next")
    harness.pass_time(1)
    harness.step()
    assert told(harness) == 0


def delete_ledger(harness: ControllerHarness) -> None:
    harness.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)


def spoil_ledger(harness: ControllerHarness) -> None:
    patch = [{"op": "replace", "path": "/status/reservations", "value": "what?"}]
    harness.api.patch(QUOTA_LEDGERS, "ledger", patch, namespace=NAMESPACE, subresource="status")


def edit_ledger(harness: ControllerHarness) -> None:
    patch: list[dict[str, object]] = [
        {"op": "replace", "path": "/status/quotas/0/used", "value": {"requests.cpu": "0"}},
        {"op": "replace", "path": "/status/reservations", "value": ""},
    ]
    harness.api.patch(QUOTA_LEDGERS, "ledger", patch, namespace=NAMESPACE, subresource="status")


def replace_ledger(harness: ControllerHarness) -> None:
    found: Any = harness.api.get(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    harness.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    made: Any = harness.api.create(
        QUOTA_LEDGERS, {**found, "metadata": {"name": "ledger", "namespace": NAMESPACE}}
    ).object
    harness.api.update_status(
        QUOTA_LEDGERS, {**made, "status": {**found["status"], "reservations": ""}}
    )


@pytest.mark.parametrize("harm", [delete_ledger, spoil_ledger, edit_ledger, replace_ledger])
def test_reservations_that_were_lost_with_the_ledger_are_not_missed(
    harness: ControllerHarness, harm: Any
) -> None:
    guarded(harness, "asked")
    harm(harness)
    for _ in range(3):
        harness.pass_time(EXPIRE_SECONDS / 2 + 1)
        harness.step()
    assert harness.is_exact()
    assert told(harness) == 0


def test_a_namespace_that_has_opted_out_is_not_reported(harness: ControllerHarness) -> None:
    """Its pods may be shown before its label is."""
    harness.client.pause(NAMESPACES)
    opt_out(harness.api, NAMESPACE)
    harness.pod("free")
    harness.bind("free")
    assert harness.controller.pods.wait_for_version(harness.cluster.resource_version, 30)
    harness.reconcile_once()
    harness.client.resume()
    harness.step()
    assert told(harness) == 0


def test_nothing_is_reported_of_what_came_while_the_label_was_off(
    harness: ControllerHarness,
) -> None:
    harness.client.pause(NAMESPACES)
    harness.pod("free")
    opt_out(harness.api, NAMESPACE)
    harness.bind("free")
    opt_in(harness.api, NAMESPACE)
    assert harness.controller.pods.wait_for_version(harness.cluster.resource_version - 1, 30)
    harness.reconcile_once()
    harness.client.resume()
    harness.step()
    guarded(harness, "asked")
    harness.step()
    assert told(harness) == 0


def test_a_label_that_was_off_while_no_watch_stood_is_noticed(harness: ControllerHarness) -> None:
    """A list shows the same label; only the version of the namespace is another."""
    harness.client.on("watch", NAMESPACES, unreachable)
    harness.cluster.cut_watches()
    harness.pod("free")
    opt_out(harness.api, NAMESPACE)
    harness.bind("free")
    opt_in(harness.api, NAMESPACE)
    harness.cluster.compact()
    harness.client.reset()
    before = harness.state()
    harness.step()
    assert harness.state() is before
    guarded(harness, "asked")
    harness.step()
    assert told(harness) == 0


def test_a_label_that_was_off_until_the_moment_of_the_alarm_is_noticed(
    harness: ControllerHarness,
) -> None:
    harness.client.pause(NAMESPACES)
    harness.pod("free")
    opt_out(harness.api, NAMESPACE)
    harness.bind("free")
    opt_in(harness.api, NAMESPACE)
    assert harness.controller.pods.wait_for_version(harness.cluster.resource_version - 1, 30)

    before = harness.state()

    def hear() -> None:
        harness.client.resume()
        harness.catch_up()

    harness.client.on("update", "*", preceded_by(lambda _: hear()), subresource="status", times=1)
    harness.reconcile_once()
    assert harness.state() is not before
    harness.pass_time(1)
    harness.step()
    assert told(harness) == 0


def test_nothing_is_reported_when_the_api_server_does_not_say_that_it_is_guarded(
    harness: ControllerHarness,
) -> None:
    unguarded(harness, "past")
    harness.client.on("get", NAMESPACES, unreachable)
    harness.step()
    assert told(harness) == 0


def test_a_namespace_that_was_exempt_for_a_while_is_not_reported(
    harness: ControllerHarness,
) -> None:
    harness.exempt = frozenset({NAMESPACE})
    harness.controller.recount()
    harness.step()
    unguarded(harness, "free")
    harness.exempt = frozenset()
    harness.controller.recount()
    harness.step()
    guarded(harness, "asked")
    harness.step()
    assert told(harness) == 0


def test_a_reservation_that_expired_was_of_another_request(harness: ControllerHarness) -> None:
    harness.pod("slow")
    harness.step()
    assert isinstance(harness.reserve("slow"), Reserved)
    for _ in range(3):
        harness.mark_dirty()
        harness.pass_time(EXPIRE_SECONDS / 2 + 1)
        harness.step()
    assert harness.held() == {}
    assert isinstance(harness.reserve("slow"), Reserved)
    harness.bind("slow")
    harness.step()
    assert told(harness) == 0


def test_a_resize_that_overtakes_the_bind_is_no_sign(harness: ControllerHarness) -> None:
    harness.pod("grows")
    harness.step()
    assert isinstance(harness.reserve_resize("grows", "2"), Reserved)
    assert isinstance(harness.reserve("grows"), Reserved)
    harness.bind("grows")
    harness.step()
    guarded(harness, "next")
    harness.pass_time(1)
    harness.step()
    assert told(harness) == 0


def test_what_a_recount_puts_right_is_not_reported(harness: ControllerHarness) -> None:
    guarded(harness, "asked")
    harness.step()
    harness.lose_pod("asked")
    harness.pass_time(1)
    harness.catch_up()
    harness.check_drift()
    assert harness.metric("drift_pods_total", kind="missed") == 1
    harness.step()
    guarded(harness, "next")
    harness.pass_time(1)
    harness.step()
    assert harness.used() == {"requests.cpu": "3"}
    assert told(harness) == 0


# -- what is remembered ------------------------------------------------------------------------


def test_what_was_seen_under_another_leader_is_forgotten(harness: ControllerHarness) -> None:
    harness.epoch[0] = 0
    harness.step()
    unguarded(harness, "past")
    harness.catch_up()
    harness.epoch[0] = 3
    harness.controller.poll()
    assert harness.state().recent_binds.take() == set()


def test_a_standby_remembers_nothing(harness: ControllerHarness) -> None:
    harness.epoch[0] = 0
    harness.step()
    with second_harness(harness, epoch=[0]) as other:
        for number in range(5):
            unguarded(other, f"past-{number}")
        other.catch_up()
        assert other.state().recent_binds.take() == set()


def test_no_more_is_remembered_than_is_bounded(harness: ControllerHarness) -> None:
    recent_binds = harness.state().recent_binds
    pod = harness.controller.pods.in_namespace(NAMESPACE)[0]
    for number in range(_MAX_PODS + 10):
        object.__setattr__(pod, "uid", f"uid-{number}")
        recent_binds.observe(None, pod, harness.cluster.resource_version)
    assert len(recent_binds.take()) == _MAX_PODS
