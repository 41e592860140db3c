"""Keep the condition `deferredquota.io/QuotaReserved` of waiting pods current.

The queues hand their decisions over and do not wait: one thread compares and writes, one request at
a time, within a rate limit. So a condition can be late, by minutes where thousands of pods wait.

- Only changes are written, and a pod at most every `condition_interval_seconds`; of several changes
  in between the newest is written then. `QuotaReserved=True` is not held back by that.
- A change of the position alone waits for `position_interval_seconds`.
- Pods without a condition come first. A pod that is released, and has its node, before its turn has
  come gets none; a condition that says that the pod waits is corrected, with or without a node.
- A changed reason is written at once, at most once within an interval.
- A pod that leaves the queue in another way, because a person took its gate off or the namespace
  has opted out, loses the condition; if the API server refuses that because the namespace is no
  longer opted in, the condition stays. One that waits is tried again, ever later: the namespace may
  opt in again before any cycle has noticed.
- If the API server does not write a pod in time, because its creator made it so large, the pod's
  namespace rests while others go on. After that the other pods of the namespace go first.
- Where nodes are followed, the condition of a waiting pod also says that no node fits it: the pod
  is read once more at each write, and not written more often for that.
- A released pod without a node is looked at again, in the cache, until a scheduler has tried it;
  its condition says after a while that none has. If no node takes it for so long that its
  reservation is given up, the condition says so until the pod has a node.

A condition is read from the API server before it is written for the first time: another leader
may have written it, and `lastTransitionTime` is to be kept. The cache of pods holds none.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

from webhook.controllers.conditions.condition_queue import (
    ConditionQueue,
    PodConditionState,
    PodLister,
)
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.events import ObjectReference
from webhook.controllers.runtime.periodic import PeriodicThread
from webhook.controllers.runtime.rate_limit import (
    ExponentialBackoff,
    SlowNamespaces,
    TokenBucket,
)
from webhook.kube.api import (
    PODS,
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    Object,
    RequestTimeoutError,
    TooManyRequestsError,
    UnavailableError,
    UnreachableError,
)
from webhook.kube.informer_types import Change
from webhook.kube.metadata import time_text
from webhook.quota.objects.model import Pod
from webhook.quota.queue.pod_conditions import (
    EVENT_REASONS,
    EXPIRED,
    RESERVED,
    UNTRIED_SECONDS,
    ObservedCondition,
    QuotaCondition,
    condition_patch,
    observed_condition,
    pending_condition,
    untried_by,
    untried_condition,
    with_condition,
)
from webhook.quota.queue.queued_pods import PendingReason, PendingStatus, may_have_place
from webhook.state.namespace_labels import is_deferred, read_namespace
from webhook.state.well_known import SCHEDULING_GATE

_log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 10.0
_CHECKS_PER_WRITE: Final = 10
"""Most looks that end in nothing to write, for each write that is allowed: they cost processor."""
_PURGE_SECONDS: Final = 10.0
"""How often pods of the past are forgotten while nothing may be written."""
_UNCOUNTED_SECONDS: Final = 10.0
"""For how long nothing is known of a namespace's usage until its pods say so."""
_CONFLICT_BACKOFF: Final = ExponentialBackoff(1.0, 30.0)
_OUTAGE_BACKOFF: Final = ExponentialBackoff(1.0, 60.0)
_REJECTED_BACKOFF: Final = ExponentialBackoff(30.0, 600.0)
_SLOW_TURN_SECONDS: Final = 1.0
"""How long after the other pods of its namespace one has its turn that could not be written."""
_NOT_ANSWERING: Final = (
    TooManyRequestsError,
    UnavailableError,
    UnreachableError,
)
_RELEASED_REASON: Final = "QuotaReserved"


class NodeLister(Protocol):
    """The nodes of the cluster, where the configuration says that they are followed."""

    @property
    def is_kept(self) -> bool:
        """Return whether they are followed."""

    def nowhere(self, pod: Object, as_of: str) -> str:
        """Return that no node fits a pod; empty if one does, or it is not known."""


