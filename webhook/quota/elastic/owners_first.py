"""Precedence of owners: what a pool lacks goes first to pods that stay within their quota's min.

While such a pod waits for the pool, and for nothing else, no pod of another quota is released that
would take of what it lacks beyond its own min. Pods that stay within theirs are in no other's way,
nor is one that takes what is promised to it: that is no room to others, whether it goes or waits.

This decides on pods behind our gate only. A pod without a gate is charged at its bind, in the order
in which binds come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, TypeVar

from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList, add, add_to
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.elastic.derived_quotas import quota_key
from webhook.quota.elastic.elastic_quotas import ElasticQuota
from webhook.quota.ledger.ledger import Claim, Ledger
from webhook.quota.objects.names import DERIVED_PREFIXES, POOL_PREFIX
from webhook.quota.queue.queued_pods import Blocker, PendingReason, PendingStatus, QueuedPod
from webhook.quota.shared.cluster_quotas import ledger_name
from webhook.quota.shared.escrow import need

Lacking: TypeAlias = Mapping[str, ResourceList]
"""Pool (its name in ledgers) → what a pod lacks that waits for pools alone."""
Waiting: TypeAlias = Mapping[str, Sequence[Lacking]]
"""Namespace → what such pods of it lack."""

_POOL: Final = ledger_name(POOL_PREFIX)
_DERIVED: Final = tuple(map(ledger_name, DERIVED_PREFIXES))
_LOOKED_AT: Final = 8
"""Pods of a queue that are taken for ones that wait for elastic quotas alone, of those behind our
gate and of the others."""
_HOLDING: Final = (
    PendingReason.QUOTA_EXCEEDED,
    PendingReason.BEHIND,
    PendingReason.LEDGER_FULL,
    PendingReason.NOT_COUNTED,
)
"""Reasons of pods that may hold those behind them."""
_K = TypeVar("_K")


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod that waits for a pool and for nothing else."""

    quota: str
    """Account of its elastic quota, such as `eq/team-a`."""
    namespace: str
    lacks: ResourceList
    """What it requests of that which the pool has too little of, by quota key."""


@dataclass(frozen=True, slots=True)
class PoolShare:
    """Part of a quota in one pool."""

    held: ResourceList
    """What its namespaces hold, by quota key."""
    least: ResourceList
    """Its min, by quota key."""
    owners: Sequence[WaitingPod] = field(default=())
    """Pods of other quotas that stay within their min and wait for this pool."""
    promised: Mapping[str, ResourceList] = field(default_factory=dict)
    """Uid of a pod without a reservation → what is promised to it."""

    def borrows(self, key: str, amount: Quantity) -> bool:
        """Return whether taking more of a resource would be above min."""
        return self.held.get(key, ZERO) + amount > self.least.get(key, ZERO)


@dataclass(frozen=True, slots=True)
class PoolView:
    """Pools as far as they are known."""

    quotas: Mapping[str, ElasticQuota]
    """Those that count, by namespace."""
    held: Callable[[str, Collection[str]], ResourceList]
    """Returns what namespaces hold of a pool, given by its name in ledgers."""
    gb_per_gpu: int
    """Memory of a whole GPU, GB."""

    def shares(self, namespace: str, ledger: Ledger, waiting: Waiting) -> dict[str, PoolShare]:
        """Return what the quota of a namespace has of its pools, and which owners wait for them.

        Args:
            namespace: The namespace.
            ledger: Its ledger.
            waiting: What pods of other namespaces lack.
        """
        quota = self.quotas.get(namespace)
        if quota is None:
            return {}
        pools = pools_of(ledger)
        return {pool: self._share(pool, namespace, quota, ledger, waiting) for pool in pools}

    def _share(
        self, pool: str, namespace: str, quota: ElasticQuota, ledger: Ledger, waiting: Waiting
    ) -> PoolShare:
        others = [one for one in quota.namespaces if one != namespace]
        held = add(need(ledger.accounts[pool]), self.held(pool, others))
        parts: dict[str, PoolShare] = {}

        def stays_within_min(owner: ElasticQuota, lacks: ResourceList) -> bool:
            if owner.key not in parts:  # once for all of its pods: it may have many namespaces
                part = self.held(pool, owner.namespaces)
                parts[owner.key] = PoolShare(part, self._least(owner))
            return not any(parts[owner.key].borrows(key, amount) for key, amount in lacks.items())

        owners = [
            WaitingPod(owner.account, name, lacking[pool])
            for name, pods in sorted(waiting.items())
            for lacking in pods
            if pool in lacking
            and (owner := self.quotas.get(name)) is not None
            and owner.key != quota.key
            and stays_within_min(owner, lacking[pool])
        ]
        return PoolShare(held, self._least(quota), owners, ledger.accounts[pool].promised)

    def _least(self, quota: ElasticQuota) -> ResourceList:
        keys = {name: quota_key(name, self.gb_per_gpu) for name in quota.min}
        return {key: quota.min[name] for name, key in keys.items() if key is not None}


def pools_of(ledger: Ledger) -> list[str]:
    """Return the pools of elastic quotas that a ledger has accounts of."""
    return [name for name in ledger.accounts if name.startswith(_POOL)]


