"""State of one namespace in the ledger controller, and when to reconcile it next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from webhook.controllers.ledger.namespace_usage import NamespaceUsage
from webhook.controllers.ledger.recent_binds import RecentBinds
from webhook.controllers.ledger.reservation_expiry import ReservationExpiry
from webhook.controllers.queue.queue_state import PodQueueState
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.ledger.ledger import Account, Ledger, Reservation
from webhook.quota.objects.model import Pod
from webhook.quota.queue.queued_pods import QueuedPod, QueuePolicy
from webhook.state.quota_cache import NamespaceQuotaView


@dataclass(frozen=True, slots=True)
class LastWrite:
    """Last write of this process into a ledger."""

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


@dataclass(frozen=True, slots=True)
class PodListing:
    """A namespace as a list of its pods shows it."""

    version: int
    """The moment of the list."""
    pods: dict[str, Pod]
    """Pod uid → pod; those that cannot be read are absent."""
    unreadable: frozenset[str]
    """Uids of the others."""
    ledger: tuple[str, int] | None = None
    """Uid and version of the ledger that was read before the list, where one was."""


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
    rests_until: float = -math.inf
    """Until when its pods are not counted again, for which all namespaces would wait."""
    reconciling_since: float | None = None
    """Since when there was what is being reconciled."""
    has_reconciled: bool = False
    """All has been said at least once since the namespace is tracked, or that has failed for a
    reason that waiting does not cure."""
    is_unanswered: bool = False
    """The API server did not answer when it failed last, which says nothing of the namespace."""
    last_write: LastWrite | None = None
    """What this process wrote last in this leadership; None when that is not known."""
    deferrals: int = 0
    """How often in a row a write was put off that handlers got in the way of."""
    uncharge_at: dict[str, float] = field(default_factory=dict)
    """Uid of a pod that is being deleted → when it is no longer charged."""
    lost_since: float | None = None
    """When the ledger was found to be gone in this leadership."""
    confirmed_version: int = 0
    """Up to which version a list of the pods showed nothing that is not counted; the cache of all
    pods may not have come as far."""
    listing: PodListing | None = None
    """The list by which that is to be shown, until what waits for it is written."""
    is_opted_out: bool = False
    """It has opted out."""
    is_uncounted: bool = False
    """It has opted in again, and perhaps out since: its pods are counted when it is reconciled."""
    is_rejoining: bool = False
    """It had left, and nothing was written since; what the ledger counts is from before."""
    pod_queue: PodQueueState = field(init=False)
    """The queue of its gated pods."""
    excess: dict[str, tuple[float, ResourceList]] = field(default_factory=dict)
    """Shared quota of which the namespace holds more than it needs → since when, and how much it
    holds."""
    recent_binds: RecentBinds = field(default_factory=RecentBinds)
    """Pods that got their nodes since the ledger was written last."""

    def __post_init__(self) -> None:
        self.pod_queue = PodQueueState(self.usage.gated_pods)

    @property
    def is_left(self) -> bool:
        """Whether it has opted out, nothing is left to write, and no pod is behind our gate."""
        return self.is_opted_out and not self.is_dirty and not len(self.usage.gated_pods)

    def queue(
        self,
        quotas: NamespaceQuotaView,
        policy: QueuePolicy,
        *,
        earliest: float | None,
        now: float = 0.0,
    ) -> tuple[QueuedPod, ...]:
        """Return the gated pods in their order, see `PodQueueState.ordered`."""
        if not self.is_opted_out:
            return self.pod_queue.ordered(
                self.usage.quotas, quotas, policy, earliest=earliest, now=now
            )
        queue = self.pod_queue.ordered(self.usage.quotas, quotas, policy, earliest=None, now=now)
        # nothing is reserved here any more: every gate goes
        return tuple(replace(queued, claim=None, quotas=(), blocker=None) for queued in queue)

    def kept_until(
        self, reservation: Reservation, gate_release_seconds: float, now: float
    ) -> float:
        """Return until when a reservation is kept at least, see `PodQueueState.kept_until`."""
        if self.is_opted_out:
            return -math.inf
        pod = self.usage.pod(reservation.uid)
        return self.pod_queue.kept_until(reservation, pod, gate_release_seconds, now)

    def remove_pod(self, uid: str) -> None:
        """Stop counting a pod that was deleted."""
        self.usage.remove(uid)
        self.unreadable_pods.pop(uid, None)
        self.uncharge_at.pop(uid, None)
        self.pod_queue.forget(uid)

    def reset(self) -> None:
        """Forget what an earlier leadership has seen: others may have led since.

        Reservations are watched from now on, and a ledger that is gone is waited for from now on.
        """
        self.expiry.reset()
        self.lost_since = self.last_write = self.dirty_since = self.listing = None
        self.pod_queue.last_cycle = None
        self.pod_queue.reserved_since.clear()
        self.deferrals = 0
        self.excess.clear()
        self.recent_binds.reset()

    def lose_ledger(self, now: float) -> None:
        """Note that the ledger is gone: what was reserved in it may come into no earlier list."""
        self.lost_since, self.listing = now, None

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
        else:
            self.deferrals = 0
        self.has_reconciled = self.has_reconciled or is_done
