"""Usage of the pods of all managed namespaces, counted as the caches change.

Everything here is memory: the informers' threads count, reconcilers read. A namespace is
counted whether this process leads or not, so that a standby can take over at once.
"""

from __future__ import annotations

import heapq
import logging
import math
import threading
from collections.abc import Collection, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Final

from webhook.controllers.ledger.namespace_state import NamespaceState
from webhook.controllers.ledger.namespace_usage import NamespaceUsage
from webhook.controllers.ledger.reservation_expiry import ReservationExpiry
from webhook.controllers.managed_namespaces import ManagedNamespaces
from webhook.controllers.queue.controller import ReleaseOptions
from webhook.controllers.queue.gated_pods import usage_without
from webhook.controllers.runtime.rate_limit import rest_seconds
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.controllers.runtime.workqueue import WorkQueue
from webhook.kube.api import PODS, ClusterApi
from webhook.kube.informer import Change, Informer
from webhook.quota.amounts.resources import ResourceList, add
from webhook.quota.charging.deferral import deferred_quotas
from webhook.quota.ledger.apply_usage import Expiry, apply_usage
from webhook.quota.ledger.ledger import EMPTY, Ledger, QuotaRevision, Reservation
from webhook.quota.objects.compact import compact_pod
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import SHARED_PREFIX
from webhook.quota.queue.queued_pods import QueueCriteria, QueuedPod
from webhook.quota.shared.cluster_quotas import ClusterQuotaSpec, named_namespaces
from webhook.state.object_decoders import decode_pod
from webhook.state.well_known import SCHEDULING_GATE

_MIN_TIDIED: Final = 1000
"""Pods being deleted from which on those are looked for that are gone."""
_MAX_SUMMED: Final = 500
"""Pods of a namespace that wait for room and are summed; of more, some do not fit."""
NAMESPACE_CACHE_LAG_SECONDS: Final = 5.0
"""By how much what is shown of namespaces is expected to lag behind what is shown of pods."""
_MAX_FAILURES: Final = 2
"""How often in a row a namespace may fail to be reconciled before others wait for it no more."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LedgerUpdate:
    """Consequences of a count."""

    ledger: Ledger
    """The ledger that follows."""
    queue: tuple[QueuedPod, ...]
    """The pods that wait, in their order, judged by the quotas of the ledger; among them, where
    pods may do without a gate, those that are underway and stand before others, for as long as one
    is waited for that no node takes."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Usage of pods without a node for which nothing is reserved."""

    in_flight: ResourceList
    """Those without a gate."""
    queued: ResourceList | None
    """Those that wait for room; None where there are too many to sum."""
    observed: frozenset[QuotaRevision]
    """The quotas as they are cached."""
    is_counted: bool
    """Whether pods are counted for these quotas, and judged by no others; otherwise nothing here is
    to be gone by."""
    errors: tuple[str, ...]
    """Why some of them cannot be read."""


class TerminatingPods:
    """Pods that are being deleted, and until when each is charged although it is there.

    Kubernetes charges a pod until twice its grace period has passed since its deletion was
    requested, by a time that another machine wrote. Here it counts from when this process saw the
    deletion, which was no earlier, so that no clocks have to agree. Not safe to use from several
    threads.
    """

    def __init__(self) -> None:
        self._due: list[tuple[float, str, str]] = []
        """Heap of (time, namespace, uid); an entry that `uncharge_at` does not have is void."""
        self._tidy_at = _MIN_TIDIED
        """With how many entries void ones are taken out."""

    def __len__(self) -> int:
        return len(self._due)

    def track(self, namespace: str, state: NamespaceState, pod: Pod, now: float) -> None:
        """Note until when a pod is charged that is being deleted; a later time changes nothing."""
        grace = pod.deletion_grace_period_seconds
        if not pod.is_deleting or grace is None:
            return
        uncharge_at = now + 2 * max(grace, 0) + 1
        if uncharge_at < state.uncharge_at.get(pod.uid, math.inf):
            state.uncharge_at[pod.uid] = uncharge_at
            heapq.heappush(self._due, (uncharge_at, namespace, pod.uid))

    def pop_due(self, states: Mapping[str, NamespaceState], now: float) -> list[tuple[str, str]]:
        """Pop (namespace, uid) of pods that are not charged any more, the earliest first."""
        if len(self._due) >= self._tidy_at:  # most pods are gone long before their time
            self._due = [one for one in self._due if _is_valid(one, states)]
            heapq.heapify(self._due)
            self._tidy_at = max(_MIN_TIDIED, 2 * len(self._due))
        due: list[tuple[str, str]] = []
        while self._due and self._due[0][0] <= now:
            one = heapq.heappop(self._due)
            if _is_valid(one, states):
                due.append(one[1:])
        return due


