"""Ledger objects of a namespace with one counted quota."""

from __future__ import annotations

from webhook.quota.amounts.quantity import Quantity
from webhook.quota.ledger.ledger import Account, Ledger, QuotaRevision
from webhook.state.ledger_store import LedgerStore, LedgerVersion

NS = "team-a"


def counted(used: str) -> Ledger:
    cpu = {"requests.cpu": Quantity.parse(used)}
    hard = {"requests.cpu": Quantity.parse("5")}
    return Ledger(
        {"q": Account(QuotaRevision("q", "u", "s"), hard, cpu)}, {}, pods_resource_version=5
    )


def made(store: LedgerStore) -> LedgerVersion:
    version = store.create(NS)
    assert version is not None
    return version