@dataclass(slots=True)
class _QueueUpdate:
    """Result of cycles of one namespace's queue that was not taken in yet."""

    pending: Mapping[str, PendingStatus]
    releasable: Collection[str] = ()
    released: dict[str, None] = field(default_factory=dict)
    """Uids, in the order of their release."""


class PodConditionController:
    """Writes the conditions of waiting pods. `on_queue` may be called from several threads.

    Args:
        pods: Returns the cache of pods.
        per_second: How many conditions and events are written per second; none where it is 0.
        nodes: The nodes, where they are followed.
    """

    def __init__(
        self,
        context: ControllerContext,
        pods: Callable[[], PodLister],
        *,
        per_second: Callable[[], float] = lambda: 20.0,
        nodes: NodeLister | None = None,
    ) -> None:
        self._api = context.api
        self._pods = pods
        self._nodes = nodes
        self._leader_epoch = context.leader_epoch
        self._timings = context.timings
        self._events = context.events
        self._metrics = context.metrics
        self._lock = threading.Lock()
        self._updates: dict[str, _QueueUpdate] = {}
        self._lost_reservations: dict[str, set[str]] = {}
        self._queue = ConditionQueue(pods, self._timings.condition_interval_seconds)
        self._writes = TokenBucket(per_second, self._timings.clock)
        self._looks = TokenBucket(lambda: per_second() * _CHECKS_PER_WRITE, self._timings.clock)
        self._opted_out: set[str] = set()
        """Namespaces whose refusal was logged."""
        self._slow = SlowNamespaces()
        self._epoch = 0
        self._failures = 0
        self._paused_until = 0.0
        self._next_purge = 0.0
        self._thread = PeriodicThread(
            "pod-conditions", self.reconcile_next, retry_seconds=_IDLE_SECONDS
        )

    def on_queue(
        self, namespace: str, pending: Mapping[str, PendingStatus], releasable: Collection[str]
    ) -> None:
        """Take the result of a cycle of a queue, see `QueueListener`; `pending` is kept."""
        with self._lock:
            updates = self._updates.get(namespace)
            if updates is None:
                updates = self._updates[namespace] = _QueueUpdate(pending)
            updates.pending, updates.releasable = pending, releasable
            updates.released.update(dict.fromkeys(releasable))

    def on_reservations_lost(self, namespace: str, uids: Collection[str]) -> None:
        """Take uids of pods whose reservation was lost, see `LostReservationsListener`."""
        with self._lock:
            self._lost_reservations.setdefault(namespace, set()).update(uids)

    def on_pod(self, change: Change[Pod]) -> None:
        """Take a pod with a node whose condition still says that nothing is reserved for it."""
        if change.new is not None and _is_outdated(change.new):
            self.on_reservations_lost(change.new.namespace, [change.new.uid])

    @property
    def is_idle(self) -> bool:
        """Whether nothing is known of any pod."""
        with self._lock:
            return not (self._updates or self._lost_reservations) and self._queue.is_empty

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Write nothing more, and wait for what was sent."""
        self._thread.stop(_STOP_SECONDS)

    def reconcile_next(self) -> float:
        """Reconcile the pod that is due; return the seconds until the next call."""
        now = self._timings.clock()
        if not self._apply_updates(now):
            return _IDLE_SECONDS
        wait = max(self._paused_until - now, self._writes.delay(), self._looks.delay())
        state = None if wait > 0 else self._queue.get(now)
        if state is None:
            if wait == math.inf and now >= self._next_purge:
                self._next_purge = now + _PURGE_SECONDS
                self._queue.purge(now, self._is_past)
            self._export_backlog()
            return min(max(wait, 0.0), _IDLE_SECONDS) or _IDLE_SECONDS
        try:
            self._reconcile(state, now)
        except Exception:
            self._queue.requeue_at(state, now + _REJECTED_BACKOFF.first_seconds)
            raise
        return 0.0

    # -- on the thread -------------------------------------------------------------------------

    def _apply_updates(self, now: float) -> bool:
        """Apply the results of cycles; return whether this process leads."""
        with self._lock:
            updates, self._updates = self._updates, {}
            lost, self._lost_reservations = self._lost_reservations, {}
        epoch = int(self._leader_epoch())  # read after: results of a new leadership are not lost
        if epoch != self._epoch:
            self._queue.clear()  # others may have written since
            self._opted_out.clear()
            self._slow.clear()
            self._epoch = epoch
            for pod in self._pods().items().values() if epoch else ():
                if _is_outdated(pod):
                    lost.setdefault(pod.namespace, set()).add(pod.uid)
        for namespace, one in updates.items() if epoch else ():
            self._queue.update(
                namespace, one.pending, one.released, releasable=one.releasable, now=now
            )
        for namespace, uids in lost.items() if epoch else ():
            self._queue.note_lost_reservations(namespace, uids)
        return epoch != 0

    def _reconcile(self, state: PodConditionState, now: float) -> None:
        """Write the condition of a pod if it should say something else by now."""
        pod = self._pods().get(state.key)
        pending, total = self._queue.pending_status(state)
        if pod is None or _needs_no_condition(pod, state):
            self._drop(state)
        elif pending is not None and not may_have_place(pod, SCHEDULING_GATE):
            self._queue.park(state)  # the next cycle is without it
        elif pending is None or not self._waits_for_first_count(state, pending, now):
            if self._is_resting(state, now):
                return
            self._looks.take()
            is_late = _may_be_untried(state, pod, now)
            if is_late and state.read_at < state.released_at + UNTRIED_SECONDS:
                state.must_refresh = True  # once: the cache does not show every attempt
            state.is_watched = pending is None and _says_what_passes(state, pod)
            try:
                self._sync(state, partial(_wanted, state, pod, pending, total, is_late), now)
            except ApiError as err:
                is_left = isinstance(err, ForbiddenError) and self._has_opted_out(state.namespace)
                if is_left and not self._queue.is_listed(state):
                    self._drop(state)
                else:
                    self._back_off(state, err, now, is_quiet=is_left)

    def _is_resting(self, state: PodConditionState, now: float) -> bool:
        """Return whether its namespace rests after a timeout, and come back to the pod then."""
        rests = self._slow.rests(state.namespace, now)
        if rests:
            self._queue.requeue_at(state, self._turn_of(state))
        return rests

    def _turn_of(self, state: PodConditionState) -> float:
        """Return when a pod has its turn: after the others, if it could not be written before."""
        return self._slow.retry_at(state.namespace) + _SLOW_TURN_SECONDS * (state.failures > 0)

    def _waits_for_first_count(
        self, state: PodConditionState, pending: PendingStatus, now: float
    ) -> bool:
        """Return whether a pod waits for what takes a moment, and come back to it."""
        if pending.reason is not PendingReason.NOT_COUNTED:
            state.uncounted_since = None
            return False
        if state.uncounted_since is None:
            state.uncounted_since = now
        until = state.uncounted_since + _UNCOUNTED_SECONDS
        if now < until:
            self._queue.requeue_at(state, until)
        return now < until

    def _sync(
        self, state: PodConditionState, wanted_now: Callable[[], QuotaCondition | None], now: float
    ) -> None:
        if state.must_refresh or state.observed is None:
            self._writes.take()
            observed = self._read(state)
            if observed is None:
                self._drop(state)
                return
            state.record(observed, now)
            state.read_at = now
            wanted = wanted_now()
            if self._is_due(state, observed, wanted, now):
                self._write(state, observed, wanted, now)
        elif self._is_due(state, state.observed, wanted := wanted_now(), now):
            self._writes.take()
            self._write(state, state.observed, wanted, now)

    def _read(self, state: PodConditionState) -> ObservedCondition | None:
        """Read a pod's condition; None if the pod is gone."""
        try:
            pod = self._api.get(PODS, state.name, namespace=state.namespace)
        except NotFoundError:
            return None
        observed = observed_condition(pod)
        state.untried_by = untried_by(pod)
        if observed.condition is not None and observed.condition.reason in EVENT_REASONS:
            state.has_warned = True
        return observed if observed.uid == state.uid else None

    def _is_due(
        self,
        state: PodConditionState,
        observed: ObservedCondition,
        wanted: QuotaCondition | None,
        now: float,
    ) -> bool:
        """Return whether a pod's condition is to be written now; if not, plan what comes next."""
        present = observed.condition
        if wanted == present:
            state.failures = 0
        if wanted == present and _is_last_word(state, wanted):
            self._rest(state, now)
        elif wanted == present:
            self._queue.park(state)
        elif present is None or wanted is None or not wanted.differs_in_place_only(present):
            return True
        elif now < (due := state.observed_at + self._timings.position_interval_seconds):
            self._queue.park(state, until=due)
        else:
            return True
        return False

    def _write(
        self,
        state: PodConditionState,
        observed: ObservedCondition,
        wanted: QuotaCondition | None,
        now: float,
    ) -> None:
        if int(self._leader_epoch()) != self._epoch:
            return  # all is forgotten at the next look
        time_of_day = time_text(self._timings.now())
        wanted = self._with_nodes(state, wanted, time_of_day)
        patch = condition_patch(observed, wanted, time_of_day)
        try:
            self._api.patch(
                PODS, state.name, patch, namespace=state.namespace, subresource="status"
            )
        except NotFoundError:
            self._drop(state)
            return
        state.failures = self._failures = 0
        self._opted_out.discard(state.namespace)
        self._count("written")
        state.record(with_condition(observed, wanted, time_of_day), now)
        if _is_last_word(state, wanted):
            self._rest(state, now)
        else:
            self._queue.requeue_at(state, now + self._timings.condition_interval_seconds)
        self._emit_event(state, observed.condition, wanted)

    def _with_nodes(
        self, state: PodConditionState, wanted: QuotaCondition | None, time_of_day: str
    ) -> QuotaCondition | None:
        """Return the condition of a waiting pod, with whether a node fits it, if that is known."""
        if self._nodes is None or not self._nodes.is_kept:
            return wanted
        if wanted is None or wanted is EXPIRED or wanted.status == "True":
            return wanted
        try:
            pod = self._api.get(PODS, state.name, namespace=state.namespace)
        except ApiError:
            return wanted
        return replace(wanted, nodes=self._nodes.nowhere(pod, time_of_day))

    def _rest(self, state: PodConditionState, now: float) -> None:
        """Forget a pod, or requeue it if its condition may change without an event."""
        if state.is_watched:
            self._queue.requeue_at(state, now + UNTRIED_SECONDS)
        else:
            self._queue.forget(state)

    def _emit_event(
        self, state: PodConditionState, before: QuotaCondition | None, wanted: QuotaCondition | None
    ) -> None:
        """Record an event on a pod that begins to wait, and on one whose wait ended."""
        if wanted is None:
            return
        regarding = ObjectReference(PODS, state.name, state.namespace, state.uid)
        if wanted.reason in EVENT_REASONS and not state.has_warned:
            state.has_warned = True
            self._writes.take()
            self._events.warning(regarding, EVENT_REASONS[wanted.reason], wanted.text)
        elif wanted is RESERVED and before is not None and before.status == "False":
            self._writes.take()
            self._events.normal(regarding, _RELEASED_REASON, wanted.text)

    # -- what comes to nothing -----------------------------------------------------------------

    def _is_past(self, state: PodConditionState) -> bool:
        """Return whether a pod needs no condition any more."""
        pod = self._pods().get(state.key)
        return pod is None or _needs_no_condition(pod, state)

    def _has_opted_out(self, namespace: str) -> bool:
        """Return whether a write was refused because the namespace is not opted in any more.

        The label is read from the API server: the queue may learn of its removal later than the
        admission policy that holds our own identities to opted-in namespaces.
        """
        try:
            if is_deferred(read_namespace(self._api, namespace)):
                return False
        except ApiError:
            return False
        if namespace not in self._opted_out:
            self._opted_out.add(namespace)
            _log.info("conditions are left: not opted in any more", extra={"namespace": namespace})
        return True

    def _back_off(
        self, state: PodConditionState, err: ApiError, now: float, *, is_quiet: bool
    ) -> None:
        """Requeue a pod after a failed request; its present condition is not known then."""
        state.must_refresh = True
        state.failures += 1
        if isinstance(err, ConflictError | InvalidError):  # the pod was another by then
            self._count("conflict")
            self._queue.requeue_at(state, now + _CONFLICT_BACKOFF.seconds(state.failures))
            return
        self._count("failed")
        if isinstance(err, RequestTimeoutError):
            # the request has taken a while
            self._slow.note_timeout(state.namespace, self._timings.clock())
            retry_at = self._turn_of(state)
        elif isinstance(err, _NOT_ANSWERING):
            self._failures += 1
            retry_at = self._paused_until = now + _OUTAGE_BACKOFF.seconds(self._failures)
        else:
            retry_at = now + _REJECTED_BACKOFF.seconds(state.failures)
        self._queue.requeue_at(state, retry_at)
        if not is_quiet:
            _log.warning(
                "writing a condition failed",
                extra={"namespace": state.namespace, "pod": state.name, "error": str(err)},
            )

    def _drop(self, state: PodConditionState) -> None:
        self._queue.forget(state)
        self._count("dropped")

    def _count(self, result: str) -> None:
        self._metrics.pod_conditions.conditions.labels(result).inc()

    def _export_backlog(self) -> None:
        self._metrics.pod_conditions.backlog.set(self._queue.backlog)


