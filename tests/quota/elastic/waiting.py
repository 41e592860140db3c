"""Pods that wait for a pool."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from webhook.quota.amounts.quantity import Quantity
from webhook.quota.ledger.ledger import Account, Claim, Ledger, QuotaRevision, ReservationSource
from webhook.quota.objects.model import Pod
from webhook.quota.queue.queued_pods import Blocker, PendingReason, PendingStatus, QueuedPod

POOL, MAX = "cdq/epool.default", "cdq/eq.team-b.q"
CPU, MEMORY = "requests.cpu", "requests.memory"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def amounts(given: Mapping[str, int]) -> dict[str, Quantity]:
    return {name: Quantity.of_units(number) for name, number in given.items()}


def claim(uid: str, usage: Mapping[str, int], *quotas: str) -> Claim:
    return Claim(
        uid, uid, ReservationSource.RELEASE, amounts(usage), quotas or (POOL,), observed_version=0
    )


def queued(uid: str, blocker: Blocker | None = None, **usage: int) -> QueuedPod:
    pod = Pod.from_object({"metadata": {"name": uid, "uid": uid}})
    named = {f"requests.{name}": number for name, number in usage.items()}
    return QueuedPod(pod, (0, NOON, 0, uid), claim(uid, named), (POOL,), blocker)


def status(reason: PendingReason, over: Mapping[str, int], usage: int = 1) -> PendingStatus:
    accounts = {
        name: Account(
            QuotaRevision(name, "u", "h"), amounts({CPU: 4}), amounts({CPU: used}), {}, {}
        )
        for name, used in over.items()
    }
    return PendingStatus(
        reason, 1, _claim=claim("x", {CPU: usage}, *over), _ledger=Ledger(accounts, {})
    )


FULL = PendingReason.QUOTA_EXCEEDED
