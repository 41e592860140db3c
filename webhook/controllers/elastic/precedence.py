"""Owners first: which queues of the leader hold back, because others stay within their min."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final

from webhook.config import ElasticSettings
from webhook.controllers.runtime.leadership import always_leader
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList, add
from webhook.quota.elastic.derived_quotas import quota_key
from webhook.quota.elastic.elastic_quotas import ElasticQuota
from webhook.quota.elastic.owners_first import (
    PoolShare,
    WaitingPod,
    first_waiting,
    owners_first,
)
from webhook.quota.ledger.ledger import Ledger
from webhook.quota.objects.names import POOL_PREFIX
from webhook.quota.queue.queued_pods import PendingReason, PendingStatus, QueuedPod
from webhook.quota.shared.cluster_quotas import ledger_name
from webhook.quota.shared.escrow import need
from webhook.state.shared_quotas import SharedQuotaStore

_POOL: Final = ledger_name(POOL_PREFIX)
_AGAIN_SECONDS: Final = 1.0
"""Until a queue that holds back is looked at again."""


class OwnersFirst:
    """Precedence of owners over borrowers. Safe to use from several threads.

    Args:
        quotas: Returns the elastic quotas that count, by namespace.
        shared: What is held of pools.
        settings: Returns what the configuration says of elastic quotas.
        requeue_after: Has a namespace looked at again after some seconds.
        leader_epoch: Returns the leadership; what an earlier one saw of queues holds nothing back.
    """

    def __init__(
        self,
        quotas: Callable[[], Mapping[str, ElasticQuota]],
        shared: SharedQuotaStore,
        settings: Callable[[], ElasticSettings],
        requeue_after: Callable[[str, float], None],
        leader_epoch: Callable[[], int] = always_leader,
    ) -> None:
        self._quotas = quotas
        self._shared = shared
        self._settings = settings
        self._requeue_after = requeue_after
        self._leader_epoch = leader_epoch
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[int, Mapping[str, ResourceList]]] = {}
        """Namespace → the leadership that saw it, and pool → what its first pod lacks."""

    def on_queue(
        self, namespace: str, pending: Mapping[str, PendingStatus], _releasable: Collection[str]
    ) -> None:
        """Take the result of a cycle of a queue, see `QueueListener`."""
        if any(one.reason is PendingReason.OWNERS_FIRST for one in pending.values()):
            self._requeue_after(namespace, _AGAIN_SECONDS)
        lacking = first_waiting(pending.values()) if namespace in self._quotas() else {}
        with self._lock:
            if lacking:
                self._waiting[namespace] = self._leader_epoch(), lacking
            else:
                self._waiting.pop(namespace, None)

    def order(
        self, namespace: str, ledger: Ledger | None, queue: tuple[QueuedPod, ...]
    ) -> tuple[QueuedPod, ...]:
        """Return a queue with those pods blocked that owners elsewhere come before."""
        quota = self._quotas().get(namespace)
        present = self._leader_epoch()
        with self._lock:
            waiting = {
                name: lacking
                for name, (epoch, lacking) in self._waiting.items()
                if epoch == present and name != namespace
            }
        if ledger is None or quota is None or not waiting:
            return queue
        shares = {
            name: self._share(name, namespace, quota, ledger, waiting)
            for name in ledger.accounts
            if name.startswith(_POOL)
        }
        return owners_first(queue, shares, ledger.reservations)

    def _share(
        self,
        pool: str,
        namespace: str,
        quota: ElasticQuota,
        ledger: Ledger,
        waiting: Mapping[str, Mapping[str, ResourceList]],
    ) -> PoolShare:
        others = [one for one in quota.namespaces if one != namespace]
        held = add(need(ledger.accounts[pool]), self._held(pool, others))
        owners = [
            WaitingPod(owner.account, name, lacking[pool])
            for name, lacking in sorted(waiting.items())
            if pool in lacking
            and (owner := self._quotas().get(name)) is not None
            and owner.key != quota.key
            and self._stays_within_min(owner, pool, lacking[pool])
        ]
        return PoolShare(held, self._least(quota), owners)

    def _stays_within_min(self, quota: ElasticQuota, pool: str, lacks: ResourceList) -> bool:
        held, least = self._held(pool, quota.namespaces), self._least(quota)
        return all(
            held.get(key, ZERO) + amount <= least.get(key, ZERO) for key, amount in lacks.items()
        )

    def _held(self, pool: str, namespaces: Collection[str]) -> ResourceList:
        version = self._shared.known(pool)
        total: ResourceList = {}
        grants: Mapping[str, ResourceList] = {} if version is None else version.grants.namespaces
        for name in namespaces:
            total = add(total, grants.get(name, {}))
        return total

    def _least(self, quota: ElasticQuota) -> ResourceList:
        gb_per_gpu = self._settings().gpu_memory_gb
        found: dict[str, Quantity] = {}
        for name, amount in quota.min.items():
            key = quota_key(name, gb_per_gpu)
            if key is not None:
                found[key] = amount
        return found
