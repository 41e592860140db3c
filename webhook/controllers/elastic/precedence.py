"""Owners first: queues of borrowers hold back while an owner's pod waits within its min."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final

from webhook.config import ElasticSettings
from webhook.controllers.runtime.leadership import always_leader
from webhook.quota.amounts.resources import ResourceList, total_of
from webhook.quota.elastic.elastic_quotas import ElasticQuota
from webhook.quota.elastic.owners_first import (
    Lacking,
    PoolView,
    owners_first,
    waiting_for_pools,
)
from webhook.quota.ledger.ledger import Ledger
from webhook.quota.queue.queued_pods import PendingReason, PendingStatus, QueuedPod
from webhook.state.shared_quotas import SharedQuotaStore

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
        is_stuck: Returns whether the queue of a namespace cannot be looked at any more; it holds
            nothing back.
    """

    def __init__(
        self,
        quotas: Callable[[], Mapping[str, ElasticQuota]],
        shared: SharedQuotaStore,
        settings: Callable[[], ElasticSettings],
        requeue_after: Callable[[str, float], None],
        leader_epoch: Callable[[], int] = always_leader,
        is_stuck: Callable[[str], bool] = lambda _namespace: False,
    ) -> None:
        self._quotas = quotas
        self._shared = shared
        self._settings = settings
        self._requeue_after = requeue_after
        self._leader_epoch = leader_epoch
        self._is_stuck = is_stuck
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[int, tuple[Lacking, ...]]] = {}
        """Namespace → the leadership that saw it, and what pods of it lack."""

    def on_queue(
        self, namespace: str, pending: Mapping[str, PendingStatus], _releasable: Collection[str]
    ) -> None:
        """Take the result of a cycle of a queue, see `QueueListener`."""
        if any(one.reason is PendingReason.OWNERS_FIRST for one in pending.values()):
            self._requeue_after(namespace, _AGAIN_SECONDS)
        lacking = waiting_for_pools(pending.values()) if namespace in self._quotas() else ()
        with self._lock:
            if lacking:
                self._waiting[namespace] = self._leader_epoch(), lacking
            else:
                self._waiting.pop(namespace, None)

    def order(
        self, namespace: str, ledger: Ledger | None, queue: tuple[QueuedPod, ...]
    ) -> tuple[QueuedPod, ...]:
        """Return a queue with those pods blocked that owners elsewhere come before."""
        present = self._leader_epoch()
        with self._lock:
            waiting = {
                name: lacking
                for name, (epoch, lacking) in self._waiting.items()
                if epoch == present and name != namespace and not self._is_stuck(name)
            }
        if ledger is None or not waiting:
            return queue
        view = PoolView(self._quotas(), self._held, self._settings().gpu_memory_gb)
        shares = view.shares(namespace, ledger, waiting)
        return owners_first(queue, shares, ledger.reserved_uids)

    def _held(self, pool: str, namespaces: Collection[str]) -> ResourceList:
        version = self._shared.known(pool)
        grants: Mapping[str, ResourceList] = {} if version is None else version.grants.in_use
        return total_of(grants.get(name, {}) for name in namespaces)
