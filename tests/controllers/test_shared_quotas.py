"""Quotas that namespaces share, as the tracker keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import pytest

from tests.admission.doors.desk import a_namespace
from tests.builders import a_quota
from tests.controllers.rig import NAMESPACE, Rig, a_rig, another_rig
from tests.controllers.sharers import (
    NAME,
    OTHER,
    TEAM,
    granted,
    is_complete,
    label,
    shared_quota,
    status_of,
    steps,
)
from webhook.cluster.api import CLUSTER_DEFERRED_QUOTAS, NAMESPACES, PODS, QUOTA_LEDGERS
from webhook.quota.grants import raised
from webhook.quota.ledger import Door, Undecided
from webhook.quota.quantity import Quantity
from webhook.quota.refusals import QuotaExceeded
from webhook.quota.resources import to_text
from webhook.state.names import GATE, MODE_LABEL
from webhook.state.reserver import Reserved
from webhook.state.shared_quotas import SharedQuotaStore


def cpus(amount: str) -> dict[str, Quantity]:
    return {"requests.cpu": Quantity.parse(amount)}


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Two namespaces that share 4 cpu, counted."""
    with a_rig(a_namespace(OTHER), shared_quota(), follows=True) as made:
        steps(made)
        yield made


def test_it_is_an_account_in_the_ledger_of_each(rig: Rig) -> None:
    assert set(rig.ledger().accounts) == {NAME}
    assert set(rig.ledger(OTHER).accounts) == {NAME}
    assert granted(rig) == {NAMESPACE: "0", OTHER: "0"}
    assert is_complete(rig)


def test_what_one_takes_the_other_has_not(rig: Rig) -> None:
    rig.pod("one", "3")
    rig.pod("other", "2", OTHER)
    assert isinstance(rig.reserve("one"), Reserved)
    assert granted(rig) == {NAMESPACE: "3", OTHER: "0"}
    refusal = rig.reserve("other", OTHER)
    assert isinstance(refusal, QuotaExceeded)
    assert refusal.message == (
        "exceeded quota: cdq/both, requested: requests.cpu=2, used: requests.cpu=3, "
        "limited: requests.cpu=4"
    )
    rig.bind("one")
    steps(rig)
    assert rig.used(NAME) == {"requests.cpu": "3"}
    assert granted(rig) == {NAMESPACE: "3", OTHER: "0"}
    assert isinstance(rig.reserve("other", OTHER), QuotaExceeded)
    rig.finish("one")
    rig.step()
    assert granted(rig) == {NAMESPACE: "0", OTHER: "0"}
    assert isinstance(rig.reserve("other", OTHER), Reserved)
    assert granted(rig) == {NAMESPACE: "0", OTHER: "2"}
    assert to_text(rig.ledger(OTHER).accounts[NAME].granted) == {"requests.cpu": "2"}


def test_what_runs_already_is_counted_by_force(rig: Rig) -> None:
    rig.pod("one", "3", node="node-1")
    rig.pod("other", "3", OTHER, node="node-1")
    steps(rig)
    assert granted(rig) == {NAMESPACE: "3", OTHER: "3"}
    rig.pod("next", "1")
    refusal = rig.reserve("next")
    assert isinstance(refusal, QuotaExceeded)
    assert to_text(refusal.used) == {"requests.cpu": "6"}


def test_a_namespace_that_gets_the_label_takes_part() -> None:
    selector = {"matchLabels": {"team": "x"}}
    with a_rig(a_namespace(OTHER), shared_quota(namespaceSelector=selector), follows=True) as rig:
        rig.pod("one", "3", node="node-1")
        rig.api.patch(NAMESPACES, OTHER, {"metadata": {"labels": {"team": "x"}}})
        steps(rig)
        assert granted(rig) == {OTHER: "0"}
        rig.api.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": {"team": "x"}}})
        steps(rig)
        assert granted(rig) == {NAMESPACE: "3", OTHER: "0"}
        assert is_complete(rig)
        rig.pod("other", "2", OTHER)
        assert isinstance(rig.reserve("other", OTHER), QuotaExceeded)


