"""State of one namespace in the ledger controller, and when to reconcile it next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.controllers.ledger.namespace_usage import NamespaceUsage
from webhook.controllers.ledger.recent_binds import RecentBinds
from webhook.controllers.ledger.reservation_expiry import ReservationExpiry
from webhook.controllers.queue.gated_pods import next_criteria
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.ledger.ledger import (
    Account,
    Ledger,
    Reservation,
    ReservationSource,
    exceeded_quotas,
)
from webhook.quota.objects.model import Pod
from webhook.quota.queue.queued_pods import CycleResult, QueueCriteria, QueuedPod, QueuePolicy
from webhook.state.quota_cache import NamespaceQuotaView

_UNTRIED_FACTOR: Final = 10
"""How much longer than for a pod that no node takes a reservation is kept for one that no scheduler
has tried."""


@dataclass(frozen=True, slots=True)
class LastWrite:
    """What this process wrote into a ledger last."""

    uid: str
    """Of the ledger object."""
    resource_version: int
    """That its write gave it."""
    accounts: Mapping[str, Account]
    """The quotas as they were counted; handlers only add to what is reserved in them."""

    def edited(self, uid: str, ledger: Ledger) -> list[str]:
        """Return the quotas that another client counted, or edited, since."""
        if uid != self.uid:
            return []
        names = self.accounts.keys() | ledger.accounts.keys()
        return sorted(name for name in names if self._differs(name, ledger))

    def _differs(self, name: str, ledger: Ledger) -> bool:
        own, other = self.accounts.get(name), ledger.accounts.get(name)
        if own is None or other is None:
            return True
        return (own.observed, own.hard, own.used) != (other.observed, other.hard, other.used)


@dataclass(slots=True, eq=False)
class NamespaceState:
    """A namespace that is opted in, or that has opted out and is to be left in order."""

    usage: NamespaceUsage
    """What its pods use."""
    expiry: ReservationExpiry
    """Its reservations."""
    unreadable_pods: dict[str, str] = field(default_factory=dict)
    """Pod uid → why its usage is not known."""
    is_dirty: bool = True
    """There is something to reconcile."""
    dirty_since: float | None = None
    """Since when; None when there is nothing."""
    reconciling_since: float | None = None
    """Since when there was what is being reconciled."""
    has_reconciled: bool = False
    """All has been said at least once since the namespace is tracked, or that has failed for a
    reason that waiting does not cure."""
    last_write: LastWrite | None = None
    """What this process wrote last in this leadership; None when that is not known."""
    uncharge_at: dict[str, float] = field(default_factory=dict)
    """Uid of a pod that is being deleted → when it is no longer charged."""
    lost_since: float | None = None
    """When the ledger was found to be gone in this leadership."""
    confirmed_version: int = 0
    """Up to which version a list of the pods showed nothing that is not counted; the cache of all
    pods may not have come as far."""
    is_opted_out: bool = False
    """It has opted out."""
    is_rejoining: bool = False
    """It had left, and nothing was written since; what the ledger counts is from before."""
    criteria: QueueCriteria | None = None
    """What its waiting pods were judged by last."""
    last_cycle: CycleResult | None = None
    """What was decided about its waiting pods last, in this leadership."""
    wait_history: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Uid of a pod that does not fit → since when, and how many have passed it."""
    unplaced_since: dict[str, float] = field(default_factory=dict)
    """Uid of a pod that no node takes → since when."""
    untried_since: dict[str, float] = field(default_factory=dict)
    """Uid of a pod without gates that no scheduler has tried → since when."""
    excess: dict[str, tuple[float, ResourceList]] = field(default_factory=dict)
    """Shared quota of which the namespace holds more than it needs → since when, and how much it
    holds."""
    recent_binds: RecentBinds = field(default_factory=RecentBinds)
    """Pods that got their nodes since the ledger was written last."""

    @property
    def is_removable(self) -> bool:
        """Whether it has opted out, nothing is left to write, and no pod is behind our gate."""
        return self.is_opted_out and not self.is_dirty and not len(self.usage.gated_pods)

    def track_unplaced(self, pod: Pod, now: float) -> None:
        """Note since when a pod that may be scheduled has no node, and whether it was tried."""
        is_open = not (pod.is_gated or pod.is_assigned)
        for times, is_so in (
            (self.unplaced_since, pod.is_unplaced),
            (self.untried_since, not pod.is_unplaced),
        ):
            if is_open and is_so:
                times.setdefault(pod.uid, now)
            else:
                times.pop(pod.uid, None)

    def remove_pod(self, uid: str) -> None:
        """Stop counting a pod that was deleted."""
        self.usage.remove(uid)
        for times in (self.uncharge_at, self.unplaced_since, self.untried_since):
            times.pop(uid, None)

    def queue(
        self, seen: NamespaceQuotaView, policy: QueuePolicy, *, earliest: float | None
    ) -> tuple[QueuedPod, ...]:
        """Return the pods that wait, in their order.

        Args:
            seen: The quotas as they are cached.
            policy: Queueing policy.
            earliest: Room is kept for a pod without a gate that is without a node since later than
                this moment; None where every pod gets a gate.
        """
        waiting = self.usage.gated_pods
        self.criteria = next_criteria(self.criteria, self.usage.quotas, seen, policy)
        if self.is_opted_out:  # nothing is held here any more: every gate goes
            queue = waiting.ordered(self.criteria)
            return tuple(replace(one, claim=None, quotas=(), blocker=None) for one in queue)
        if earliest is None:
            return waiting.ordered(self.criteria)
        in_flight = {
            uid
            for times in (self.untried_since, self.unplaced_since)
            for uid, since in times.items()
            if since > earliest
        }
        return waiting.with_in_flight(self.criteria, in_flight)

    def kept_until(self, reservation: Reservation, gate_release_seconds: float) -> float:
        """Return until when a reservation is kept at least; minus infinity for one of a request.

        One that released a pod is kept while the pod has our gate or may get a node: for ever as
        far as is known now, and for `gate_release_seconds` more once the scheduler finds no node. A
        pod that no scheduler has tried, perhaps because there is none for it, is kept longer.
        """
        pod = self.usage.pod(reservation.uid)
        if (
            reservation.source is not ReservationSource.RELEASE
            or self.is_opted_out
            or pod is None
            or pod.is_assigned
            or pod.is_deleting
        ):
            return -math.inf
        if pod.is_gated and reservation.uid not in self.usage.gated_pods:
            return -math.inf  # our gate is off, and it waits for the gates of others
        unplaced = self.unplaced_since.get(reservation.uid, math.inf)
        untried = self.untried_since.get(reservation.uid, math.inf)
        return min(
            unplaced + gate_release_seconds, untried + _UNTRIED_FACTOR * gate_release_seconds
        )

    def is_releasable(self, uid: str) -> bool:
        """Return whether a gated pod may fit, by what the last cycle has shown."""
        if uid not in self.usage.gated_pods:
            return False
        cycle, queued = self.last_cycle, self.usage.gated_pods.queued_pod(uid)
        if cycle is None or cycle.ledger is None or queued is None or queued.needs_no_quota:
            return True
        claim = queued.claim
        if queued.blocker is not None or claim is None or uid in cycle.ledger.reservations:
            return False
        ahead = [cycle.blocking[name] for name in queued.quotas if name in cycle.blocking]
        if any(sort_key < queued.sort_key for sort_key in ahead):
            return False
        if not cycle.ledger.accounts.keys() >= set(claim.quotas):
            return True  # it is counted for other quotas by now
        return not exceeded_quotas(cycle.ledger, claim)

    def reset(self) -> None:
        """Forget what an earlier leadership has seen: others may have led since.

        Reservations are watched from now on, and a ledger that is gone is waited for from now on.
        """
        self.expiry.reset()
        self.lost_since = self.last_write = self.dirty_since = self.last_cycle = None
        self.excess.clear()
        self.recent_binds.reset()

    def begin_reconcile(self) -> None:
        """Begin a reconciliation: later changes need another one."""
        self.is_dirty = False
        self.reconciling_since, self.dirty_since = self.dirty_since, None

    def finish_reconcile(self, *, is_done: bool) -> None:
        """Record that it was reconciled, or has to be again."""
        if not is_done:
            self.is_dirty = True
            self.dirty_since = (
                self.reconciling_since if self.reconciling_since is not None else self.dirty_since
            )
        self.has_reconciled = self.has_reconciled or is_done