def waiting_for_pools(pending: Iterable[PendingStatus]) -> tuple[Lacking, ...]:
    """Return what the first pods lack that wait for pools alone, none of them behind another one.

    Args:
        pending: Why the pods of a queue wait, in order.
    """
    found = _waiting_alone(enumerate(pending), (_POOL,))
    return tuple([{one.quota: one.requested for one in status.denials} for _, status in found])


def waiting_for_elastic(pending: Mapping[str, PendingStatus]) -> dict[str, frozenset[str]]:
    """Return the first pods that wait for elastic quotas and for nothing else, but for each other.

    They are the first behind our gate, and the first whose bind was refused. Left out are those
    that would exceed another quota once the pods with a promise have what they ask for.

    Args:
        pending: Why the pods of a queue wait, by uid, in order.

    Returns:
        Uid of each → uids of those that it waits behind. It is released after these: until all of
        them have what they lack, nothing may be evicted for it.
    """
    waiting = dict(_waiting_alone(pending.items(), _DERIVED))
    promised = [one for one in pending.values() if one.is_promised]
    alone = {
        uid
        for uid, one in waiting.items()
        if one.is_promised or _are_elastic(one.denials_after(promised))
    }
    left = _LOOKED_AT - sum(not pending[uid].is_retried for uid in alone)
    found: dict[str, frozenset[str]] = {}
    holders: dict[str, set[str]] = {}
    before: list[PendingStatus] = []
    lost: set[str] = set()  # quotas that are held by pods for which nothing is evicted
    for uid, status in pending.items():
        names = status.failing or status.quotas
        is_next = left > 0 and lost.isdisjoint(status.quotas) and _is_next(status, before)
        if is_next or uid in alone:
            left -= is_next
            ahead = {one for name in status.quotas if is_next for one in holders.get(name, ())}
            found[uid] = frozenset(ahead).union(*(found[one] for one in ahead))
            if status.is_retried:
                continue
            before.append(status)
            for name in names:
                holders.setdefault(name, set()).add(uid)
        elif status.reason in _HOLDING and not status.is_retried:
            lost.update(names)
        elif status.reason is PendingReason.PREEMPTORS_UNBOUND:
            lost.update(status.failing)
    return found


def _is_next(status: PendingStatus, before: Sequence[PendingStatus]) -> bool:
    """Return whether a pod behind others lacks nothing but elastic quota beside these."""
    if status.reason is not PendingReason.BEHIND or status.is_retried:
        return False
    denials = status.denials_after(before)
    return _are_elastic(denials) and (bool(denials) or status.is_promised)


def _are_elastic(denials: Iterable[QuotaExceeded]) -> bool:
    return all(one.quota.startswith(_DERIVED) for one in denials)


def _waiting_alone(
    pending: Iterable[tuple[_K, PendingStatus]], prefixes: tuple[str, ...]
) -> Iterator[tuple[_K, PendingStatus]]:
    """Yield of the pods that exceed quotas those for which all of these begin so."""
    seen = {True: 0, False: 0}
    for key, status in pending:
        if status.reason is not PendingReason.QUOTA_EXCEEDED:
            continue
        is_alone = all(name.startswith(prefixes) for name in status.failing)
        if not is_alone or seen[status.is_retried] >= _LOOKED_AT:
            continue
        seen[status.is_retried] += 1
        denials = status.denials
        if denials and all(one.quota.startswith(prefixes) for one in denials):
            yield key, status


def owners_first(
    queue: Iterable[QueuedPod], shares: Mapping[str, PoolShare], reserved: Iterable[str]
) -> tuple[QueuedPod, ...]:
    """Return a queue in which pods are blocked that owners come before.

    Args:
        queue: The pods of a namespace in their order.
        shares: What its quota has of each pool, by the pool's name in ledgers.
        reserved: Uids of pods that hold a reservation already.
    """
    held = frozenset(reserved)
    taken: dict[str, dict[str, Quantity]] = {name: {} for name in shares}
    return tuple([one if one.uid in held else _judged(one, shares, taken) for one in queue])


def _judged(
    queued: QueuedPod, shares: Mapping[str, PoolShare], taken: dict[str, dict[str, Quantity]]
) -> QueuedPod:
    if queued.claim is None or not queued.is_waiting_for_quota:
        return queued
    usage = queued.claim.usage
    for name in queued.quotas:
        share = shares.get(name)
        owner = None if share is None else _owner_before(share, queued.claim, taken[name])
        if owner is not None:
            detail = (
                f"pods of {owner.quota} in namespace {owner.namespace}, which stay within its min,"
                " come first"
            )
            return replace(queued, blocker=Blocker(PendingReason.OWNERS_FIRST, detail, name))
    for name in queued.quotas:
        if name in taken:
            add_to(taken[name], usage)
    return queued


def _owner_before(
    share: PoolShare, claim: Claim, taken: Mapping[str, Quantity]
) -> WaitingPod | None:
    """Return a pod that has to get first what this one would borrow."""
    promised = share.promised.get(claim.uid, {})
    borrowed = {
        key
        for key, amount in claim.usage.items()
        if amount > promised.get(key, ZERO) and share.borrows(key, taken.get(key, ZERO) + amount)
    }
    return next((one for one in share.owners if not borrowed.isdisjoint(one.lacks)), None)
