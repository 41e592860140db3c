"""Claims of a namespace with one counted quota `q`, decided by a `Reserver`."""

from __future__ import annotations

import time
from typing import Any

from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    NAMESPACES,
)
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.ledger.ledger import (
    Account,
    Claim,
    Ledger,
    QuotaRevision,
    ReservationSource,
)
from webhook.state.grant_raising import GrantRaiser
from webhook.state.ledger_store import LedgerStore
from webhook.state.reserver import Outcome, Reserver
from webhook.state.shared_quotas import SharedQuotaStore

NS = "team-a"
OBSERVED = QuotaRevision("q", "uid-q", "hash")
SEEN = frozenset({OBSERVED})


def cpu(text: str) -> dict[str, Quantity]:
    return {"requests.cpu": Quantity.parse(text)}


def claim(uid: str, amount: str = "1") -> Claim:
    return Claim(uid, f"pod-{uid}", ReservationSource.BIND, cpu(amount), ("q",))


def counted(client: FakeClient, *, hard: str, used: str = "0") -> LedgerStore:
    """Make the namespace's ledger, as the controller would, and return a store of its own."""
    store = LedgerStore(client)
    version = store.create(NS)
    assert version is not None
    account = Account(OBSERVED, cpu(hard), cpu(used))
    store.write(NS, version, Ledger({"q": account}, {}))
    return LedgerStore(client)


def now(store: LedgerStore) -> Ledger:
    version = store.fetch(NS)
    assert version is not None
    assert version.ledger is not None
    return version.ledger


def soon(seconds: float = 10) -> float:
    return time.monotonic() + seconds


def a_reserver(ledgers: LedgerStore, **options: Any) -> Reserver:
    """Return a reserver of a cluster in which no quota is shared."""
    raiser = GrantRaiser(SharedQuotaStore(FakeClient(FakeCluster())))
    return Reserver(ledgers, raiser, **options)


def ask(reserver: Reserver, uid: str, amount: str = "1") -> Outcome:
    return reserver.reserve(NS, claim(uid, amount), SEEN, deadline=soon())


def a_namespace_cluster() -> FakeCluster:
    """A cluster with the namespace and nothing else."""
    cluster = FakeCluster()
    metadata = {"name": NS}
    FakeClient(cluster).create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    )
    return cluster