def _is_outdated(pod: Pod) -> bool:
    """Return whether a pod has its node, and a condition from before."""
    return pod.is_assigned and pod.is_reported_unreserved and not pod.is_deleting


def _needs_no_condition(pod: Pod, state: PodConditionState) -> bool:
    """Return whether a pod needs no condition any more."""
    is_silent = pod.is_assigned and not state.reports_passing
    return pod.uid != state.uid or pod.is_deleting or is_silent


def _says_what_passes(state: PodConditionState, pod: Pod) -> bool:
    """Return whether a pod's condition has to be looked at again although nothing waits."""
    if pod.is_assigned:
        return False
    return state.has_lost_reservation or (state.is_released and not pod.is_unplaced)


def _is_last_word(state: PodConditionState, wanted: QuotaCondition | None) -> bool:
    """Return whether no cycle of a queue changes the condition of a pod any more."""
    return wanted is None or wanted.status == "True" or state.is_watched


def _may_be_untried(state: PodConditionState, pod: Pod, now: float) -> bool:
    """Return whether a released pod may have waited for a scheduler for too long."""
    is_due = state.is_released and now >= state.released_at + UNTRIED_SECONDS
    return is_due and not (pod.is_assigned or pod.is_unplaced or pod.is_gated)


def _wanted(
    state: PodConditionState, pod: Pod, pending: PendingStatus | None, total: int, is_late: bool
) -> QuotaCondition | None:
    """Return what a pod's condition should say; None for a pod that is to have none."""
    if state.is_released:
        return untried_condition(state.untried_by) if is_late and state.untried_by else RESERVED
    if pending is None and state.has_lost_reservation:
        return RESERVED if pod.is_assigned else EXPIRED
    return None if pending is None else pending_condition(pending, total)
