"""Quotas that namespaces share, as the controller keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import pytest

from tests.admission.handlers.harness import a_namespace
from tests.builders import a_quota
from tests.controllers.controller_harness import (
    NAMESPACE,
    ControllerHarness,
    new_harness,
    second_harness,
)
from tests.controllers.shared.shared_quota_steps import (
    NAME,
    OTHER,
    TEAM,
    granted,
    is_complete,
    label,
    shared_quota,
    sharing,
    status_of,
    steps,
)
from webhook.controllers.shared.grant_transaction import begin
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS, NAMESPACES, PODS, QUOTA_LEDGERS
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import to_text
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.ledger.ledger import ReservationSource, Undecided
from webhook.quota.shared.grants import with_raised
from webhook.state.reserver import Reserved
from webhook.state.shared_quotas import SharedQuotaStore
from webhook.state.well_known import MODE_LABEL, SCHEDULING_GATE


def cpus(amount: str) -> dict[str, Quantity]:
    return {"requests.cpu": Quantity.parse(amount)}


@pytest.fixture
def harness() -> Iterator[ControllerHarness]:
    """Two namespaces that share 4 cpu, counted."""
    with sharing() as made:
        yield made


def test_it_is_an_account_in_the_ledger_of_each(harness: ControllerHarness) -> None:
    assert set(harness.ledger().accounts) == {NAME}
    assert set(harness.ledger(OTHER).accounts) == {NAME}
    assert granted(harness) == {NAMESPACE: "0", OTHER: "0"}
    assert is_complete(harness)


def test_what_one_takes_the_other_has_not(harness: ControllerHarness) -> None:
    harness.pod("one", "3")
    harness.pod("other", "2", OTHER)
    assert isinstance(harness.reserve("one"), Reserved)
    assert granted(harness) == {NAMESPACE: "3", OTHER: "0"}
    refusal = harness.reserve("other", OTHER)
    assert isinstance(refusal, QuotaExceeded)
    assert refusal.message == (
        "exceeded quota: cdq/both, requested: requests.cpu=2, used: requests.cpu=3, "
        "limited: requests.cpu=4"
    )
    harness.bind("one")
    steps(harness)
    assert harness.used(NAME) == {"requests.cpu": "3"}
    assert granted(harness) == {NAMESPACE: "3", OTHER: "0"}
    assert isinstance(harness.reserve("other", OTHER), QuotaExceeded)
    harness.finish("one")
    harness.step()
    assert granted(harness) == {NAMESPACE: "0", OTHER: "0"}
    assert isinstance(harness.reserve("other", OTHER), Reserved)
    assert granted(harness) == {NAMESPACE: "0", OTHER: "2"}
    assert to_text(harness.ledger(OTHER).accounts[NAME].granted) == {"requests.cpu": "2"}


def test_what_runs_already_is_counted_by_force(harness: ControllerHarness) -> None:
    harness.pod("one", "3", node="node-1")
    harness.pod("other", "3", OTHER, node="node-1")
    steps(harness)
    assert granted(harness) == {NAMESPACE: "3", OTHER: "3"}
    harness.pod("next", "1")
    refusal = harness.reserve("next")
    assert isinstance(refusal, QuotaExceeded)
    assert to_text(refusal.used) == {"requests.cpu": "6"}


def test_a_namespace_that_gets_the_label_takes_part() -> None:
    selector = {"matchLabels": {"team": "x"}}
    with new_harness(
        a_namespace(OTHER), shared_quota(namespaceSelector=selector), follows_ledgers=True
    ) as harness:
        harness.pod("one", "3", node="node-1")
        harness.api.patch(NAMESPACES, OTHER, {"metadata": {"labels": {"team": "x"}}})
        steps(harness)
        assert granted(harness) == {OTHER: "0"}
        harness.api.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": {"team": "x"}}})
        steps(harness)
        assert granted(harness) == {NAMESPACE: "3", OTHER: "0"}
        assert is_complete(harness)
        harness.pod("other", "2", OTHER)
        assert isinstance(harness.reserve("other", OTHER), QuotaExceeded)


@pytest.mark.parametrize("is_opted_out", [False, True], ids=["label", "opted out"])
def test_a_namespace_that_leaves_gives_back_what_it_held(*, is_opted_out: bool) -> None:
    selector = {"matchLabels": {"team": "x"}}
    with new_harness(
        a_namespace(OTHER), shared_quota(namespaceSelector=selector), follows_ledgers=True
    ) as harness:
        for name in (NAMESPACE, OTHER):
            harness.api.patch(NAMESPACES, name, {"metadata": {"labels": {"team": "x"}}})
        harness.pod("one", "3", node="node-1")
        steps(harness)
        assert granted(harness) == {NAMESPACE: "3", OTHER: "0"}
        left = {MODE_LABEL: None} if is_opted_out else {"team": "y"}
        harness.api.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": left}})
        steps(harness)
        assert harness.ledger().accounts == {}
        assert granted(harness) == {OTHER: "0"}
        harness.pod("other", "4", OTHER)
        assert isinstance(harness.reserve("other", OTHER), Reserved)


def test_a_namespace_that_is_deleted_gives_back_what_it_held(harness: ControllerHarness) -> None:
    harness.pod("other", "3", OTHER, node="node-1")
    steps(harness)
    assert granted(harness) == {NAMESPACE: "0", OTHER: "3"}
    harness.delete("other", namespace=OTHER)
    harness.api.delete(QUOTA_LEDGERS, "ledger", namespace=OTHER)
    harness.api.delete(NAMESPACES, OTHER)
    steps(harness)
    assert granted(harness) == {NAMESPACE: "0"}


def test_one_that_left_without_a_leader_is_dropped_by_the_next_leader(
    harness: ControllerHarness,
) -> None:
    harness.epoch[0] = 0
    harness.reconcile_once()
    harness.api.patch(NAMESPACES, OTHER, {"metadata": {"labels": {MODE_LABEL: None}}})
    steps(harness)
    assert granted(harness) == {NAMESPACE: "0", OTHER: "0"}
    with second_harness(harness, follows_ledgers=True) as other:
        steps(other)
    assert granted(harness) == {NAMESPACE: "0"}


def test_one_that_takes_no_part_and_has_no_ledger_is_dropped() -> None:
    """As the token of the webhook names it, or as it is left when its ledger was lost before."""
    quota = shared_quota(namespaceSelector=TEAM)
    with new_harness(a_namespace(OTHER), quota, follows_ledgers=True) as harness:
        label(harness, NAMESPACE)
        steps(harness)
        assert granted(harness) == {NAMESPACE: "0"}
        held = [
            {"name": NAMESPACE, "granted": {"requests.cpu": "0"}},
            {"name": OTHER, "granted": {"requests.cpu": "4"}},
        ]
        forge(harness, "namespaces", held)
        steps(harness)
        assert granted(harness) == {NAMESPACE: "0"}
        harness.pod("one", "4")
        assert isinstance(harness.reserve("one"), Reserved)


@pytest.mark.parametrize(
    ("field", "forged"),
    [
        ("summary", "all is well"),
        ("hard", {"requests.cpu": "1k"}),
        ("used", {"requests.cpu": "9"}),
        ("members", 9),
        ("conditions", [{"type": "Counted", "status": "False", "reason": "Forged"}]),
        ("conditions", [{"type": "Counted", "status": "True", "message": "run this"}]),
        ("conditions", [{"type": "Forged", "status": "True", "reason": "Forged"}]),
    ],
)
def test_what_is_forged_of_what_is_there_for_people_is_written_again(
    field: str, forged: object
) -> None:
    with sharing() as harness:
        before = said_in(harness)
        forge(harness, field, forged)
        assert said_in(harness) != before
        steps(harness)
        assert said_in(harness) == before
        version = harness.cluster.resource_version
        harness.controller.shared_controller.requeue()
        steps(harness)
        assert harness.cluster.resource_version == version


def said_in(harness: ControllerHarness) -> dict[str, object]:
    """Return what the status says, but for its number and since when conditions are as they are."""
    status = {name: value for name, value in status_of(harness).items() if name != "serial"}
    conditions = cast("list[dict[str, object]]", status.pop("conditions"))
    for one in conditions:
        one.pop("lastTransitionTime", None)
    return {**status, "conditions": conditions}


def test_what_is_promised_where_no_elastic_quota_is_charged_is_withdrawn(
    harness: ControllerHarness,
) -> None:
    promise = {"uid": "x", "namespace": OTHER, "pod": "x", "amounts": {"requests.cpu": "4"}}
    forge(harness, "promises", [promise])
    harness.pod("one", "4")
    assert isinstance(harness.reserve("one"), QuotaExceeded)
    steps(harness)
    assert "promises" not in status_of(harness)
    assert isinstance(harness.reserve("one"), Reserved)


@pytest.mark.parametrize("forged", [{"uid": "x", "specHash": "y"}, None])
def test_a_quota_that_another_client_says_to_be_uncounted_is_counted_again(forged: object) -> None:
    with new_harness(a_namespace(OTHER), shared_quota(), follows_ledgers=True) as harness:
        harness.pod("one", "4")
        steps(harness)
        before = said_in(harness)
        forge(harness, "observed", forged)
        assert isinstance(harness.reserve("one"), Undecided)
        steps(harness)
        assert said_in(harness) == before
        assert isinstance(harness.reserve("one"), Reserved)


def forge(harness: ControllerHarness, field: str, value: object) -> None:
    patch = [{"op": "add", "path": f"/status/{field}", "value": value}]
    harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", patch, subresource="status")
    harness.catch_up()


def test_a_leader_that_is_behind_raises_nothing_again(harness: ControllerHarness) -> None:
    """What an old ledger was granted has been lowered since, and another namespace holds it."""
    harness.pod("one", "3")
    assert isinstance(harness.reserve("one"), Reserved)
    old = harness.ledger()
    harness.bind("one")
    harness.finish("one")
    steps(harness)
    harness.pod("other", "4", OTHER)
    assert isinstance(harness.reserve("other", OTHER), Reserved)
    held = {NAMESPACE: "0", OTHER: "4"}
    assert granted(harness) == held
    harness.store.fetch(NAME)
    state = harness.controller.usage_cache.namespaces[NAMESPACE]
    shared = harness.controller.shared_controller.shared
    with begin(shared, NAMESPACE, state, old, harness.epoch[0]) as transaction:
        assert transaction is not None
        assert transaction.raise_grants(old) is None
    assert granted(harness) == held


def test_a_quota_that_is_deleted_leaves_the_ledgers(harness: ControllerHarness) -> None:
    harness.api.delete(CLUSTER_DEFERRED_QUOTAS, "both")
    steps(harness)
    assert harness.ledger().accounts == {}
    assert harness.ledger(OTHER).accounts == {}


def test_a_stuck_pod_that_is_held_keeps_what_all_share(harness: ControllerHarness) -> None:
    harness.pod("stuck", "3", node="node-1")
    harness.pod("other", "2", OTHER)
    harness.delete("stuck", grace=5)
    steps(harness)
    harness.pass_time(11.1)
    steps(harness)
    assert granted(harness) == {NAMESPACE: "0", OTHER: "0"}
    harness.holds_terminating = True
    harness.controller.recount()
    steps(harness)
    assert is_complete(harness)
    assert granted(harness) == {NAMESPACE: "3", OTHER: "0"}
    assert isinstance(harness.reserve("other", OTHER), QuotaExceeded)
    harness.delete("stuck")
    steps(harness)
    assert isinstance(harness.reserve("other", OTHER), Reserved)


def test_one_of_the_same_name_is_counted_anew(harness: ControllerHarness) -> None:
    harness.pod("one", "3", node="node-1")
    steps(harness)
    harness.api.delete(CLUSTER_DEFERRED_QUOTAS, "both")
    harness.create(shared_quota("3"))
    harness.pod("other", "1", OTHER)
    harness.catch_up()
    assert isinstance(harness.reserve("other", OTHER), Undecided)
    steps(harness)
    assert granted(harness) == {NAMESPACE: "3", OTHER: "0"}
    assert is_complete(harness)
    assert isinstance(harness.reserve("other", OTHER), QuotaExceeded)


def test_what_a_handler_raised_and_did_not_use_is_lowered(harness: ControllerHarness) -> None:
    store = SharedQuotaStore(harness.api)
    version = store.fetch(NAME)
    assert version is not None
    assert version.shared is not None
    store.write(version, with_raised(version.shared.grants, OTHER, cpus("4")))  # and it ended there
    harness.step()
    assert granted(harness)[OTHER] == "4"
    harness.pod("one", "1")
    assert isinstance(harness.reserve("one"), QuotaExceeded)
    steps(harness)
    assert granted(harness)[OTHER] == "0"
    assert isinstance(harness.reserve("one"), Reserved)


def test_a_pod_that_waits_goes_when_another_namespace_has_given_back(
    harness: ControllerHarness,
) -> None:
    harness.pod("one", "3", node="node-1")
    steps(harness)
    harness.pod("other", "2", OTHER, schedulingGates=[{"name": SCHEDULING_GATE}])
    steps(harness)
    _, held, _ = harness.queue_updates[-1]
    (why,) = held.values()
    assert why.message == (
        "exceeded quota: cdq/both, requested: requests.cpu=2, used: requests.cpu=3, "
        "limited: requests.cpu=4"
    )
    harness.finish("one")
    harness.step()  # what it held is given back
    harness.step()  # and the line of the other has heard of that
    assert harness.held(OTHER)["other"].source is ReservationSource.RELEASE
    assert granted(harness) == {NAMESPACE: "0", OTHER: "2"}
    stored = cast("Mapping[str, object]", harness.api.get(PODS, "other", namespace=OTHER)["spec"])
    assert not stored.get("schedulingGates")


def test_a_pod_that_waits_goes_when_its_namespace_has_joined_a_quota_that_was_complete() -> None:
    objects = [a_namespace(OTHER), a_quota("p1"), shared_quota(namespaceSelector=TEAM)]
    with new_harness(*objects, follows_ledgers=True) as harness:
        label(harness, OTHER)
        harness.pod("one", "2", node="node-1")
        harness.pod("web", "1", schedulingGates=[{"name": SCHEDULING_GATE}])
        steps(harness)
        assert granted(harness) == {OTHER: "0"}
        label(harness, NAMESPACE)
        harness.finish("one")
        steps(harness)
        assert granted(harness) == {NAMESPACE: "1", OTHER: "0"}
        stored = cast(
            "Mapping[str, object]", harness.api.get(PODS, "web", namespace=NAMESPACE)["spec"]
        )
        assert not stored.get("schedulingGates")


def test_a_quota_that_cannot_be_read_is_reported_and_decides_nothing(
    harness: ControllerHarness,
) -> None:
    broken = {"spec": {"hard": {"requests.cpu": "a lot"}}}
    harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", broken)
    steps(harness)
    assert harness.conditions()["QuotasReadable"] == ("False", "Unreadable")
    assert "QuotaUnreadable" in harness.events_recorded()
    (said,) = harness.quotas.up_to_date(NAMESPACE).errors
    assert said.startswith("ClusterDeferredQuota both cannot be read: spec.hard[requests.cpu]: ")


def test_a_quota_of_a_newer_release_is_left_alone(harness: ControllerHarness) -> None:
    harness.pod("one", "3")
    store = harness.store
    for number, named in ((2, True), (1, False)):
        patch: list[dict[str, object]] = [
            {"op": "replace", "path": "/status/format", "value": number}
        ]
        harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", patch, subresource="status")
        before = status_of(harness)
        harness.catch_up()
        assert isinstance(harness.reserve("one"), Undecided if named else Reserved)
        harness.pod(f"bound-{number}", "500m", node="node-1")
        steps(harness)
        used = "500m" if named else "1"  # the ledger goes on
        assert harness.used(NAME) == {"requests.cpu": used}
        expected = (
            "ClusterDeferredQuota both cannot be read: status.format: is 2, of a newer release: "
            "this one reads up to 1"
        )
        assert store.newer_formats() == ([expected] if named else [])
        if named:
            assert status_of(harness) == before


def test_a_standby_writes_nothing(harness: ControllerHarness) -> None:
    harness.epoch[0] = 0
    harness.reconcile_once()
    before = harness.api.get(CLUSTER_DEFERRED_QUOTAS, "both")
    harness.pod("one", "3", node="node-1")
    steps(harness)
    assert harness.api.get(CLUSTER_DEFERRED_QUOTAS, "both") == before


def test_users_get_the_numbers(harness: ControllerHarness) -> None:
    harness.pod("one", "3", node="node-1")
    steps(harness)
    status = status_of(harness)
    assert (status["hard"], status["used"]) == ({"requests.cpu": "4"}, {"requests.cpu": "3"})
    (condition,) = cast("list[Mapping[str, str]]", status["conditions"])
    assert (condition["type"], condition["status"]) == ("Counted", "True")
    assert harness.ledger().conditions


def test_where_nothing_changes_nothing_is_written(harness: ControllerHarness) -> None:
    harness.pod("one", "3", node="node-1")
    steps(harness, 6)
    version = harness.cluster.resource_version
    steps(harness, 3)
    assert harness.cluster.resource_version == version


def test_headroom_that_a_quota_no_longer_gives_is_given_back_at_once(
    harness: ControllerHarness,
) -> None:
    parts = [{"namespaces": [NAMESPACE], "amounts": {"requests.cpu": "4"}}]
    spec = {"spec": {"headroom": parts}}
    harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", spec)
    steps(harness)
    harness.pod("one", "1")
    assert isinstance(harness.reserve("one"), Reserved)
    harness.bind("one")
    steps(harness)
    assert granted(harness)[NAMESPACE] == "2500m"
    harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"headroom": None}})
    steps(harness)
    assert granted(harness)[NAMESPACE] == "1"
