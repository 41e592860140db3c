"""Managed namespaces as this process' caches show them: ledger, queue and consumers, read only.

A standby shows the same as the leader, but for how often pods were overtaken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from webhook.controllers.ledger.usage_cache import UsageCache
from webhook.controllers.queue.controller import ReleaseOptions
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.quota.explaining.consumers import consumers
from webhook.quota.explaining.facts import NamespaceFacts, PodFacts
from webhook.quota.explaining.values import Consumer
from webhook.quota.ledger.ledger import Ledger, check_observed
from webhook.quota.ledger.ledger_room import release_room
from webhook.quota.objects.model import Pod
from webhook.quota.queue.preemptors import UnboundPreemptors
from webhook.quota.queue.queued_pods import CycleResult, QueueCriteria, QueuedPod, WaitHistory
from webhook.quota.queue.release_order import run_cycle
from webhook.quota.shared.escrow import beside, shared_names, without_headroom
from webhook.state.ledger_store import LedgerStore
from webhook.state.quota_cache import NamespaceQuotaView
from webhook.state.shared_quotas import SharedQuotaStore

_NOT_READ: Final = "the quota ledger is not there, or cannot be read"


@dataclass(frozen=True, slots=True)
class NamespaceSnapshot:
    """A managed namespace at one moment."""

    name: str
    at: datetime
    ledger: Ledger | None
    """The ledger beside what other namespaces hold of shared quotas; None where there is none."""
    undecided: str
    """Why nothing is admitted by that ledger now; empty where binds are decided by it."""
    queue: tuple[QueuedPod, ...]
    """The gated pods in their order, and pods in flight that some of them stand behind."""
    cycle: CycleResult
    """The queue as a cycle would decide it now."""
    consumers: tuple[Consumer, ...]
    """The pods that take most of the quotas, the largest share of a limit first."""


class ClusterOverview:
    """Snapshots of managed namespaces. Safe to use from several threads; it calls no API server.

    Args:
        shared: Grants of shared quotas.
        options: How gated pods are released.
    """

    def __init__(
        self,
        usage_cache: UsageCache,
        ledgers: LedgerStore,
        shared: SharedQuotaStore,
        timings: ControllerTimings,
        options: ReleaseOptions,
    ) -> None:
        self._usage_cache = usage_cache
        self._ledgers = ledgers
        self._shared = shared
        self._timings = timings
        self._options = options

    @property
    def pod_count(self) -> int:
        """Number of pods of the cluster, as far as is known."""
        return len(self._usage_cache.pods)

    def namespaces(self) -> list[str]:
        """Return the managed namespaces, sorted."""
        cache = self._usage_cache
        with cache.lock:
            return sorted(
                name for name, state in cache.namespaces.items() if not state.is_opted_out
            )

    def ledger(self, namespace: str) -> Ledger | None:
        """Return the ledger of a namespace, beside what others hold of shared quotas."""
        known = self._ledgers.known(namespace)
        ledger = None if known is None else known.ledger
        if ledger is None:
            return None
        versions = {name: self._shared.known(name) for name in shared_names(ledger)}
        shared = {name: None if one is None else one.shared for name, one in versions.items()}
        found = beside(ledger, namespace, shared)
        return without_headroom(found, namespace, shared) or found

    def queued_count(self, namespace: str) -> int:
        """Return how many pods wait behind the gate."""
        cache = self._usage_cache
        with cache.lock:
            state = cache.namespaces.get(namespace)
            return 0 if state is None else len(state.usage.gated_pods)

    def snapshot(self, namespace: str) -> NamespaceSnapshot | None:
        """Return a managed namespace as it is now; None where it is not managed."""
        cache = self._usage_cache
        with cache.lock:
            state = cache.namespaces.get(namespace)
            if state is None or state.is_opted_out:
                return None
            history = state.pod_queue.history(self._timings.clock())
        queue, criteria = cache.shown_queue(namespace, state)
        preemptors = state.pod_queue.preemptors
        view = cache.managed.quotas_of(namespace)
        ledger = self.ledger(namespace)
        undecided = self._undecided(namespace, ledger, view)
        judged_by = None if criteria is None else criteria.quotas.observed
        # it decides nothing of pods that were judged by other quotas than it counts
        decides = not undecided and ledger is not None and judged_by in (None, ledger.observed)
        now = self._timings.now()
        return NamespaceSnapshot(
            namespace,
            now,
            ledger,
            undecided,
            queue,
            self._cycle(namespace, ledger if decides else None, queue, history, preemptors),
            _consumers(namespace, now, ledger, view, cache.pods.in_namespace(namespace)),
        )

    def _undecided(self, namespace: str, ledger: Ledger | None, view: NamespaceQuotaView) -> str:
        if view.errors:
            return "; ".join(view.errors)
        if ledger is None:
            return _NOT_READ
        managed = self._usage_cache.managed
        since, guard = managed.opted_in_at(namespace), managed.guard()
        guard_uid = None if guard is None else guard.uid
        verdict = check_observed(ledger, view.deferred.observed, since=since, guard_uid=guard_uid)
        return "" if verdict is None else verdict.message

    def _cycle(
        self,
        namespace: str,
        ledger: Ledger | None,
        queue: tuple[QueuedPod, ...],
        history: Mapping[str, WaitHistory],
        preemptors: UnboundPreemptors,
    ) -> CycleResult:
        queue = self._options.precedence(namespace, ledger, queue)
        room = release_room(ledger, self._options.max_reservations())
        policy = self._options.policy()
        return run_cycle(ledger, queue, policy, room=room, history=history, preemptors=preemptors)


def _consumers(
    namespace: str,
    now: datetime,
    ledger: Ledger | None,
    view: NamespaceQuotaView,
    pods: Iterable[Pod],
) -> tuple[Consumer, ...]:
    facts = NamespaceFacts(
        namespace,
        criteria=QueueCriteria(view.deferred, view.all_quotas),
        ledger=ledger,
        pods=tuple(map(PodFacts, pods)),
        now=now,
    )
    return consumers(facts, {quota.name: quota.hard.keys() for quota in view.deferred.quotas})