def _is_valid(one: tuple[float, str, str], states: Mapping[str, NamespaceState]) -> bool:
    uncharge_at, namespace, uid = one
    state = states.get(namespace)
    return state is not None and state.uncharge_at.get(uid) == uncharge_at


class UsageCache:
    """Usage of every tracked namespace. `lock` guards everything but the informer.

    Args:
        managed: Which namespaces are to be counted, and by which quotas.
        queue: Namespaces that are to be reconciled.
        options: How gated pods are released.
    """

    def __init__(
        self,
        api: ClusterApi,
        managed: ManagedNamespaces,
        timings: ControllerTimings,
        queue: WorkQueue[str],
        options: ReleaseOptions,
    ) -> None:
        self._options = options
        self.lock: Final = threading.Lock()
        self.managed: Final = managed
        self.namespaces: Final[dict[str, NamespaceState]] = {}
        self.had_ledger: Final[set[str]] = set()
        """Namespaces in which a ledger was seen or may have been: without one, it was lost."""
        self.pods: Final = Informer(
            api, PODS, transform=compact_pod, timings=timings.informer, decode=decode_pod
        )
        self._api = api
        self._timings = timings
        self.workqueue: Final = queue
        self._newest_change = 0
        self.terminating: Final = TerminatingPods()
        self.pods.add_handler(self._on_pod)
        managed.quotas.informer.add_handler(self._on_quota)
        managed.namespaces.informer.add_handler(self._on_namespace)
        managed.quotas.shared.on_specs(self._on_shared_specs)

    @property
    def are_synced(self) -> bool:
        """Whether all pods, quotas and namespaces have been listed."""
        return self.pods.has_synced and self.managed.are_synced

    def recount(self) -> None:
        """Count everything again, because other resources are deferred, or others are exempt.

        A namespace that is exempt now is left as if it had opted out. What happened in one that is
        not any more was not seen.
        """
        with self.lock:
            exempt = self.managed.exempt()
            for namespace, is_deferred in self.managed.namespaces.informer.items().items():
                state = self.namespaces.get(namespace)
                if not is_deferred or namespace in exempt:
                    if state is not None and not state.is_opted_out:
                        self.stop_tracking(namespace, state)
                elif state is None or state.is_opted_out:
                    self.track(namespace).is_rejoining = True
                else:
                    self.refresh_quotas(namespace, state)
                    self.mark_dirty(namespace, state)

    def sharing_namespaces(self, name: str, *, except_for: Set[str] = frozenset()) -> list[str]:
        """Return the namespaces that take part in a shared quota, as far as is known.

        Those of `except_for` are not looked at.
        """
        with self.lock:
            return [
                namespace
                for namespace, state in self.namespaces.items()
                if namespace not in except_for and self._shares(namespace, state, name)
            ]

    def shares(self, namespace: str, name: str) -> bool:
        """Return whether a namespace takes part in a shared quota, as far as is known."""
        with self.lock:
            state = self.namespaces.get(namespace)
            return state is not None and self._shares(namespace, state, name)

    def _shares(self, namespace: str, state: NamespaceState, name: str) -> bool:
        return not state.is_opted_out and self.managed.takes_part(namespace, name)

    def all_sharing(self) -> dict[str, Set[str]]:
        """Return the namespaces of every shared quota, as `sharing_namespaces`, by its name."""
        found: dict[str, set[str]] = {}
        with self.lock:
            for namespace, state in self.namespaces.items():
                if not state.is_opted_out:
                    for one in self.managed.quotas_of(namespace).deferred.quotas:
                        if one.name.startswith(SHARED_PREFIX):
                            found.setdefault(one.name, set()).add(namespace)
        return {**found}

    def any_failing(self, namespaces: Set[str]) -> bool:
        """Return whether one of these namespaces could not be reconciled when it was tried last."""
        with self.lock:
            return any(
                namespace in self.namespaces and self.workqueue.failures(namespace)
                for namespace in namespaces
            )

    def is_stuck(self, namespace: str) -> bool:
        """Return whether a namespace could not be reconciled several times in a row.

        No pod of it is released then, and what was known of its queue may be over. Where the API
        server does not answer that is so of all, and no reason for others to come first.
        """
        state = self.namespaces.get(namespace)
        is_unanswered = state is not None and state.is_unanswered
        return not is_unanswered and self.workqueue.failures(namespace) > _MAX_FAILURES

    def uncharged_at(self, namespace: str, uid: str) -> float:
        """Return when a pod is charged no more although it is there; never if not being deleted."""
        state = self.namespaces.get(namespace)
        return math.inf if state is None else state.uncharge_at.get(uid, math.inf)

    def clear_abandoned(self, namespace: str) -> None:
        """Have the ledger of a namespace that is not tracked count nothing any more."""
        with self.lock:
            if namespace not in self.namespaces:
                self.stop_tracking(namespace, self.track(namespace))

    def requeue_waiting_for(self, name: str) -> None:
        """Requeue the namespaces in which pods may wait for a shared quota."""
        with self.lock:
            for namespace, state in self.namespaces.items():
                is_about = any(one.name == name for one in state.usage.quotas.quotas)
                if is_about and not state.usage.gated_pods.is_empty:
                    self.mark_dirty(namespace, state)

    def complete_version(self, state: NamespaceState) -> int:
        """Return up to which version all pods of a namespace are counted."""
        return max(self.pods.resource_version, state.confirmed_version)

    def may_predate_opt_in(self, namespace: str, state: NamespaceState, ledger: Ledger) -> bool:
        """Return whether a ledger may be from before the namespace opted in.

        It has whatever was reserved; binds since then, and changes of gated pods, were not claimed.
        """
        return state.is_rejoining or ledger.pods_barrier < self.managed.opted_in_at(namespace)

    def refreshed(self, namespace: str) -> NamespaceState | None:
        """Return a namespace to reconcile, counted as the caches are; call with the lock held."""
        state = self.namespaces.get(namespace)
        if state is None:
            return None
        if state.is_uncounted:
            state = self.track(namespace)
            if not self.managed.is_managed(namespace):  # its gates are to be seen, and removed
                self.stop_tracking(namespace, state)
        else:
            self.refresh_quotas(namespace, state)
        return state

    def refresh_quotas(self, namespace: str, state: NamespaceState) -> None:
        """Count for the quotas as they are cached; call with the lock held.

        What the cache showed when the namespace came may have been before its first list.
        """
        if not state.is_opted_out:
            former, began = state.usage.quotas, self._timings.clock()
            state.usage.set_quotas(self.managed.quotas_of(namespace).deferred)
            if state.usage.quotas is not former:
                self._rest(state, began)

    def next_ledger(
        self,
        namespace: str,
        state: NamespaceState,
        ledger: Ledger | None,
        expired: Mapping[str, Expiry],
        *,
        is_from_before: bool = False,
    ) -> LedgerUpdate | None:
        """Return the ledger that follows; None while the cache is older than what was counted.

        None too when the namespace is counted anew meanwhile: this count gets no more changes.
        While a change, or a whole list, is being taken in, what is counted can be newer than the
        version up to which the cache is complete. The older of the two is what may be written
        over, the newer what is said to have been counted.

        Args:
            is_from_before: The ledger was counted before the guard was registered, see
                `apply_usage`.
        """
        with self.lock:
            if self.namespaces.get(namespace) is not state:
                return None
            complete = self.complete_version(state)
            if ledger is not None and complete < ledger.pods_resource_version:
                return None
            count = state.usage.totals(max(complete, self._newest_change))
            is_before = ledger is not None and (
                is_from_before or self.may_predate_opt_in(namespace, state, ledger)
            )
            following = apply_usage(ledger, count, expired=expired, is_from_before=is_before)
            if following is None:
                return None
            return LedgerUpdate(following, self._queue(namespace, state))

    def queue(self, namespace: str, state: NamespaceState) -> tuple[QueuedPod, ...]:
        """Return the pods that wait, in their order."""
        with self.lock:
            return self._queue(namespace, state)

    def shown_queue(
        self, namespace: str, state: NamespaceState
    ) -> tuple[tuple[QueuedPod, ...], QueueCriteria | None]:
        """Return the pods that wait, and what they are judged by.

        While the namespace rests that is what they were judged by before: a look judges none anew.
        """
        with self.lock:
            queue, now = state.pod_queue, self._timings.clock()
            if queue.criteria is None or now >= state.rests_until:
                return self._queue(namespace, state), queue.criteria
            earliest = self._earliest_in_flight(namespace, now)
            return queue.as_judged(earliest=earliest, now=now), queue.criteria

    def demand(self, namespace: str, reserved: Collection[str]) -> Demand | None:
        """Return what the pods of a namespace will take; None where none is counted.

        Args:
            reserved: Uids of pods for which something is reserved.
        """
        with self.lock:
            state = self.namespaces.get(namespace)
            if state is None or state.is_opted_out:
                return None
            gated = state.usage.gated_pods
            quotas = self.managed.quotas_of(namespace)
            policy = self._options.policy()
            # otherwise how many wait decides nothing. It is for the next look at the namespace, for
            # which it rests, to judge them anew: as often as here its tenants could have it done
            is_counted = state.usage.counts_for(quotas.deferred) and not (
                len(gated)
                and state.pod_queue.is_judged_otherwise(state.usage.quotas, quotas, policy)
            )
            waiting = len(gated) if is_counted else 0
            queue: Sequence[QueuedPod] | None = None  # of very many not even the order is made
            if waiting <= _MAX_SUMMED + len(reserved):
                queue = state.queue(quotas, policy, earliest=None) if waiting else ()
            in_flight, reserved_pods = gated.in_flight(reserved, state.usage.quotas.keys)
        # what was taken out is of one moment, and does not change: all others wait for the lock
        return Demand(
            usage_without(in_flight, reserved_pods),
            None if queue is None else _requested(queue, reserved),
            quotas.deferred.observed,
            is_counted,
            tuple(quotas.errors),
        )

    def orphaned_gate_namespaces(self) -> set[str]:
        """Return namespaces that are not tracked and have pods behind our gate; lock held.

        They opted out without a leader, or before all of their gates were off.
        """
        return {
            pod.namespace
            for pod in self.pods.items().values()
            if SCHEDULING_GATE in pod.scheduling_gates
            and not self.managed.is_managed(pod.namespace)
        } - self.namespaces.keys()

    def uncharge_stuck_pods(self, now: float) -> None:
        """Stop charging pods that have been terminating for too long."""
        with self.lock:
            for namespace, uid in self.terminating.pop_due(self.namespaces, now):
                state = self.namespaces[namespace]
                state.usage.mark_stuck(uid)
                self.mark_dirty(namespace, state)

    def requeue_waiting(self) -> None:
        """Requeue every namespace in which pods wait: their queues have other rules now."""
        with self.lock:
            for namespace, state in self.namespaces.items():
                if not state.usage.gated_pods.is_empty:
                    self.mark_dirty(namespace, state)

    def requeue_after(self, namespace: str, seconds: float) -> None:
        """Requeue a namespace after some seconds, because a step in it failed."""
        with self.lock:
            state = self.namespaces.get(namespace)
            if state is not None:
                self.mark_dirty(namespace, state, delay_seconds=seconds)

    # -- with the lock held --------------------------------------------------------------------

    def _queue(self, namespace: str, state: NamespaceState) -> tuple[QueuedPod, ...]:
        """Return the pods that wait; the namespace rests where all are judged anew for it."""
        if state.usage.gated_pods.is_empty:
            return ()
        former, began = state.pod_queue.criteria, self._timings.clock()
        earliest = self._earliest_in_flight(namespace, began)
        quotas, policy = self.managed.quotas_of(namespace), self._options.policy()
        queue = state.queue(quotas, policy, earliest=earliest, now=began)
        if former is not None and former is not state.pod_queue.criteria:
            self._rest(state, began)
        return queue

    def _earliest_in_flight(self, namespace: str, now: float) -> float:
        """Return since when a pod without a gate may be without a node and have room kept."""
        if not self._options.may_admit_ungated(namespace):
            return math.inf
        return now - self._options.gate_release_seconds()

    def note_ledger(self, namespace: str) -> None:
        """Note that there is a ledger, except where the namespace has gone meanwhile.

        Of one that is made anew by that name it would have been lost, and be waited for.
        """
        if namespace in self.namespaces:
            self.had_ledger.add(namespace)

    def mark_dirty(
        self, namespace: str, state: NamespaceState, *, delay_seconds: float = 0.0
    ) -> None:
        """Note that there is something to reconcile, and that it can wait for some seconds."""
        if state.dirty_since is None:
            state.dirty_since = self._timings.clock()
        state.is_dirty = True
        self.workqueue.add_after(namespace, delay_seconds)

    def track(self, namespace: str, *, rest_seconds: float = 0.0) -> NamespaceState:
        """Count a namespace from the caches; later changes follow.

        It is reconciled after `rest_seconds` at the earliest.
        """
        began = self._timings.clock()
        self.workqueue.forget(namespace)
        self.workqueue.rest(namespace, rest_seconds)
        state = self._begin_state(namespace)
        state.usage.set_quotas(self.managed.quotas_of(namespace).deferred)
        for pod in self.pods.in_namespace(namespace):
            try:
                self.put_pod(namespace, state, pod)
            except Exception as err:  # noqa: BLE001 - the count of the others must not end here
                key = f"{namespace}/{pod.name}"
                _log.exception("a pod cannot be counted", extra={"pod": key})
                state.unreadable_pods[pod.uid] = f"{key}: {err}"
        for key, entry in self.pods.errors_in(namespace).items():
            state.unreadable_pods[entry.uid] = f"{key}: {entry.error}"
        self._rest(state, began)
        self.mark_dirty(namespace, state)
        return state

    def _begin_state(self, namespace: str) -> NamespaceState:
        """Replace the state of a namespace by one without pods."""
        watch = ReservationExpiry(
            self._api,
            expire_seconds=self._timings.expire_seconds,
            clock=self._timings.clock,
            kept_until=partial(self._kept_until, namespace),
        )
        former = self.namespaces.get(namespace)
        state = self.namespaces[namespace] = NamespaceState(NamespaceUsage(), watch)
        if former is not None:
            state.lost_since = former.lost_since
            state.is_rejoining = former.is_opted_out or former.is_rejoining
            state.rests_until = former.rests_until
        return state

    def _rest(self, state: NamespaceState, began: float) -> None:
        """Let a namespace rest after a count of all its pods, for which all others waited."""
        now = self._timings.clock()
        state.rests_until = max(state.rests_until, now) + rest_seconds(now - began)

    def _kept_until(self, namespace: str, reservation: Reservation) -> float:
        """Return until when a reservation is kept at least; needs no lock."""
        state = self.namespaces.get(namespace)
        if state is None:
            return -math.inf
        seconds = self._options.gate_release_seconds()
        return state.kept_until(reservation, seconds, self._timings.clock())

    def stop_tracking(self, namespace: str, state: NamespaceState) -> None:
        """Have the ledger of a namespace count nothing any more: it has opted out."""
        state.is_opted_out = True
        state.usage.set_quotas(deferred_quotas((), self.managed.deferred_keys()))
        self.mark_dirty(namespace, state)

    def put_pod(self, namespace: str, state: NamespaceState, pod: Pod) -> None:
        """Count a pod that is new or has changed."""
        # a cache can be ahead of its handlers, so what is counted may be newer than any change
        self._newest_change = max(self._newest_change, int(pod.resource_version or 0))
        state.usage.put(pod)
        now = self._timings.clock()
        state.pod_queue.track(pod, now)
        self.terminating.track(namespace, state, pod, now)

    # -- events, on the informers' threads -----------------------------------------------------

    def _on_pod(self, change: Change[Pod]) -> None:
        namespace = change.key.partition("/")[0]
        with self.lock:
            self._newest_change = max(self._newest_change, change.resource_version)
            state = self.namespaces.get(namespace)
            if state is None:
                if change.new is not None and SCHEDULING_GATE in change.new.scheduling_gates:
                    self._stop_tracking_later(namespace)
                return
            try:
                self._count_pod(namespace, state, change)
            except Exception as err:
                state.unreadable_pods[change.uid] = f"{change.key}: {err}"
                raise
            finally:
                can_wait = _frees_no_quota(change) and not state.pod_queue.is_releasable(change.uid)
                self.mark_dirty(
                    namespace, state, delay_seconds=self._timings.fold_seconds * can_wait
                )

    def _stop_tracking_later(self, namespace: str) -> None:
        """Leave a namespace that is not tracked, and in which a pod has come with our gate.

        The pod was on its way when the namespace opted out, or it brings the gate with it. Perhaps
        the namespace has opted in a moment ago, which another watch shows: there is time for that.
        """
        is_known = self.managed.namespaces.informer.has_synced
        if is_known and not self.managed.is_managed(namespace):
            state = self.track(namespace, rest_seconds=NAMESPACE_CACHE_LAG_SECONDS)
            self.stop_tracking(namespace, state)

    def _count_pod(self, namespace: str, state: NamespaceState, change: Change[Pod]) -> None:
        state.unreadable_pods.pop(change.uid, None)
        if change.type == "DELETED":
            state.remove_pod(change.uid)
        elif change.new is None:
            state.unreadable_pods[change.uid] = f"{change.key}: {change.error}"
        else:
            before = state.usage.pod(change.uid)
            state.recent_binds.observe(before, change.new, self.pods.resource_version)
            self.put_pod(namespace, state, change.new)

    def _on_quota(self, change: Change[ResourceQuota]) -> None:
        # Counted when the namespace is reconciled: that takes time in proportion to its pods, its
        # tenants decide how often, and the quotas of all other namespaces come behind this one.
        namespace = change.key.partition("/")[0]
        with self.lock:
            state = self.namespaces.get(namespace)
            if state is not None and not state.is_opted_out:
                self.mark_dirty(namespace, state)

    def _on_shared_specs(
        self, former: ClusterQuotaSpec | None, present: ClusterQuotaSpec | None
    ) -> None:
        edited = [one for one in (former, present) if one is not None]
        with self.lock:
            for namespace in self._selectable(edited):
                state = self.namespaces.get(namespace)
                labels = self.managed.namespaces.labels(namespace)
                if state is None or state.is_opted_out or labels is None:
                    continue
                if any(one.selects(labels) for one in edited):
                    self.mark_dirty(namespace, state)  # counted then, as for a quota of its own

    def _selectable(self, quotas: Iterable[ClusterQuotaSpec]) -> Set[str]:
        """Return the namespaces that some quotas may select: all, unless each names its own."""
        named: set[str] = set()
        for one in quotas:
            names = named_namespaces(one)
            if names is None:
                return self.namespaces.keys()
            named.update(names)
        return named

    def _on_namespace(self, change: Change[bool]) -> None:
        with self.lock:
            state = self.namespaces.get(change.key)
            if change.type == "DELETED":
                self.namespaces.pop(change.key, None)
                self.had_ledger.discard(change.key)
            elif change.new is not True:
                if state is not None:
                    self.stop_tracking(change.key, state)
            elif state is not None and not state.is_opted_out:
                self.mark_dirty(change.key, state)  # handlers wait for a ledger that is not older
            elif change.key not in self.managed.exempt():
                if state is None:
                    self.track(change.key)
                else:
                    self._track_later(change.key, state)

    def _track_later(self, namespace: str, former: NamespaceState) -> None:
        """Have a namespace that had left counted when it is reconciled next.

        As for quotas that are edited: how often its label is set is for its owners to decide, and
        all other namespaces come behind it.
        """
        state = self._begin_state(namespace)
        state.is_opted_out = state.is_uncounted = True
        self.workqueue.rest(namespace, former.rests_until - self._timings.clock())
        self.mark_dirty(namespace, state)


def _frees_no_quota(change: Change[Pod]) -> bool:
    """Return whether a pod is new, waits or got its node: no room that others wait for."""
    new = change.new
    took_nothing = change.old is None or not change.old.is_assigned
    return change.type != "DELETED" and new is not None and took_nothing and not new.is_deleting


def _requested(queue: Iterable[QueuedPod], reserved: Container[str]) -> ResourceList | None:
    """Return what gated pods take that wait for nothing but room; None for too many of them."""
    total: ResourceList = EMPTY
    summed = 0
    for queued in queue:
        if queued.is_waiting_for_quota and queued.uid not in reserved and queued.claim:
            total = add(total, queued.claim.usage)
            summed += 1
            if summed > _MAX_SUMMED:
                return None
    return total
