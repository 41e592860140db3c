"""The end: what the ledgers say, against what the pods take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.torture.observer.amounts import Amounts, spelled, total
from tests.torture.observer.facts import CLUSTER_PREFIX, Account, LedgerFact, PodFact, QuotaFact


@dataclass(frozen=True, slots=True)
class Difference:
    """A quota whose ledger is not what its pods make it."""

    namespace: str
    quota: str
    what: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.quota}: {self.what}"


def recount(quota: QuotaFact, pods: Iterable[PodFact], *, at: float) -> dict[str, int]:
    """Add up what the pods of a namespace take of a quota at a moment."""
    taken = dict.fromkeys(quota.hard, 0)
    for pod in pods:
        if pod.is_assigned and pod.remains(at) and quota.selects(pod.traits):
            for key in taken:
                taken[key] += pod.usage.get(key, 0)
    return taken


def differences(
    ledger: LedgerFact | None,
    quotas: Iterable[QuotaFact],
    pods: Iterable[PodFact],
    *,
    namespace: str,
    at: float,
) -> list[Difference]:
    """Compare a namespace's ledger with a recount; nothing when they are equal.

    Every quota with deferred keys has one account, of that very quota, with just what its pods
    take under `used`; there are no other accounts but those of cluster quotas. Nothing is reserved
    but what was promised to pods that have no node yet, and at least what these take.
    """
    deferred = {quota.name: quota for quota in quotas if quota.hard}
    if ledger is None or not ledger.is_there:
        return [Difference(namespace, name, "there is no ledger") for name in sorted(deferred)]
    known = list(pods)
    promised = [
        pod for pod in known if pod.uid in ledger.promised and pod.is_live and not pod.is_assigned
    ]
    found = [
        Difference(namespace, name, what)
        for name, quota in sorted(deferred.items())
        for what in _faults(
            ledger.accounts.get(name), quota, recount(quota, known, at=at), promised
        )
    ]
    extra = sorted(
        name for name in set(ledger.accounts) - set(deferred) if not name.startswith(CLUSTER_PREFIX)
    )
    found += [
        Difference(namespace, name, "the ledger counts a quota that is not there") for name in extra
    ]
    left = ledger.reservations - len(promised)
    if left:
        found.append(Difference(namespace, "*", f"{left} reservations are left"))
    return found


def idle_promises(
    quotas: Iterable[Mapping[str, Any]], waiting: Iterable[PodFact]
) -> list[Difference]:
    """Return what is held in cluster quotas for pods that do not wait for it.

    Args:
        quotas: ClusterDeferredQuotas.
        waiting: The pods of all namespaces that have not ended and have no node.
    """
    uids = {pod.uid for pod in waiting}
    return [
        Difference(
            one["namespace"], quota["metadata"]["name"], f"promised to {one['pod']} for ever"
        )
        for quota in quotas
        for one in quota.get("status", {}).get("promises", [])
        if one["uid"] not in uids
    ]


def _faults(
    account: Account | None, quota: QuotaFact, taken: Amounts, promised: Sequence[PodFact]
) -> list[str]:
    if account is None or account.uid != quota.uid:
        return ["the ledger does not count this quota"]
    faults = [
        _wrong_charge(key, account.used.get(key, 0), amount)
        for key, amount in sorted(taken.items())
        if account.used.get(key) != amount
    ]
    reserved = {key: amount for key, amount in account.reserved.items() if amount}
    if not promised:
        return faults + ([f"reserved is {spelled(reserved)}"] if reserved else [])
    due = total(pod.usage for pod in promised if quota.selects(pod.traits))
    short = {key: due[key] for key in taken if due.get(key, 0) > reserved.get(key, 0)}
    if short:
        faults.append(f"promised is {spelled(short)}, reserved {spelled(reserved) or 'nothing'}")
    return faults


def _wrong_charge(key: str, used: int, taken: int) -> str:
    word = "lost charge" if used < taken else "charged twice or too long"
    return f"{word}: used {spelled({key: used})}, pods take {spelled({key: taken})}"
