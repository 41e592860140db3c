"""A shared quota is complete once all who take part are counted, and doors wait until it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.admission.doors.desk import a_namespace
from tests.builders import a_pod, a_quota
from tests.controllers.rig import NAMESPACE, a_rig
from tests.controllers.sharers import (
    HIGH,
    OTHER,
    TEAM,
    granted,
    is_complete,
    settle,
    shared_quota,
    status_of,
    steps,
)
from webhook.cluster.api import CLUSTER_DEFERRED_QUOTAS, NAMESPACES, PODS, RESOURCE_QUOTAS
from webhook.quota.ledger import Undecided
from webhook.quota.refusals import QuotaExceeded
from webhook.state.ledgers import LedgerStore
from webhook.state.names import MODE_LABEL
from webhook.state.reserver import Reserved


def an_unreadable_pod(namespace: str) -> dict[str, object]:
    return a_pod(name="odd", namespace=namespace, node="node-1", requests={"cpu": "two"})


def test_doors_wait_until_all_who_take_part_are_counted() -> None:
    with a_rig(a_namespace(OTHER), shared_quota(), follows=True) as rig:
        steps(rig)
        rig.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"hard": {"requests.cpu": "5"}}})
        rig.pod("one", "1")
        rig.catch_up()
        counting = Undecided("usage is being counted for quota: cdq/both")
        assert rig.reserve("one") == counting  # the ledgers count the former spec
        rig.round()
        assert rig.reserve("one") == counting  # they do, and the quota does not say so yet
        assert not is_complete(rig)
        steps(rig)
        assert is_complete(rig)
        assert isinstance(rig.reserve("one"), Reserved)


def test_one_is_complete_soon_when_the_last_that_was_not_counted_is_gone() -> None:
    with a_rig(a_namespace(OTHER), shared_quota("4"), follows=True) as rig:
        steps(rig)
        rig.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"hard": {"requests.cpu": "5"}}})
        rig.catch_up()
        for _ in range(3):
            settle(rig, NAMESPACE)
        assert not is_complete(rig)
        rig.api.delete(NAMESPACES, OTHER)
        steps(rig)
        assert granted(rig) == {NAMESPACE: "0"}
        assert is_complete(rig)


def test_one_that_cannot_be_counted_is_not_waited_for_when_it_opts_out() -> None:
    with a_rig(a_namespace(OTHER), shared_quota("4"), follows=True) as rig:
        rig.cluster.load([(PODS, an_unreadable_pod(OTHER))])
        steps(rig)
        assert not is_complete(rig)
        rig.api.patch(NAMESPACES, OTHER, {"metadata": {"labels": {MODE_LABEL: None}}})
        steps(rig)
        assert is_complete(rig)


def test_it_is_told_which_are_being_counted_still() -> None:
    with a_rig(a_namespace(OTHER), shared_quota("4"), follows=True) as rig:
        told = ["usage is being counted for quota: cdq/both"]
        rig.step()
        assert rig.tracker.not_ready() == []
        assert not is_complete(rig)
        assert rig.tracker.uncounted() == told
        steps(rig)
        assert rig.tracker.uncounted() == []
        rig.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"hard": {"requests.cpu": "5"}}})
        rig.catch_up()
        assert rig.tracker.uncounted() == told
        settle(rig, NAMESPACE)
        settle(rig, NAMESPACE)
        assert rig.tracker.uncounted() == told  # the other one is not counted yet
        steps(rig)
        assert rig.tracker.uncounted() == []


def test_one_that_says_more_than_is_true_is_being_counted() -> None:
    """It stands in a snapshot as it was in its cluster, and a namespace has come since."""
    with a_rig(a_namespace(OTHER), shared_quota("4"), follows=True) as rig:
        steps(rig)
        rig.create(a_namespace("new"))
        rig.catch_up()
        assert is_complete(rig)
        assert rig.tracker.uncounted() == ["usage is being counted for quota: cdq/both"]
        steps(rig)
        assert rig.tracker.uncounted() == []


def test_one_that_waiting_does_not_complete_is_not_being_counted() -> None:
    with a_rig(
        a_namespace(OTHER),
        shared_quota("4"),
        shared_quota("4", "nobody", namespaceSelector=TEAM),
        shared_quota("4x", "odd"),
        follows=True,
    ) as rig:
        rig.cluster.load([(PODS, an_unreadable_pod(OTHER))])
        steps(rig)
        assert not is_complete(rig)
        assert rig.tracker.uncounted() == []


def test_one_that_nobody_shares_is_complete() -> None:
    with a_rig(shared_quota(namespaceSelector=TEAM), follows=True) as rig:
        steps(rig)
        assert "observed" in status_of(rig)
        assert granted(rig) == {}


@pytest.mark.parametrize(
    ("other", "back"),
    [
        ({"scopeSelector": HIGH}, {"scopeSelector": None}),
        (
            {"hard": {"requests.cpu": None, "requests.memory": "1Gi"}},
            {"hard": {"requests.cpu": "4", "requests.memory": None}},
        ),
    ],
    ids=["scopes", "resources"],
)
def test_an_edit_that_is_taken_back_is_counted_anew(
    other: Mapping[str, object], back: Mapping[str, object]
) -> None:
    with a_rig(a_namespace(OTHER), shared_quota("4"), follows=True) as rig:
        rig.pod("one", "3", node="node-1")
        rig.pod("other", "2", OTHER)
        steps(rig)
        assert is_complete(rig)
        assert granted(rig) == {NAMESPACE: "3", OTHER: "0"}
        rig.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": other})
        rig.catch_up()
        for _ in range(3):
            settle(rig, NAMESPACE)
        assert status_of(rig).get("observed") is None
        rig.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": back})
        rig.catch_up()
        assert isinstance(rig.reserve("other", OTHER), Undecided)
        steps(rig)
        assert granted(rig) == {NAMESPACE: "3", OTHER: "0"}
        assert is_complete(rig)
        assert isinstance(rig.reserve("other", OTHER), QuotaExceeded)


def test_accounts_that_were_taken_out_of_ledgers_are_counted_before_anybody_admits() -> None:
    with a_rig(a_namespace(OTHER), shared_quota("4"), follows=True) as rig:
        rig.pod("other", "2", OTHER)
        steps(rig)
        assert is_complete(rig)
        store = LedgerStore(rig.api)
        for namespace in (NAMESPACE, OTHER):  # as a release that knows no shared quotas does
            version = store.fetch(namespace)
            assert version is not None
            assert version.ledger is not None
            store.write(namespace, version, replace(version.ledger, accounts={}))
        rig.pod("one", "3", node="node-1")
        rig.catch_up()
        settle(rig, OTHER)
        assert isinstance(rig.reserve("other", OTHER), Undecided)
        steps(rig)
        assert granted(rig) == {NAMESPACE: "3", OTHER: "0"}
        assert is_complete(rig)
        assert isinstance(rig.reserve("other", OTHER), QuotaExceeded)


def test_a_quota_that_is_seen_before_it_is_counted_is_not_complete() -> None:
    with a_rig(a_namespace(OTHER), follows=True) as rig:
        quotas = [
            a_quota("p1", namespace=one, hard={"requests.cpu": "100"}) for one in (NAMESPACE, OTHER)
        ]
        rig.cluster.load([(RESOURCE_QUOTAS, one) for one in quotas])
        rig.pod("one", "3", node="node-1")
        rig.pod("other", "2", OTHER)
        steps(rig)
        keeper = rig.tracker._keeper
        looked: list[bool] = []

        def look_between() -> None:
            if not looked:
                looked.append(True)
                keeper._is_due.set()
                keeper.look(1)

        assert rig.shared is not None
        rig.shared._on_specs.insert(0, look_between)
        rig.create(shared_quota("4"))
        rig.catch_up()
        assert looked
        settle(rig, OTHER)
        settle(rig, OTHER)
        assert isinstance(rig.reserve("other", OTHER), Undecided)
        steps(rig)
        assert isinstance(rig.reserve("other", OTHER), QuotaExceeded)