@pytest.mark.parametrize("is_opted_out", [False, True], ids=["label", "opted out"])
def test_a_namespace_that_leaves_gives_back_what_it_held(*, is_opted_out: bool) -> None:
    selector = {"matchLabels": {"team": "x"}}
    with a_rig(a_namespace(OTHER), shared_quota(namespaceSelector=selector), follows=True) as rig:
        for name in (NAMESPACE, OTHER):
            rig.api.patch(NAMESPACES, name, {"metadata": {"labels": {"team": "x"}}})
        rig.pod("one", "3", node="node-1")
        steps(rig)
        assert granted(rig) == {NAMESPACE: "3", OTHER: "0"}
        left = {MODE_LABEL: None} if is_opted_out else {"team": "y"}
        rig.api.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": left}})
        steps(rig)
        assert rig.ledger().accounts == {}
        assert granted(rig) == {OTHER: "0"}
        rig.pod("other", "4", OTHER)
        assert isinstance(rig.reserve("other", OTHER), Reserved)


def test_a_namespace_that_is_deleted_gives_back_what_it_held(rig: Rig) -> None:
    rig.pod("other", "3", OTHER, node="node-1")
    steps(rig)
    assert granted(rig) == {NAMESPACE: "0", OTHER: "3"}
    rig.delete("other", namespace=OTHER)
    rig.api.delete(QUOTA_LEDGERS, "ledger", namespace=OTHER)
    rig.api.delete(NAMESPACES, OTHER)
    steps(rig)
    assert granted(rig) == {NAMESPACE: "0"}


def test_one_that_left_while_nobody_led_is_dropped_by_the_next_leader(rig: Rig) -> None:
    rig.term[0] = 0
    rig.round()
    rig.api.patch(NAMESPACES, OTHER, {"metadata": {"labels": {MODE_LABEL: None}}})
    steps(rig)
    assert granted(rig) == {NAMESPACE: "0", OTHER: "0"}
    with another_rig(rig, follows=True) as other:
        steps(other)
    assert granted(rig) == {NAMESPACE: "0"}


def test_a_quota_that_is_deleted_leaves_the_ledgers(rig: Rig) -> None:
    rig.api.delete(CLUSTER_DEFERRED_QUOTAS, "both")
    steps(rig)
    assert rig.ledger().accounts == {}
    assert rig.ledger(OTHER).accounts == {}


def test_a_stuck_pod_that_is_held_keeps_what_all_share(rig: Rig) -> None:
    rig.pod("stuck", "3", node="node-1")
    rig.pod("other", "2", OTHER)
    rig.delete("stuck", grace=5)
    steps(rig)
    rig.pass_time(11.1)
    steps(rig)
    assert granted(rig) == {NAMESPACE: "0", OTHER: "0"}
    rig.holds_terminating = True
    rig.tracker.recount()
    steps(rig)
    assert is_complete(rig)
    assert granted(rig) == {NAMESPACE: "3", OTHER: "0"}
    assert isinstance(rig.reserve("other", OTHER), QuotaExceeded)
    rig.delete("stuck")
    steps(rig)
    assert isinstance(rig.reserve("other", OTHER), Reserved)


def test_one_of_the_same_name_is_counted_anew(rig: Rig) -> None:
    rig.pod("one", "3", node="node-1")
    steps(rig)
    rig.api.delete(CLUSTER_DEFERRED_QUOTAS, "both")
    rig.create(shared_quota("3"))
    rig.pod("other", "1", OTHER)
    rig.catch_up()
    assert isinstance(rig.reserve("other", OTHER), Undecided)
    steps(rig)
    assert granted(rig) == {NAMESPACE: "3", OTHER: "0"}
    assert is_complete(rig)
    assert isinstance(rig.reserve("other", OTHER), QuotaExceeded)


