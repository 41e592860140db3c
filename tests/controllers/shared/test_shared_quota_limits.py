"""What a shared quota says of all namespaces holds, whatever a leader or a handler has missed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

from tests.admission.handlers.harness import a_namespace
from tests.controllers.controller_harness import (
    EXPIRE_SECONDS,
    NAMESPACE,
    new_harness,
    second_harness,
)
from tests.controllers.shared.shared_quota_steps import (
    HIGH,
    NAME,
    OTHER,
    TEAM,
    granted,
    label,
    settle,
    shared_quota,
    steps,
)
from webhook.fakecluster.storage import FakeClient
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    Page,
    UnavailableError,
)
from webhook.kube.kinds import Kind
from webhook.quota.charging.deferral import claim_for_bind
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.ledger.ledger import NEWEST, ReservationSource
from webhook.quota.objects.model import Pod
from webhook.state.grant_raising import GrantRaiser
from webhook.state.ledger_store import LedgerStore
from webhook.state.reserver import Reserved, Reserver
from webhook.state.shared_quotas import SharedQuotaStore
from webhook.state.well_known import MODE_LABEL, SCHEDULING_GATE


def test_a_leader_whose_cache_of_shared_quotas_is_behind_does_not_begin() -> None:
    with (
        new_harness(
            a_namespace(OTHER), shared_quota("4", scopeSelector=HIGH), follows_ledgers=True
        ) as harness,
        second_harness(harness, follows_ledgers=True) as new,
    ):
        harness.pod("one", "3", node="node-1")
        steps(harness)
        new.epoch[0] = 0
        new.catch_up()
        new.client.pause(CLUSTER_DEFERRED_QUOTAS)
        harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"scopeSelector": None}})
        steps(harness)
        harness.epoch[0], new.epoch[0] = 0, 2
        with pytest.raises(UnavailableError, match="shared quotas is behind"):
            settle(new, NAMESPACE)
        assert granted(harness)[NAMESPACE] == "3"


def test_a_leader_whose_cache_falls_behind_lowers_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        new_harness(
            a_namespace(OTHER), shared_quota("4", scopeSelector=HIGH), follows_ledgers=True
        ) as harness,
        second_harness(harness, follows_ledgers=True) as new,
    ):
        monkeypatch.setattr(new.controller.participation, "check_caches", lambda: None)
        harness.pod("one", "3", node="node-1")
        harness.pod("other", "2", OTHER)
        steps(harness)
        new.epoch[0] = 0
        new.catch_up()
        new.client.pause(CLUSTER_DEFERRED_QUOTAS)
        harness.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"scopeSelector": None}})
        steps(harness)
        harness.epoch[0], new.epoch[0] = 0, 2
        for _ in range(3):
            settle(new, NAMESPACE)
        harness.catch_up()
        assert granted(harness) == {NAMESPACE: "3", OTHER: "0"}
        assert isinstance(harness.reserve("other", OTHER), QuotaExceeded)


@pytest.mark.parametrize("what", ["label", "mode"])
def test_a_namespace_is_not_left_on_the_word_of_a_cache(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_harness(
        a_namespace(OTHER), shared_quota("4", namespaceSelector=TEAM), follows_ledgers=True
    ) as harness:
        label(harness, OTHER)
        if what == "mode":
            label(harness, NAMESPACE, **{MODE_LABEL: None})
        harness.pod("one", "3", node="node-1")
        harness.pod("other", "2", OTHER)
        steps(harness)
        with second_harness(harness, follows_ledgers=True, waits_at_start=True) as new:
            monkeypatch.setattr(new.controller.participation, "check_caches", lambda: None)
            new.epoch[0] = 0
            new.catch_up()
            new.client.pause(NAMESPACES)
            label(harness, NAMESPACE, **{MODE_LABEL: "deferred"})
            steps(harness, 6)
            assert granted(harness) == {NAMESPACE: "3", OTHER: "0"}
            harness.epoch[0], new.epoch[0] = 0, 2
            for _ in range(6):
                harness.pass_time(1.5)
                new.reconcile_once()
            harness.catch_up()
            assert granted(harness) == {NAMESPACE: "3", OTHER: "0"}
            assert NAME in harness.ledger().accounts
            assert isinstance(harness.reserve("other", OTHER), QuotaExceeded)


def test_nothing_passes_uncharged_beside_a_shared_quota_that_was_not_seen() -> None:
    with (
        new_harness(a_namespace(OTHER), follows_ledgers=True) as harness,
        second_harness(harness, follows_ledgers=True) as replica,
    ):
        replica.epoch[0] = 0
        steps(harness)
        replica.catch_up()
        replica.client.pause(CLUSTER_DEFERRED_QUOTAS)
        harness.create(shared_quota("4"))
        assert replica.quotas.up_to_date(NAMESPACE).deferred.quotas == ()
        assert [one.name for one in replica.quotas.live(NAMESPACE).deferred.quotas] == [NAME]


def test_the_line_takes_no_room_that_others_have_got_meanwhile() -> None:
    with new_harness(
        a_namespace(OTHER), shared_quota("4", namespaceSelector=TEAM), follows_ledgers=True
    ) as harness:
        label(harness, NAMESPACE)
        harness.pod("one", "2", node="n")
        harness.pod("two", "2", node="n")
        harness.pod("big", "3", OTHER, node="n")
        steps(harness)
        harness.pod("three", "2", schedulingGates=[{"name": SCHEDULING_GATE}])
        steps(harness)
        stale = SharedQuotaStore(FakeClient(harness.cluster))
        stale.fetch(NAME)
        with second_harness(harness, follows_ledgers=True) as new:
            new.epoch[0] = 0
            new.catch_up()
            new.client.pause(CLUSTER_DEFERRED_QUOTAS)
            label(harness, OTHER)
            steps(harness)
            assert granted(harness) == {NAMESPACE: "4", OTHER: "3"}
            harness.epoch[0], new.epoch[0] = 0, 2
            harness.finish("one")
            new.controller.pods.wait_for_version(harness.cluster.resource_version, 2)
            for _ in range(3):
                new.pass_time(2)
                new.reconcile_once()
            assert cast("Mapping[str, object]", harness.held()) == {}
        harness.catch_up()
        quotas = harness.quotas.in_namespace(NAMESPACE).deferred
        pod = Pod.from_object(harness.api.get(PODS, "three", namespace=NAMESPACE))
        assert SCHEDULING_GATE in pod.scheduling_gates
        claim = claim_for_bind(pod, quotas, source=ReservationSource.BIND, observed_version=NEWEST)
        assert claim is not None
        reserver = Reserver(LedgerStore(FakeClient(harness.cluster)), GrantRaiser(stale))
        answer = reserver.reserve(NAMESPACE, claim, quotas.observed, deadline=time.monotonic() + 5)
        assert isinstance(answer, QuotaExceeded)


def test_a_new_leader_lists_namespaces_once_and_knows_which_ledgers_were_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sharing = (a_namespace(OTHER), a_namespace("plain", mode=""), shared_quota("4"))
    with (
        new_harness(*sharing, follows_ledgers=True) as harness,
        second_harness(harness, follows_ledgers=True, waits_at_start=True, epoch=[0]) as new,
    ):
        harness.pod("one", "3")
        harness.pod("two", "3")
        steps(harness)
        assert isinstance(harness.reserve("one"), Reserved)
        harness.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
        new.catch_up()
        listing, genuine = list[str](), new.client.pages

        def note(kind: Kind, *args: Any, **options: Any) -> Iterator[Page]:
            listing.append(kind.plural)
            return genuine(kind, *args, **options)

        monkeypatch.setattr(new.client, "pages", note)
        harness.epoch[0], new.epoch[0] = 0, 2
        new.reconcile_once()
        assert listing.count(NAMESPACES.plural) == 1
        new.step()
        assert not new.has_ledger()
        harness.bind("one")
        new.pass_time(EXPIRE_SECONDS + 1)
        steps(new)
        assert isinstance(new.reserve("two"), QuotaExceeded)
        new.api.patch(NAMESPACES, "plain", {"metadata": {"labels": {MODE_LABEL: "deferred"}}})
        steps(new, 1)
        assert new.has_ledger("plain")  # it was not opted in when the leadership began
