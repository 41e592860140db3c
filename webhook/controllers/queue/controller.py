"""Run each namespace's pod queue: reserve quota for pods that fit, then remove their gates.

A queue is run whenever its namespace is reconciled, and what it decides is part of the same
write: what a pod that ended gives back is given to the next one at once. Gates are removed only
for what is known to be written.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from webhook.controllers.ledger.namespace_state import NamespaceState
from webhook.controllers.queue.gate_remover import GateRemover
from webhook.quota.ledger.ledger import Ledger
from webhook.quota.ledger.ledger_room import is_large_for_releases
from webhook.quota.queue.queued_pods import (
    CycleResult,
    PendingReason,
    PendingStatus,
    QueuedPod,
    QueuePolicy,
)
from webhook.quota.queue.release_order import release_limit, run_cycle
from webhook.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)

_RESERVED: Final = "Reserved"

QueueListener: TypeAlias = Callable[[str, Mapping[str, PendingStatus], Collection[str]], None]
"""Receives, after a look at a namespace, its name, why each of its pods waits (by uid, in the order
of the queue), and the uids of those that may go and were still behind the gate, or whose bind had
been refused; none while the namespace opts out. It must not block, and may be called from several
threads for different namespaces."""


LostReservationsListener: TypeAlias = Callable[[str, Collection[str]], None]
"""Receives a namespace's name, and the uids of pods without a node for which nothing is reserved
any more. It must not block either."""


def _ignore_queue(
    _namespace: str, _pending: Mapping[str, PendingStatus], _releasable: Collection[str]
) -> None:
    """Do nothing."""


def _ignore_lost_reservations(_namespace: str, _uids: Collection[str]) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOptions:
    """Options of the release of pods."""

    policy: Callable[[], QueuePolicy] = QueuePolicy
    """Queueing policy; read at every look."""
    max_reservations: Callable[[], int] = lambda: 4000
    """How many reservations a namespace may have."""
    gate_release_seconds: Callable[[], float] = lambda: 60.0
    """For how long no node takes a pod until its quota goes to others."""
    may_admit_ungated: Callable[[str], bool] = lambda _namespace: False
    """Returns whether pods of a namespace may do without a gate while there is room."""
    precedence: Callable[[str, Ledger | None, tuple[QueuedPod, ...]], tuple[QueuedPod, ...]] = (
        lambda _namespace, _ledger, queue: queue
    )
    """Returns the queue of a namespace with those pods blocked that pods elsewhere come before, by
    the ledger that is about to be written."""
    workers: int = 16
    """How many gates are removed at the same time."""
    on_queue: QueueListener = _ignore_queue
    """Receives why pods wait."""
    on_reservations_lost: LostReservationsListener = _ignore_lost_reservations
    """Receives pods for which nothing is reserved any more."""


class PodQueues:
    """Pod queues of all namespaces. Safe to use from several threads for different namespaces.

    Args:
        options: How pods are released.
        gates: What removes gates.
    """

    def __init__(
        self,
        options: ReleaseOptions,
        gates: GateRemover,
        *,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        metrics: Metrics,
    ) -> None:
        self._options = options
        self._gates = gates
        self._clock = clock
        self._now = now
        self._metrics = metrics
        self._counts_by_namespace: dict[str, Counter[str]] = {}
        self._counts: Counter[str] = Counter()
        """Their sum: each look at a namespace shows it, and very many may have pods that wait."""
        self._lock = threading.Lock()

    def run_cycle(
        self,
        namespace: str,
        state: NamespaceState,
        ledger: Ledger | None,
        queue: tuple[QueuedPod, ...],
    ) -> CycleResult:
        """Reserve for pods that fit, on the ledger that is about to be written."""
        if not queue:
            return CycleResult(ledger)
        queue = self._options.precedence(namespace, ledger, queue)
        room = release_limit(ledger, queue, self._options.max_reservations())
        cycle = self._run(state, ledger, queue, room)
        while cycle.released and cycle.ledger and is_large_for_releases(cycle.ledger):
            room = len(cycle.released) // 2
            cycle = self._run(state, ledger, queue, room)
        return cycle

    def commit(
        self,
        namespace: str,
        state: NamespaceState,
        cycle: CycleResult,
        *,
        since: float,
        is_leader: Callable[[], bool],
    ) -> None:
        """Carry out what was decided: the ledger is written.

        Args:
            cycle: What was decided.
            since: When that became possible.
            is_leader: Returns whether this process still leads.
        """
        # counts of an earlier leadership have to be reset even if nothing waits now
        if not (
            state.pod_queue.record(cycle, self._clock()) or namespace in self._counts_by_namespace
        ):
            return
        # gates are removed only now, because the reservations are in the written ledger
        self._gates.enqueue(
            namespace, [one.pod for one in cycle.releasable], since=since, is_leader=is_leader
        )
        self._count(namespace, cycle)
        if cycle.released:
            _log.info(
                "pods released",
                extra={
                    "namespace": namespace,
                    "released": len(cycle.released),
                    "waiting": len(cycle.pending),
                },
            )
        # pods of a namespace that has opted out leave the queue with nothing reserved
        going = () if state.is_opted_out else (*cycle.releasable, *cycle.retried)
        self._options.on_queue(namespace, cycle.pending, [one.uid for one in going])

    def report_lost_reservations(
        self, namespace: str, state: NamespaceState, uids: Collection[str]
    ) -> None:
        """Report reservations that the ledger has given up to the listeners."""
        pods = {uid: state.usage.pod(uid) for uid in uids}
        left = [uid for uid, pod in pods.items() if pod is not None and not pod.is_assigned]
        if left:
            self._options.on_reservations_lost(namespace, left)

    def forget(self, namespace: str) -> None:
        """Forget a namespace that is not tracked any more, or by another process."""
        self._gates.enqueue(namespace, (), since=0.0, is_leader=lambda: False)
        if namespace in self._counts_by_namespace:
            self._show(namespace, Counter())
        self._options.on_queue(namespace, {}, ())  # listeners may still know pods that waited

    def _run(
        self,
        state: NamespaceState,
        ledger: Ledger | None,
        queue: tuple[QueuedPod, ...],
        limit: int,
    ) -> CycleResult:
        return run_cycle(
            ledger,
            queue,
            self._options.policy(),
            room=limit,
            history=state.pod_queue.history(self._clock()),
            preemptors=state.pod_queue.preemptors,
        )

    def _count(self, namespace: str, cycle: CycleResult) -> None:
        gated = [one.pod for one in cycle.released if one.is_gated]
        self._metrics.queue.pods.inc(len(gated))
        for pod in gated:
            if pod.created is not None:  # by the clock of the API server
                waited = (self._now() - pod.created).total_seconds()
                self._metrics.queue.wait_seconds.observe(max(0.0, waited))
        states = Counter(pending.reason.value for pending in cycle.pending.values())
        states[_RESERVED] = len(cycle.releasable)
        self._show(namespace, states)

    def _show(self, namespace: str, states: Counter[str]) -> None:
        """Show how many pods wait in all namespaces, of which one has these now."""
        with self._lock:
            self._counts.subtract(self._counts_by_namespace.pop(namespace, Counter()))
            self._counts.update(states)
            if states.total():
                self._counts_by_namespace[namespace] = states
            for state in (*PendingReason, _RESERVED):
                self._metrics.queue.waiting.labels(str(state)).set(self._counts[str(state)])