def test_what_a_door_raised_and_did_not_use_is_lowered(rig: Rig) -> None:
    store = SharedQuotaStore(rig.api)
    version = store.fetch(NAME)
    assert version is not None
    assert version.shared is not None
    store.write(version, raised(version.shared.grants, OTHER, cpus("4")))  # and it ended there
    rig.step()
    assert granted(rig)[OTHER] == "4"
    rig.pod("one", "1")
    assert isinstance(rig.reserve("one"), QuotaExceeded)
    steps(rig)
    assert granted(rig)[OTHER] == "0"
    assert isinstance(rig.reserve("one"), Reserved)


def test_a_pod_that_waits_goes_when_another_namespace_has_given_back(rig: Rig) -> None:
    rig.pod("one", "3", node="node-1")
    steps(rig)
    rig.pod("other", "2", OTHER, schedulingGates=[{"name": GATE}])
    steps(rig)
    _, held, _ = rig.told_lines[-1]
    (why,) = held.values()
    assert why.message == (
        "exceeded quota: cdq/both, requested: requests.cpu=2, used: requests.cpu=3, "
        "limited: requests.cpu=4"
    )
    rig.finish("one")
    rig.step()  # what it held is given back
    rig.step()  # and the line of the other has heard of that
    assert rig.held(OTHER)["other"].door is Door.RELEASE
    assert granted(rig) == {NAMESPACE: "0", OTHER: "2"}
    stored = cast("Mapping[str, object]", rig.api.get(PODS, "other", namespace=OTHER)["spec"])
    assert not stored.get("schedulingGates")


def test_a_pod_that_waits_goes_when_its_namespace_has_joined_a_quota_that_was_complete() -> None:
    objects = [a_namespace(OTHER), a_quota("p1"), shared_quota(namespaceSelector=TEAM)]
    with a_rig(*objects, follows=True) as rig:
        label(rig, OTHER)
        rig.pod("one", "2", node="node-1")
        rig.pod("web", "1", schedulingGates=[{"name": GATE}])
        steps(rig)
        assert granted(rig) == {OTHER: "0"}
        label(rig, NAMESPACE)
        rig.finish("one")
        steps(rig)
        assert granted(rig) == {NAMESPACE: "1", OTHER: "0"}
        stored = cast("Mapping[str, object]", rig.api.get(PODS, "web", namespace=NAMESPACE)["spec"])
        assert not stored.get("schedulingGates")


def test_a_quota_that_cannot_be_read_is_told_and_nothing_is_decided_by_it(rig: Rig) -> None:
    broken = {"spec": {"hard": {"requests.cpu": "a lot"}}}
    rig.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", broken)
    steps(rig)
    assert rig.conditions()["QuotasReadable"] == ("False", "Unreadable")
    assert "QuotaUnreadable" in rig.told()
    (said,) = rig.quotas.up_to_date(NAMESPACE).unreadable
    assert said.startswith("ClusterDeferredQuota both cannot be read: spec.hard[requests.cpu]: ")


def test_a_standby_writes_nothing(rig: Rig) -> None:
    rig.term[0] = 0
    rig.round()
    before = rig.api.get(CLUSTER_DEFERRED_QUOTAS, "both")
    rig.pod("one", "3", node="node-1")
    steps(rig)
    assert rig.api.get(CLUSTER_DEFERRED_QUOTAS, "both") == before


def test_people_are_told_how_it_stands(rig: Rig) -> None:
    rig.pod("one", "3", node="node-1")
    steps(rig)
    status = status_of(rig)
    assert (status["hard"], status["used"]) == ({"requests.cpu": "4"}, {"requests.cpu": "3"})
    (condition,) = cast("list[Mapping[str, str]]", status["conditions"])
    assert (condition["type"], condition["status"]) == ("Counted", "True")
    assert rig.ledger().conditions


def test_where_nothing_changes_nothing_is_written(rig: Rig) -> None:
    rig.pod("one", "3", node="node-1")
    steps(rig, 6)
    version = rig.cluster.resource_version
    steps(rig, 3)
    assert rig.cluster.resource_version == version
