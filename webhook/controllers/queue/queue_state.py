"""State of one namespace's pod queue: gated pods, the last cycle, waiting times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.controllers.queue.gated_pods import GatedPods, next_criteria
from webhook.controllers.runtime.rate_limit import ExponentialBackoff
from webhook.quota.charging.deferral import NamespaceQuotas
from webhook.quota.ledger.ledger import Reservation, ReservationSource, exceeded_quotas
from webhook.quota.objects.model import Pod
from webhook.quota.objects.names import POOL_PREFIX, SHARED_PREFIX
from webhook.quota.queue.preemptors import NO_PREEMPTORS, UnboundPreemptors
from webhook.quota.queue.queued_pods import (
    CycleResult,
    QueueCriteria,
    QueuedPod,
    QueuePolicy,
    WaitHistory,
)
from webhook.state.quota_cache import NamespaceQuotaView

_IN_VAIN: Final = ExponentialBackoff(60.0, 3600.0)
"""For how long a pod whose bind was refused has no turn after quota was reserved for it: others may
have been evicted for it, and its bind can be refused for another reason then."""
_OF_POOLS: Final = SHARED_PREFIX + POOL_PREFIX
UNTRIED_FACTOR: Final = 10
"""How much longer than for a pod that no node takes a reservation is kept for one that no scheduler
has tried."""


@dataclass(slots=True, eq=False)
class PodQueueState:
    """State of one queue; pods are tracked under the lock of the usage cache."""

    gated_pods: GatedPods
    criteria: QueueCriteria | None = None
    """What the pods were evaluated by last."""
    preemptors: UnboundPreemptors = NO_PREEMPTORS
    """Those without gate and node for which others may be evicted, as of the last order."""
    last_cycle: CycleResult | None = None
    """The last cycle of this leadership."""
    wait_history: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Uid of a pod that does not fit → since when, and how many pods have overtaken it."""
    unplaced_since: dict[str, float] = field(default_factory=dict)
    """Uid of a pod that no node takes → since when."""
    untried_since: dict[str, float] = field(default_factory=dict)
    """Uid of a pod without gates that no scheduler has tried → since when."""
    open_since: dict[str, float] = field(default_factory=dict)
    """Uid of a pod without gates and node → since when."""
    nominated_since: dict[str, float] = field(default_factory=dict)
    """Uid of a pod that is to get a node when others have left it → since when."""
    retries: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Uid of a pod whose bind was refused → how often quota was reserved for it in its turn, and
    until when it has no turn again."""
    reserved_since: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Uid of a pod whose gate is still on → which reservation it has, and since when."""

    def track(self, pod: Pod, now: float) -> None:
        """Note since when a pod that may be scheduled has no node, and whether it was tried."""
        is_open = not (pod.is_gated or pod.is_assigned)
        if not pod.is_gated:
            self.reserved_since.pop(pod.uid, None)
        if pod.is_assigned:
            self.retries.pop(pod.uid, None)
        for times, is_so in (
            (self.open_since, True),
            (self.unplaced_since, pod.is_unplaced),
            (self.untried_since, not pod.is_unplaced),
            (self.nominated_since, pod.is_nominated),
        ):
            if is_open and is_so:
                times.setdefault(pod.uid, now)
            else:
                times.pop(pod.uid, None)

    def forget(self, uid: str) -> None:
        """Forget a pod that was deleted."""
        tracked = (
            self.open_since,
            self.unplaced_since,
            self.untried_since,
            self.nominated_since,
        )
        for times in tracked:
            times.pop(uid, None)
        self.retries.pop(uid, None)
        self.reserved_since.pop(uid, None)

    def ordered(
        self,
        counted: NamespaceQuotas,
        cached: NamespaceQuotaView,
        policy: QueuePolicy,
        *,
        earliest: float | None,
        now: float,
    ) -> tuple[QueuedPod, ...]:
        """Return the gated pods in their order, with pods in flight that some of them are behind.

        Args:
            counted: The quotas that pods are counted for.
            cached: The quotas as they are cached.
            earliest: Room is kept for a pod without a gate that is without a node since later than
                this time; None for the gated pods alone.
        """
        self.criteria = next_criteria(self.criteria, counted, cached, policy)
        return self.as_judged(earliest=earliest, now=now)

    def is_judged_otherwise(
        self, counted: NamespaceQuotas, cached: NamespaceQuotaView, policy: QueuePolicy
    ) -> bool:
        """Return whether pods were judged, by other quotas or rules than these."""
        former = self.criteria
        return former is not None and next_criteria(former, counted, cached, policy) is not former

    def as_judged(self, *, earliest: float | None, now: float) -> tuple[QueuedPod, ...]:
        """Return the pods as `ordered`, by the quotas and rules that they were judged by last."""
        if self.criteria is None:
            return ()
        self.preemptors = self.gated_pods.preemptors(self.criteria)
        if earliest is None:
            return self.gated_pods.ordered(self.criteria)
        in_flight = {
            uid
            for times in (self.untried_since, self.unplaced_since)
            for uid, since in times.items()
            if since > earliest
        }
        resting = {uid for uid, (_, until) in self.retries.items() if until > now}
        return self.gated_pods.with_in_flight(self.criteria, in_flight, resting)

    def history(self, now: float) -> Mapping[str, WaitHistory]:
        """Return how long the pods of the last cycle have waited, and by how many overtaken."""
        return {
            uid: WaitHistory(overtaken, now - since)
            for uid, (since, overtaken) in self.wait_history.items()
        }

    def record(self, cycle: CycleResult, now: float) -> bool:
        """Record a cycle whose decisions are written; return whether it or the last had pods."""
        for one in cycle.released:
            if one.is_retried:
                times = self.retries.get(one.uid, (0, 0.0))[0] + 1
                self.retries[one.uid] = times, now + _IN_VAIN.seconds(times)
        former, self.last_cycle = self.last_cycle, cycle
        if (former is None or not _has_pods(former)) and not _has_pods(cycle):
            return False
        self.wait_history = {
            uid: (self.wait_history.get(uid, (now, 0))[0], cycle.overtaken.get(uid, 0))
            for uid, pending in cycle.pending.items()
            if pending.position
            or pending.failing  # it has no position, and is overtaken all the same
            or uid in self.wait_history  # it may wait for something else for a while
        }
        return True

    def kept_until(
        self, reservation: Reservation, pod: Pod | None, gate_release_seconds: float, now: float
    ) -> float:
        """Return until when a reservation is kept at least; minus infinity for most of requests.

        One of a bind is kept while pods are evicted for the pod, which is bound when they have
        ended: else the next pod would evict others for the same room. Not of an elastic pool, whose
        owners would wait: a tenant can have its own pods evicted. One that released a pod is
        kept while the pod may get a node: for ever as far as is known now, and for
        `gate_release_seconds` more once the scheduler finds no node. A pod that no scheduler has
        tried, perhaps because there is none for it, is kept longer, as is one that is to get a
        node; no change between these lengthens that. One whose gate is still on after
        `gate_release_seconds` is reserved for anew in its turn: there are pods of which no patch
        ends in time.
        """
        if pod is None or pod.is_assigned or pod.is_deleting:
            return -math.inf
        longest = UNTRIED_FACTOR * gate_release_seconds
        if reservation.source is ReservationSource.BIND:
            is_of_pool = any(name.startswith(_OF_POOLS) for name in reservation.quotas)
            since = self.nominated_since.get(reservation.uid, -math.inf)
            return -math.inf if is_of_pool else since + longest
        if reservation.source is not ReservationSource.RELEASE:
            return -math.inf
        if pod.is_gated and reservation.uid not in self.gated_pods:
            return -math.inf  # our gate is off, and it waits for the gates of others
        if pod.is_gated:
            serial, since = self.reserved_since.get(reservation.uid, (0, now))
            if serial != reservation.serial:
                since = now
            self.reserved_since[reservation.uid] = reservation.serial, since
            return since + gate_release_seconds
        unplaced = self.unplaced_since.get(reservation.uid, math.inf)
        since = self.open_since.get(reservation.uid, math.inf)
        return min(unplaced + gate_release_seconds, since + longest)

    def is_releasable(self, uid: str) -> bool:
        """Return whether a gated pod may fit, by what the last cycle has shown."""
        if uid not in self.gated_pods:
            return False
        cycle, queued = self.last_cycle, self.gated_pods.queued_pod(uid)
        if cycle is None or cycle.ledger is None or queued is None or queued.needs_no_quota:
            return True
        claim = queued.claim
        if queued.blocker is not None or claim is None or cycle.ledger.is_reserved(uid):
            return False
        ahead = [cycle.blocking[name] for name in queued.quotas if name in cycle.blocking]
        if any(sort_key < queued.sort_key for sort_key in ahead):
            return False
        if not cycle.ledger.accounts.keys() >= set(claim.quotas):
            return True  # it is counted for other quotas by now
        return not exceeded_quotas(cycle.ledger, claim)


def _has_pods(cycle: CycleResult) -> bool:
    return bool(cycle.pending or cycle.releasable or cycle.retried)
