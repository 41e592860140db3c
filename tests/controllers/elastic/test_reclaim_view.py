"""What reclaim takes for used, and what for about to leave."""

from __future__ import annotations

from typing import Any, cast

from tests.controllers.elastic.objects import an_elastic_quota
from webhook.controllers.elastic.reclaim_view import OverdueReleases, ReclaimView
from webhook.quota.elastic.capacity import ElasticPod
from webhook.quota.elastic.elastic_quotas import ElasticQuota, read_elastic_quota
from webhook.quota.elastic.fair_share import Pool
from webhook.quota.ledger.ledger import Ledger, Reservation, ReservationSource
from webhook.state.ledger_store import LedgerStore

CPU = 10**9


def a_pod(namespace: str, name: str) -> ElasticPod:
    return ElasticPod(namespace, name, f"{namespace}-{name}", None, 0, {"cpu": CPU})


def a_view() -> tuple[ReclaimView, dict[str, ElasticQuota]]:
    """Two quotas; each has a pod, one that is ending, and one that was reserved for only."""
    quotas = {
        name: read_elastic_quota(cast("Any", an_elastic_quota(name, {"cpu": "4"})))
        for name in ("team-a", "team-b")
    }
    by_key = {one.key: one for one in quotas.values()}
    pods = {one.key: [a_pod(name, "runs")] for name, one in quotas.items()}
    leaving = {
        one.key: [a_pod(name, "ends"), a_pod(name, "unstored")] for name, one in quotas.items()
    }
    unstored = frozenset(f"{name}-unstored" for name in quotas)
    pool = Pool("default", by_key.values())
    view = ReclaimView(quotas, {"default": pool}, pods, leaving, unstored, cast("Any", None))
    return view, quotas


def names(found: dict[str, list[ElasticPod]], quota: ElasticQuota) -> list[str]:
    return [one.name for one in found[quota.key]]


def test_what_was_reserved_for_pods_that_are_not_stored_leaves_others_and_not_the_claimant() -> (
    None
):
    view, quotas = a_view()
    claimant, other = quotas["team-a"], quotas["team-b"]
    found = view.without(claimant, "waits")
    assert names(found, claimant) == ["runs", "unstored"]
    assert names(found, other) == ["runs"]
    everything = view.with_leaving(claimant, "waits")
    assert sorted(names(everything, claimant)) == ["ends", "runs", "unstored"]
    assert sorted(names(everything, other)) == ["ends", "runs", "unstored"]
    assert names(view.without(claimant, "team-a-runs"), claimant) == ["unstored"]


class Ledgers:
    """One ledger, of a namespace."""

    def __init__(self) -> None:
        self.ledger = Ledger({}, {})

    def known(self, namespace: str) -> Any:
        return self if namespace == "team-a" else None

    def reserve(self, uid: str, source: ReservationSource, serial: int) -> None:
        one = Reservation(uid, uid, source, {}, {}, (), serial)
        self.ledger = Ledger({}, {**self.ledger.reservations, uid: one})


def test_what_is_reserved_since_a_release_is_overdue_however_often_it_is_written() -> None:
    clock, ledgers = [100.0], Ledgers()
    overdue = OverdueReleases(lambda: clock[0], lambda: 50.0)
    for serial in range(4):
        ledgers.reserve("released", ReservationSource.RELEASE, serial)
        ledgers.reserve("bound", ReservationSource.BIND, serial)
        overdue.look(["team-a", "team-b"], cast("LedgerStore", ledgers))
        assert overdue.uids() == frozenset()
        clock[0] += 16.0
    assert overdue.uids() == {"released"}
    ledgers.ledger = Ledger({}, {})
    overdue.look(["team-a"], cast("LedgerStore", ledgers))
    ledgers.reserve("released", ReservationSource.RELEASE, 9)
    overdue.look(["team-a"], cast("LedgerStore", ledgers))
    assert overdue.uids() == frozenset()
