"""What a shared quota says of all namespaces holds, whatever a leader or a door has missed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import cast

import pytest

from tests.admission.doors.desk import a_namespace
from tests.controllers.rig import EXPIRE_SECONDS, NAMESPACE, a_rig, another_rig
from tests.controllers.sharers import (
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
from webhook.cluster.api import (
    CLUSTER_DEFERRED_QUOTAS,
    NAMESPACES,
    PODS,
    QUOTA_LEDGERS,
    ObjectList,
    UnavailableError,
)
from webhook.cluster.kinds import Kind
from webhook.cluster.memory import MemoryClient
from webhook.quota.deferral import claim_of_assignment
from webhook.quota.ledger import NEWEST, Door
from webhook.quota.objects import Pod
from webhook.quota.refusals import QuotaExceeded
from webhook.state.ledgers import LedgerStore
from webhook.state.names import GATE, MODE_LABEL
from webhook.state.reserver import Reserved, Reserver
from webhook.state.shared_quotas import SharedQuotaStore


def test_a_leader_whose_cache_of_shared_quotas_is_behind_does_not_begin() -> None:
    with (
        a_rig(a_namespace(OTHER), shared_quota("4", scopeSelector=HIGH), follows=True) as rig,
        another_rig(rig, follows=True) as new,
    ):
        rig.pod("one", "3", node="node-1")
        steps(rig)
        new.term[0] = 0
        new.catch_up()
        new.line.hold(CLUSTER_DEFERRED_QUOTAS)
        rig.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"scopeSelector": None}})
        steps(rig)
        rig.term[0], new.term[0] = 0, 2
        with pytest.raises(UnavailableError, match="shared quotas is behind"):
            settle(new, NAMESPACE)
        assert granted(rig)[NAMESPACE] == "3"


def test_a_leader_whose_cache_falls_behind_lowers_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        a_rig(a_namespace(OTHER), shared_quota("4", scopeSelector=HIGH), follows=True) as rig,
        another_rig(rig, follows=True) as new,
    ):
        monkeypatch.setattr(new.tracker._membership, "check_caches", lambda: None)
        rig.pod("one", "3", node="node-1")
        rig.pod("other", "2", OTHER)
        steps(rig)
        new.term[0] = 0
        new.catch_up()
        new.line.hold(CLUSTER_DEFERRED_QUOTAS)
        rig.api.patch(CLUSTER_DEFERRED_QUOTAS, "both", {"spec": {"scopeSelector": None}})
        steps(rig)
        rig.term[0], new.term[0] = 0, 2
        for _ in range(3):
            settle(new, NAMESPACE)
        rig.catch_up()
        assert granted(rig) == {NAMESPACE: "3", OTHER: "0"}
        assert isinstance(rig.reserve("other", OTHER), QuotaExceeded)


@pytest.mark.parametrize("what", ["label", "mode"])
def test_a_namespace_is_not_left_on_the_word_of_a_cache(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_rig(a_namespace(OTHER), shared_quota("4", namespaceSelector=TEAM), follows=True) as rig:
        label(rig, OTHER)
        if what == "mode":
            label(rig, NAMESPACE, **{MODE_LABEL: None})
        rig.pod("one", "3", node="node-1")
        rig.pod("other", "2", OTHER)
        steps(rig)
        with another_rig(rig, follows=True, waits_at_start=True) as new:
            monkeypatch.setattr(new.tracker._membership, "check_caches", lambda: None)
            new.term[0] = 0
            new.catch_up()
            new.line.hold(NAMESPACES)
            label(rig, NAMESPACE, **{MODE_LABEL: "deferred"})
            steps(rig, 6)
            assert granted(rig) == {NAMESPACE: "3", OTHER: "0"}
            rig.term[0], new.term[0] = 0, 2
            for _ in range(6):
                rig.pass_time(1.5)
                new.round()
            rig.catch_up()
            assert granted(rig) == {NAMESPACE: "3", OTHER: "0"}
            assert NAME in rig.ledger().accounts
            assert isinstance(rig.reserve("other", OTHER), QuotaExceeded)


def test_nothing_passes_uncharged_beside_a_shared_quota_that_was_not_seen() -> None:
    with a_rig(a_namespace(OTHER), follows=True) as rig, another_rig(rig, follows=True) as door:
        door.term[0] = 0
        steps(rig)
        door.catch_up()
        door.line.hold(CLUSTER_DEFERRED_QUOTAS)
        rig.create(shared_quota("4"))
        assert door.quotas.up_to_date(NAMESPACE).deferred.quotas == ()
        assert [one.name for one in door.quotas.live(NAMESPACE).deferred.quotas] == [NAME]


def test_the_line_takes_no_room_that_others_have_got_meanwhile() -> None:
    with a_rig(a_namespace(OTHER), shared_quota("4", namespaceSelector=TEAM), follows=True) as rig:
        label(rig, NAMESPACE)
        rig.pod("one", "2", node="n")
        rig.pod("two", "2", node="n")
        rig.pod("big", "3", OTHER, node="n")
        steps(rig)
        rig.pod("three", "2", schedulingGates=[{"name": GATE}])
        steps(rig)
        stale = SharedQuotaStore(MemoryClient(rig.cluster))
        stale.fetch(NAME)
        with another_rig(rig, follows=True) as new:
            new.term[0] = 0
            new.catch_up()
            new.line.hold(CLUSTER_DEFERRED_QUOTAS)
            label(rig, OTHER)
            steps(rig)
            assert granted(rig) == {NAMESPACE: "4", OTHER: "3"}
            rig.term[0], new.term[0] = 0, 2
            rig.finish("one")
            new.tracker.pods.wait_for_version(rig.cluster.resource_version, 2)
            for _ in range(3):
                new.pass_time(2)
                new.round()
            assert cast("Mapping[str, object]", rig.held()) == {}
        rig.catch_up()
        quotas = rig.quotas.in_namespace(NAMESPACE).deferred
        pod = Pod.from_object(rig.api.get(PODS, "three", namespace=NAMESPACE))
        assert GATE in pod.scheduling_gates
        claim = claim_of_assignment(pod, quotas, door=Door.BIND, seen=NEWEST)
        assert claim is not None
        door = Reserver(LedgerStore(MemoryClient(rig.cluster)), shared=stale)
        answer = door.reserve(NAMESPACE, claim, quotas.observed, deadline=time.monotonic() + 5)
        assert isinstance(answer, QuotaExceeded)


def test_a_new_leader_lists_namespaces_once_and_knows_whose_ledger_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sharing = (a_namespace(OTHER), a_namespace("plain", mode=""), shared_quota("4"))
    with (
        a_rig(*sharing, follows=True) as rig,
        another_rig(rig, follows=True, waits_at_start=True, term=[0]) as new,
    ):
        rig.pod("one", "3")
        rig.pod("two", "3")
        steps(rig)
        assert isinstance(rig.reserve("one"), Reserved)
        rig.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
        new.catch_up()
        listed, genuine = list[str](), new.line.list

        def note(kind: Kind, **fields: str) -> ObjectList:
            listed.append(kind.plural)
            return genuine(kind, **fields)

        monkeypatch.setattr(new.line, "list", note)
        rig.term[0], new.term[0] = 0, 2
        new.round()
        assert listed.count(NAMESPACES.plural) == 1
        new.step()
        assert not new.has_ledger()
        rig.bind("one")
        new.pass_time(EXPIRE_SECONDS + 1)
        steps(new)
        assert isinstance(new.reserve("two"), QuotaExceeded)
        new.api.patch(NAMESPACES, "plain", {"metadata": {"labels": {MODE_LABEL: "deferred"}}})
        steps(new, 1)
        assert new.has_ledger("plain")  # it was not opted in when the leadership began
