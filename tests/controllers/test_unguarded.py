"""Pods that got their nodes past the doors are told, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.admission.doors.desk import opt_in, opt_out
from tests.builders import a_quota
from tests.controllers.rig import EXPIRE_SECONDS, NAMESPACE, Rig, a_rig, another_rig
from webhook.cluster.api import (
    EVENTS,
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    UnreachableError,
)
from webhook.controllers.arrivals import _MOST
from webhook.state.ledgers import LedgerVersion
from webhook.state.reserver import Reserved

HARD = {"requests.cpu": "90"}


@pytest.fixture
def rig() -> Iterator[Rig]:
    """A quota that has been counted for longer than a request lasts, in writes of one leader."""
    with a_rig(a_quota("p1", hard=HARD)) as made:
        made.step()
        watched(made)
        yield made


def watched(rig: Rig) -> None:
    """Let the ledger count the same for longer than a request lasts, and be written then."""
    rig.pass_time(EXPIRE_SECONDS + 1)
    guarded(rig, f"w{rig.cluster.resource_version}")
    rig.step()
    rig.catch_up()


def guarded(rig: Rig, name: str, **fields: Any) -> None:
    """Bind a pod that was claimed for."""
    rig.pod(name, **fields)
    rig.catch_up()
    assert isinstance(rig.reserve(name), Reserved)
    rig.bind(name)


def unguarded(rig: Rig, name: str, **fields: Any) -> None:
    """Bind a pod that nobody was asked about."""
    rig.pod(name, **fields)
    rig.catch_up()
    rig.bind(name)


def told(rig: Rig) -> float:
    assert rig.told().count("UnguardedBind") == rig.counted("unguarded_binds_total")
    return rig.counted("unguarded_binds_total")


# -- what is told ------------------------------------------------------------------------------


def test_a_pod_that_nobody_was_asked_about_is_counted_and_told(rig: Rig) -> None:
    before = rig.used()
    unguarded(rig, "past")
    rig.step()
    assert rig.used() != before
    assert told(rig) == 1
    (event,) = [one for one in rig.api.list(EVENTS).items if one["reason"] == "UnguardedBind"]
    assert (event["type"], event["involvedObject"]["name"]) == ("Warning", "past")  # type: ignore[index]
    assert str(event["message"]).startswith("pod past got its node past the quota")


def test_it_is_told_once(rig: Rig) -> None:
    unguarded(rig, "past")
    rig.step()
    for number in range(3):
        guarded(rig, f"next-{number}")
        rig.pass_time(1)
        rig.step()
    assert told(rig) == 1


def test_one_that_was_created_with_a_node_is_told(rig: Rig) -> None:
    rig.pod("past", node="node-1")
    rig.step()
    assert told(rig) == 1


def test_it_is_found_among_others(rig: Rig) -> None:
    guarded(rig, "asked")
    unguarded(rig, "past")
    guarded(rig, "asked-too")
    rig.step()
    assert told(rig) == 1


def test_of_many_only_some_have_an_event_and_all_are_counted(rig: Rig) -> None:
    for number in range(8):
        unguarded(rig, f"past-{number}")
    rig.step()
    assert rig.told().count("UnguardedBind") == 5
    assert rig.counted("unguarded_binds_total") == 8


def test_it_is_told_after_a_race_with_a_door_was_lost(rig: Rig) -> None:
    unguarded(rig, "past")
    rig.pod("asked")
    rig.catch_up()

    def claim() -> None:
        rig.line.before_write = None
        assert isinstance(rig.reserve("asked"), Reserved)

    rig.line.before_write = claim
    rig.step()
    assert rig.counted("ledger_settlements_total", result="conflict") == 1
    assert told(rig) == 1


def test_nothing_is_asked_to_find_that_there_is_nothing(rig: Rig) -> None:
    guarded(rig, "asked")
    rig.catch_up()
    rig.line.calls.clear()
    rig.round()
    assert not [call for call in rig.line.calls if call[1] == NAMESPACES.plural]


# -- what is not told --------------------------------------------------------------------------


def test_pods_that_were_claimed_for_are_not_told(rig: Rig) -> None:
    for number in range(3):
        for name in (f"a-{number}", f"b-{number}"):
            guarded(rig, name)
        rig.pass_time(1)
        rig.step()
    assert told(rig) == 0


def test_a_claim_between_the_count_and_its_write_is_seen(rig: Rig) -> None:
    rig.pod("late")
    guarded(rig, "asked")
    rig.catch_up()

    def claim_and_bind() -> None:
        rig.line.before_write = None
        assert isinstance(rig.reserve("late"), Reserved)
        rig.bind("late")
        rig.catch_up()

    rig.line.before_write = claim_and_bind
    rig.step()
    rig.pass_time(1)
    rig.step()
    assert told(rig) == 0


SPARED: dict[str, dict[str, Any]] = {
    "nothing": {"requests": {}},
    "what no quota limits": {"requests": {"memory": "1Gi"}},
    "nothing of its own: it mirrors what runs": {
        "metadata": {"annotations": {"kubernetes.io/config.mirror": "a"}}
    },
}


@pytest.mark.parametrize("fields", SPARED.values(), ids=SPARED)
@pytest.mark.parametrize("has_node", [False, True])
def test_a_pod_is_not_told_that_takes(rig: Rig, fields: dict[str, Any], has_node: bool) -> None:
    if has_node:
        rig.pod("small", **fields, node="node-1")
    else:
        unguarded(rig, "small", **fields)
    rig.step()
    guarded(rig, "asked")
    rig.pass_time(1)
    rig.step()
    assert told(rig) == 0


@pytest.mark.parametrize("end", ["finish", "delete"])
def test_a_pod_that_has_ended_by_then_is_not_told(rig: Rig, end: str) -> None:
    unguarded(rig, "past")
    rig.catch_up()
    getattr(rig, end)("past")
    rig.step()
    guarded(rig, "asked")
    rig.step()
    assert told(rig) == 0


def test_a_bind_that_was_answered_before_the_first_quota_was_counted_is_not_told() -> None:
    with a_rig() as rig:
        rig.pod("early")
        rig.step()
        rig.create(a_quota("p1", hard=HARD))
        rig.step()
        rig.pass_time(20)
        guarded(rig, "asked-before")
        rig.step()
        rig.catch_up()
        rig.pass_time(20)
        rig.bind("early")  # it was answered when there was nothing to claim
        rig.step()
        guarded(rig, "asked")
        rig.step()
        assert told(rig) == 0
        watched(rig)
        unguarded(rig, "past")
        rig.step()
        assert told(rig) == 1


def test_a_bind_that_is_shown_late_is_not_told() -> None:
    """A watch that lags shows only now what was answered before the quota was counted."""
    with a_rig() as rig:
        rig.pod("early")
        rig.pod("never")
        rig.step()
        rig.create(a_quota("p1", hard=HARD))
        rig.step()
        rig.line.hold(PODS)
        rig.bind("early")
        assert isinstance(rig.reserve("never"), Reserved)
        for _ in range(3):
            rig.poke()
            rig.pass_time(EXPIRE_SECONDS / 2 + 1)
            rig.round()
        assert rig.held() == {}, "what expired was written, long after the quota was counted"
        rig.line.resume()
        rig.step()
        rig.pass_time(1)
        rig.step()
        assert rig.used() == {"requests.cpu": "1"}
        assert told(rig) == 0


def test_a_pod_that_changes_later_is_not_told(rig: Rig) -> None:
    guarded(rig, "asked")
    rig.step()
    rig.api.patch(PODS, "asked", {"metadata": {"labels": {"a": "b"}}}, namespace=NAMESPACE)
    rig.pass_time(1)
    rig.step()
    guarded(rig, "next")
    rig.pass_time(1)
    rig.step()
    assert told(rig) == 0


QUOTAS_CHANGE = {
    "a quota comes": lambda rig: rig.create(a_quota("p2", hard={"limits.cpu": "9"})),
    "a limit is raised": lambda rig: rig.api.patch(
        RESOURCE_QUOTAS, "p1", {"spec": {"hard": {"requests.cpu": "91"}}}, namespace=NAMESPACE
    ),
    "a quota is left to the API server": lambda rig: rig.api.patch(
        RESOURCE_QUOTAS,
        "p1",
        {"metadata": {"annotations": {"deferredquota.io/exclude": "true"}}},
        namespace=NAMESPACE,
    ),
}


@pytest.mark.parametrize("change", QUOTAS_CHANGE.values(), ids=QUOTAS_CHANGE)
def test_nothing_is_told_for_the_time_of_a_request_after(rig: Rig, change: Any) -> None:
    change(rig)
    unguarded(rig, "one")
    rig.step()
    rig.pass_time(30)
    unguarded(rig, "two")
    rig.step()
    assert told(rig) == 0


def test_nothing_is_told_where_the_last_quota_is_gone(rig: Rig) -> None:
    rig.api.delete(RESOURCE_QUOTAS, "p1", namespace=NAMESPACE)
    rig.step()
    rig.pass_time(EXPIRE_SECONDS + 1)
    unguarded(rig, "free")
    rig.step()
    rig.create(a_quota("p1", hard=HARD))
    rig.step()
    assert told(rig) == 0


def test_what_another_leader_has_counted_is_not_told(rig: Rig) -> None:
    """It took the reservation out of the ledger, and this process did not see that."""
    with another_rig(rig, term=[0]) as other:
        rig.pod("asked")
        rig.step()
        rig.reserve("asked")
        rig.line.hold(PODS)
        rig.bind("asked")
        other.term[0] = 2
        other.step()
        assert other.held() == {}
        other.term[0] = 0
        rig.line.resume()
        rig.term[0] = 3
        rig.step()
        guarded(rig, "next")
        rig.pass_time(1)
        rig.step()
        assert told(rig) == told(other) == 0


def test_what_somebody_writes_under_the_same_leadership_is_noticed(rig: Rig) -> None:
    """Two leaders should not be; if there are, the ledger says how far the other has counted."""
    with another_rig(rig, term=[9]) as other:
        rig.pod("asked")
        rig.step()
        rig.reserve("asked")
        rig.bind("asked")
        rig.catch_up()
        other.step()
        rig.round()
        guarded(rig, "next")
        rig.pass_time(1)
        rig.step()
        assert told(rig) == 0


def test_a_write_whose_answer_was_lost_leaves_no_alarm(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded(rig, "asked")
    write = rig.ledgers.write

    def lost(*given: Any) -> LedgerVersion:
        write(*given)
        raise UnreachableError("the answer did not come")

    monkeypatch.setattr(rig.ledgers, "write", lost)
    rig.step()
    monkeypatch.undo()
    rig.pass_time(40)
    rig.step()
    guarded(rig, "next")
    rig.pass_time(1)
    rig.step()
    assert told(rig) == 0


def delete_ledger(rig: Rig) -> None:
    rig.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)


def spoil_ledger(rig: Rig) -> None:
    patch = [{"op": "replace", "path": "/status/reservations", "value": "what?"}]
    rig.api.patch(QUOTA_LEDGERS, "ledger", patch, namespace=NAMESPACE, subresource="status")


def edit_ledger(rig: Rig) -> None:
    patch: list[dict[str, object]] = [
        {"op": "replace", "path": "/status/quotas/0/used", "value": {"requests.cpu": "0"}},
        {"op": "replace", "path": "/status/reservations", "value": ""},
    ]
    rig.api.patch(QUOTA_LEDGERS, "ledger", patch, namespace=NAMESPACE, subresource="status")


def replace_ledger(rig: Rig) -> None:
    found: Any = rig.api.get(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    rig.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    made: Any = rig.api.create(
        QUOTA_LEDGERS, {**found, "metadata": {"name": "ledger", "namespace": NAMESPACE}}
    ).object
    rig.api.update_status(
        QUOTA_LEDGERS, {**made, "status": {**found["status"], "reservations": ""}}
    )


@pytest.mark.parametrize("harm", [delete_ledger, spoil_ledger, edit_ledger, replace_ledger])
def test_reservations_that_were_lost_with_the_ledger_are_not_missed(rig: Rig, harm: Any) -> None:
    guarded(rig, "asked")
    harm(rig)
    for _ in range(3):
        rig.pass_time(EXPIRE_SECONDS / 2 + 1)
        rig.step()
    assert rig.is_exact()
    assert told(rig) == 0


def test_a_namespace_that_has_opted_out_is_not_told_of(rig: Rig) -> None:
    """Its pods may be shown before its label is."""
    rig.line.hold(NAMESPACES)
    opt_out(rig.api, NAMESPACE)
    rig.pod("free")
    rig.bind("free")
    assert rig.tracker.pods.wait_for_version(rig.cluster.resource_version, 30)
    rig.round()
    rig.line.resume()
    rig.step()
    assert told(rig) == 0


def test_nothing_is_told_of_what_came_while_the_label_was_off(rig: Rig) -> None:
    rig.line.hold(NAMESPACES)
    rig.pod("free")
    opt_out(rig.api, NAMESPACE)
    rig.bind("free")
    opt_in(rig.api, NAMESPACE)
    assert rig.tracker.pods.wait_for_version(rig.cluster.resource_version - 1, 30)
    rig.round()
    rig.line.resume()
    rig.step()
    guarded(rig, "asked")
    rig.step()
    assert told(rig) == 0


def test_a_label_that_was_off_while_no_watch_stood_is_noticed(rig: Rig) -> None:
    """A list shows the same label; only the version of the namespace is another."""
    rig.line.broken.add(("watch", NAMESPACES.plural))
    rig.cluster.cut_watches()
    rig.pod("free")
    opt_out(rig.api, NAMESPACE)
    rig.bind("free")
    opt_in(rig.api, NAMESPACE)
    rig.cluster.compact()
    rig.line.broken.clear()
    before = rig.tracked()
    rig.step()
    assert rig.tracked() is before
    guarded(rig, "asked")
    rig.step()
    assert told(rig) == 0


def test_a_label_that_was_off_until_the_moment_of_the_alarm_is_noticed(rig: Rig) -> None:
    rig.line.hold(NAMESPACES)
    rig.pod("free")
    opt_out(rig.api, NAMESPACE)
    rig.bind("free")
    opt_in(rig.api, NAMESPACE)
    assert rig.tracker.pods.wait_for_version(rig.cluster.resource_version - 1, 30)

    before = rig.tracked()

    def hear() -> None:
        rig.line.before_write = None
        rig.line.resume()
        rig.catch_up()

    rig.line.before_write = hear
    rig.round()
    assert rig.tracked() is not before
    rig.pass_time(1)
    rig.step()
    assert told(rig) == 0


def test_nothing_is_told_when_the_api_server_does_not_say_that_it_is_guarded(rig: Rig) -> None:
    unguarded(rig, "past")
    rig.line.broken.add(("get", NAMESPACES.plural))
    rig.step()
    assert told(rig) == 0


def test_a_namespace_that_was_exempt_for_a_while_is_not_told_of(rig: Rig) -> None:
    rig.exempt = frozenset({NAMESPACE})
    rig.tracker.recount()
    rig.step()
    unguarded(rig, "free")
    rig.exempt = frozenset()
    rig.tracker.recount()
    rig.step()
    guarded(rig, "asked")
    rig.step()
    assert told(rig) == 0


def test_a_reservation_that_expired_was_of_another_request(rig: Rig) -> None:
    rig.pod("slow")
    rig.step()
    assert isinstance(rig.reserve("slow"), Reserved)
    for _ in range(3):
        rig.poke()
        rig.pass_time(EXPIRE_SECONDS / 2 + 1)
        rig.step()
    assert rig.held() == {}
    assert isinstance(rig.reserve("slow"), Reserved)
    rig.bind("slow")
    rig.step()
    assert told(rig) == 0


def test_a_resize_that_overtakes_the_bind_is_no_sign(rig: Rig) -> None:
    rig.pod("grows")
    rig.step()
    assert isinstance(rig.reserve_resize("grows", "2"), Reserved)
    assert isinstance(rig.reserve("grows"), Reserved)
    rig.bind("grows")
    rig.step()
    guarded(rig, "next")
    rig.pass_time(1)
    rig.step()
    assert told(rig) == 0


def test_what_a_recount_puts_right_is_not_told(rig: Rig) -> None:
    guarded(rig, "asked")
    rig.step()
    with rig.tracker._counts.lock:
        rig.tracked().count.remove("uid-asked")
    rig.pass_time(1)
    rig.catch_up()
    assert rig.tracker._recounter._is_compared(NAMESPACE)
    assert rig.counted("drift_pods_total", kind="missed") == 1
    rig.step()
    guarded(rig, "next")
    rig.pass_time(1)
    rig.step()
    assert rig.used() == {"requests.cpu": "3"}
    assert told(rig) == 0


# -- what is remembered ------------------------------------------------------------------------


def test_what_was_seen_under_another_leader_is_forgotten(rig: Rig) -> None:
    rig.term[0] = 0
    rig.step()
    unguarded(rig, "past")
    rig.catch_up()
    rig.term[0] = 3
    rig.tracker._look_around()
    assert rig.tracked().arrivals.take() == set()


def test_a_standby_remembers_nothing(rig: Rig) -> None:
    rig.term[0] = 0
    rig.step()
    with another_rig(rig, term=[0]) as other:
        for number in range(5):
            unguarded(other, f"past-{number}")
        other.catch_up()
        assert other.tracked().arrivals.take() == set()


def test_no_more_is_remembered_than_is_bounded(rig: Rig) -> None:
    arrivals = rig.tracked().arrivals
    pod = rig.tracker.pods.in_namespace(NAMESPACE)[0]
    for number in range(_MOST + 10):
        object.__setattr__(pod, "uid", f"uid-{number}")
        arrivals.note(None, pod, rig.cluster.resource_version)
    assert len(arrivals.take()) == _MOST
