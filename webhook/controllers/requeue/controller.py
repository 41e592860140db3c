"""Requeue unschedulable pods that our extender denied for want of quota.

A scheduler tries such a pod again after some events of the cluster, or after five minutes. Quota
that becomes free because it was raised, or because a reservation ended, is no event that schedulers
watch; and they may see the end of a pod, which they do watch, before the ledger counts it. So the
leader writes an annotation on the pod: a scheduler tries a changed pod again once its pause is
over.

- A pod is touched only while the newest ledger has room for it beside all that were touched before,
  in the order of the queue, and only if its condition says that quota was the reason.
- One that was touched keeps its room until it is bound, its condition changes, or
  `requeue_interval_seconds` have passed, and is left alone meanwhile; each further rejection makes
  that time longer.
- No more are touched and read per second than is allowed, and each round begins behind the
  namespace that was served last. A pod whose request is rejected rests, and a namespace in which
  the API server does not answer, so that neither keeps the others asleep.
- A pod that was rejected before its namespace opted out is requeued once for that, no other there.

Source: kubernetes v1.36, pkg/scheduler/backend/queue/scheduling_queue.go Update; what an extender
has rejected is worth trying after any event (framework/runtime/framework.go fillEnqueueExtensions).
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Final

from webhook.controllers.requeue.requeue_client import REQUEUED_ANNOTATION, RequeueClient
from webhook.controllers.requeue.requeue_snapshot import (
    OPTED_OUT,
    RequeueOptions,
    RequeueSnapshot,
    take_snapshot,
)
from webhook.controllers.requeue.unschedulable import UnschedulablePods
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.periodic import PeriodicThread
from webhook.controllers.runtime.rate_limit import rest_seconds
from webhook.kube.api import ApiError
from webhook.kube.informer import Change, Informer
from webhook.quota.ledger.ledger import Ledger
from webhook.quota.objects.model import Pod
from webhook.quota.queue.queued_pods import (
    PendingStatus,
    QueueCriteria,
    QueuedPod,
    SortKey,
    to_queued_pod,
)
from webhook.quota.queue.requeue import fitting_pods
from webhook.state.well_known import SCHEDULING_GATE

__all__ = ["REQUEUED_ANNOTATION", "RequeueOptions", "Requeuer"]

_log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 10.0
_MAX_IN_FLIGHT: Final = 200
"""How many pods of a namespace may be requeued and not bound or rejected again."""
_READ_AHEAD: Final = 20
"""How many pods are read at a look at least: those that fit may all be rejected for other reasons,
and the namespace rests before the next look."""


class Requeuer:
    """Requeue pods on a thread. `on_pod` and `on_queue` may be called from other threads.

    Args:
        pods: Returns the cache of pods, whose changes go to `on_pod`.
        options: What decides which pods are requeued.
    """

    def __init__(
        self,
        context: ControllerContext,
        pods: Callable[[], Informer[Pod]],
        options: RequeueOptions,
    ) -> None:
        self._pods = pods
        self._options = options
        self._leader_epoch = context.leader_epoch
        self._timings = context.timings
        self._lock = threading.Lock()
        self._namespaces: dict[str, UnschedulablePods] = {}
        self._pending: dict[str, Mapping[str, PendingStatus]] = {}
        self._epoch = 0
        self._client = RequeueClient(
            context.api,
            context.timings,
            lock=self._lock,
            may_write=self._may_write,
        )
        self._thread = PeriodicThread("requeuer", self.run_pass, retry_seconds=_IDLE_SECONDS)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is known of any pod."""
        return not self._namespaces

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Write nothing more, and wait for what was sent."""
        self._thread.stop(_STOP_SECONDS)

    def on_pod(self, change: Change[Pod]) -> None:
        """Note a change of a pod."""
        namespace, now = change.key.partition("/")[0], self._timings.clock()
        with self._lock:
            pods = self._namespaces.get(namespace)
            if change.new is None:
                if pods is not None:
                    pods.remove(change.uid, is_bound=False, now=now)
            elif pods is not None or not (change.new.is_assigned or change.new.is_gated):
                pods = self._namespaces.setdefault(namespace, UnschedulablePods())
                pods.put(change.new, now)
            if pods is not None and pods.is_empty:
                del self._namespaces[namespace]

    def on_queue(
        self, namespace: str, pending: Mapping[str, PendingStatus], _releasable: Collection[str]
    ) -> None:
        """Take the result of a cycle of a queue, see `QueueListener`; `pending` is kept."""
        with self._lock:
            if pending:
                self._pending[namespace] = pending
            else:
                self._pending.pop(namespace, None)

    def run_pass(self) -> float:
        """Requeue the pods that fit now; return the seconds until the next pass."""
        names = self._due_namespaces(self._timings.clock())
        for name in names:
            if self._client.is_exhausted:
                break
            self._requeue_safely(name)
        return self._timings.requeue_poll_seconds if names else _IDLE_SECONDS

    # -- on the thread -------------------------------------------------------------------------

    def _due_namespaces(self, now: float) -> list[str]:
        """Return the namespaces to look at, in their order."""
        epoch = int(self._leader_epoch()) if self._options.is_enabled() else 0
        with self._lock:
            if epoch != self._epoch:
                self._epoch = epoch
                for pods in self._namespaces.values():
                    pods.reset()
            if not epoch:
                return []
            names = sorted(
                name
                for name, entry in self._namespaces.items()
                if (entry.pods or entry.requeued)
                and max(entry.pause.until, entry.rests_until) <= now
                and not self._client.is_slow(name, now)
            )
        begin = bisect_right(names, self._client.last_served)
        return names[begin:] + names[:begin]

    def _requeue_safely(self, namespace: str) -> None:
        """Look at a namespace; one in which something fails rests."""
        try:
            self._requeue_namespace(namespace, self._timings.clock())
        except Exception as err:  # noqa: BLE001 - others have their turn, whatever it was
            with self._lock:
                pods = self._namespaces.get(namespace)
                if pods is not None:
                    pods.back_off(self._timings.clock())
            _log.warning(
                "requeuing pods failed",
                extra={"namespace": namespace, "error": str(err)},
                exc_info=not isinstance(err, ApiError),
            )

    def _requeue_namespace(self, namespace: str, now: float) -> None:
        """Requeue the pods of a namespace that fit, if anything is new.

        Raises:
            ApiError: The API server does not do it.
        """
        snapshot = self._take_snapshot(namespace, now)
        if snapshot is None:
            return
        ledger = snapshot.ledger()
        while True:
            with self._lock:
                pods = self._namespaces.get(namespace)
                if pods is None:
                    return
                seen = (snapshot.version, pods.revision)
                began = self._timings.clock()
                fits, queue = self._select(namespace, pods, snapshot, ledger, now)
                ended = self._timings.clock()
                pods.rests_until = ended + rest_seconds(ended - began)  # all wait for the lock
                unread = [entry for entry in fits if pods.is_rejected_by_quota(entry.pod) is None]
                if 0 < len(unread) < _READ_AHEAD:
                    after = (one for one in queue if one.sort_key > unread[-1].sort_key)
                    rest = (one for one in after if pods.is_rejected_by_quota(one.pod) is None)
                    unread += islice(rest, _READ_AHEAD - len(unread))
            if not unread:
                if self._requeue_all(namespace, pods, fits, snapshot.version, now):
                    self._finish_pass(namespace, pods, seen, now)
                return
            for queued in unread:  # those whose quota was not the reason take no room
                if not self._client.acquire(namespace):
                    return
                with self._client.backing_off(pods, queued.pod):
                    self._client.read(pods, queued.pod, now)
            if self._timings.clock() < pods.rests_until:
                return  # others have their turn before all are looked at once more

    def _requeue_all(
        self,
        namespace: str,
        pods: UnschedulablePods,
        fits: tuple[QueuedPod, ...],
        snapshot_version: object,
        now: float,
    ) -> bool:
        """Touch pods in their order; return whether all had their turn.

        Raises:
            ApiError: The API server does not do it.
        """
        requeued = turns = 0
        for queued in fits:
            if not self._client.acquire(namespace):
                break
            turns += 1
            with self._client.backing_off(pods, queued.pod):
                requeued += self._client.requeue(pods, queued, snapshot_version, now)
        if requeued:
            _log.info("pods requeued", extra={"namespace": namespace, "requeued": requeued})
        return turns == len(fits)

    def _finish_pass(
        self, namespace: str, pods: UnschedulablePods, seen: object, now: float
    ) -> None:
        with self._lock:
            pods.finish_pass(seen, now)
            if pods.is_empty and self._namespaces.get(namespace) is pods:
                del self._namespaces[namespace]

    def _may_write(self) -> bool:
        return not self._thread.is_stopping and int(self._leader_epoch()) == self._epoch

    def _take_snapshot(self, namespace: str, now: float) -> RequeueSnapshot | None:
        """Return the snapshot to decide by; None where there is none, or nothing is new."""
        is_deferred = self._options.managed.is_managed(namespace)
        with self._lock:
            pods = self._namespaces.get(namespace)
            if pods is None:
                return None
            if is_deferred:
                pods.mark_managed()
            elif not pods.mark_opted_out():
                return None  # all that waited when it opted out are gone
            former = pods.criteria
        snapshot = take_snapshot(self._options, namespace, former) if is_deferred else OPTED_OUT
        if snapshot is None or (
            pods.last_seen == (snapshot.version, pods.revision) and now < pods.next_at
        ):
            return None
        return snapshot

    def _select(
        self,
        namespace: str,
        pods: UnschedulablePods,
        snapshot: RequeueSnapshot,
        ledger: Ledger | None,
        now: float,
    ) -> tuple[tuple[QueuedPod, ...], tuple[QueuedPod, ...]]:
        """Return the pods to requeue next, and all that may be; the lock is held."""
        pods.update_requeued(ledger, snapshot.version, now)
        promised = [
            entry for entry in pods.requeued.values() if entry.until > now and entry.holds_quota
        ]
        queue = snapshot.available(pods.candidates(snapshot.criteria, excluded=pods.excluded(now)))
        if not queue:
            return (), ()
        fits = fitting_pods(
            ledger,
            queue,
            snapshot.criteria.rules,
            promised=[entry.claim for entry in promised if entry.claim is not None],
            holders=self._blocking(namespace, snapshot.criteria),
            room=max(0, _MAX_IN_FLIGHT - len(promised)),
        )
        return fits, queue

    def _blocking(self, namespace: str, criteria: QueueCriteria) -> dict[str, SortKey]:
        """Return each blocked quota → sort key of the first gated pod there; the lock is held."""
        pending = self._pending.get(namespace, {})
        holding = {uid: entry.blocking for uid, entry in pending.items() if entry.blocking}
        found: dict[str, SortKey] = {}
        for pod in self._pods().in_namespace(namespace) if holding else ():
            if pod.uid in holding:
                place = to_queued_pod(pod, SCHEDULING_GATE, since=0, terms=criteria).sort_key
                for quota in holding[pod.uid]:
                    found[quota] = min(place, found.get(quota, place))
        return found
