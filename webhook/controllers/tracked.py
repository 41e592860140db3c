"""One namespace as the tracker keeps it, and when something is to be done about it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from webhook.cluster.informer import Timing
from webhook.controllers.arrivals import Arrivals
from webhook.controllers.counting import NamespaceCount
from webhook.controllers.expiry import ReservationWatch
from webhook.controllers.waiting import following_terms
from webhook.quota.ledger import Account, Ledger
from webhook.quota.line import LineRules, Passed, Terms, Waiter
from webhook.quota.objects import Pod
from webhook.quota.resources import ResourceList
from webhook.state.quota_cache import QuotasSeen


@dataclass(frozen=True, slots=True)
class TrackerTiming:
    """When the tracker acts; all times are seconds.

    Attributes:
        settle_seconds: Between two writes of one ledger.
        fold_seconds: From a bind to the write that turns its reservation into `used`. That frees
            nothing, so it can wait for the binds behind it.
        resync_seconds: Between two looks at a ledger where nothing happens.
        followed_resync_seconds: The same where every change of a ledger is seen by a watch.
        look_seconds: From a change of a ledger that somebody else made to the look at it.
        expire_seconds: How long a reservation is watched before it can expire.
        recount_seconds: Between two comparisons of the count with a fresh list of the pods.
        longest_retry: Between two attempts at a namespace that fails again and again.
        waits_at_start: Whether namespaces that are opted in when this process begins to lead, and
            have no ledger, get one only after `expire_seconds`: it may have been lost, and with it
            what was reserved in it. False where the cluster begins with this process.
        workers: How many namespaces are settled at the same time.
        clock: The monotonic clock.
        now: The time of day, for people.
        informer: Clock and pauses of the informer of pods.
    """

    settle_seconds: float = 0.1
    fold_seconds: float = 0.5
    resync_seconds: float = 10.0
    followed_resync_seconds: float = 120.0
    look_seconds: float = 0.5
    expire_seconds: float = 45.0
    recount_seconds: float = 600.0
    longest_retry: float = 30.0
    waits_at_start: bool = False
    workers: int = 4
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    informer: Timing = field(default_factory=Timing)


@dataclass(frozen=True, slots=True)
class Written:
    """What this process wrote into a ledger last.

    Attributes:
        uid: Of the ledger object.
        resource_version: That its write gave it.
        accounts: The quotas as they were counted; doors only add to what is reserved in them.
    """

    uid: str
    resource_version: int
    accounts: Mapping[str, Account]

    def edited(self, uid: str, found: Ledger) -> list[str]:
        """Return the quotas of `found` that somebody else counted, or edited, since."""
        if uid != self.uid:
            return []
        names = self.accounts.keys() | found.accounts.keys()
        return sorted(name for name in names if self._differs(name, found))

    def _differs(self, name: str, found: Ledger) -> bool:
        one, other = self.accounts.get(name), found.accounts.get(name)
        if one is None or other is None:
            return True
        return (one.observed, one.hard, one.used) != (other.observed, other.hard, other.used)


@dataclass(slots=True, eq=False)
class Tracked:
    """A namespace that is opted in, or that has opted out and is to be left in order.

    Attributes:
        count: What its pods use.
        watch: Its reservations.
        unreadable_pods: Pod uid → why its usage is not known.
        is_dirty: There is something to settle.
        dirty_since: Since when; None when there is nothing.
        taken_since: Since when there was what is being settled.
        due: Not to be settled before.
        wanted: When what is to be settled should be; infinity when there is nothing.
        failures: How often settling has failed in a row.
        is_settled: All has been said at least once since the namespace is tracked, or that has
            failed for a reason that waiting does not cure.
        written: What this process wrote last in this leadership; None when that is not known.
        release_at: Uid of a pod that is being deleted → when it is no longer charged.
        lost_since: When the ledger was found to be gone in this leadership.
        confirmed: Up to which version a list of the pods showed nothing that is not counted; the
            cache of all pods may not have come as far.
        is_leaving: It has opted out.
        is_back: It had left, and nothing was written since; what the ledger counts is from before.
        terms: What its waiting pods were judged by last.
        passed: What was decided about its waiting pods last, in this leadership.
        history: Uid of a pod that does not fit → since when, and how many have passed it.
        unplaced_since: Uid of a pod that no node takes → since when.
        untried_since: Uid of a pod without gates that no scheduler has tried → since when.
        excess: Shared quota of which the namespace holds more than it needs → since when, and how
            much it holds.
        arrivals: Pods that got their nodes since the ledger was written last.
    """

    count: NamespaceCount
    watch: ReservationWatch
    unreadable_pods: dict[str, str] = field(default_factory=dict)
    is_dirty: bool = True
    dirty_since: float | None = None
    taken_since: float | None = None
    due: float = 0.0
    wanted: float = math.inf
    failures: int = 0
    is_settled: bool = False
    written: Written | None = None
    release_at: dict[str, float] = field(default_factory=dict)
    lost_since: float | None = None
    confirmed: int = 0
    is_leaving: bool = False
    is_back: bool = False
    terms: Terms | None = None
    passed: Passed | None = None
    history: dict[str, tuple[float, int]] = field(default_factory=dict)
    unplaced_since: dict[str, float] = field(default_factory=dict)
    untried_since: dict[str, float] = field(default_factory=dict)
    excess: dict[str, tuple[float, ResourceList]] = field(default_factory=dict)
    arrivals: Arrivals = field(default_factory=Arrivals)

    @property
    def has_left(self) -> bool:
        """Whether it has opted out, nothing is left to say, and no pod is behind our gate."""
        return self.is_leaving and not self.is_dirty and not len(self.count.waiting)

    def note_unplaced(self, pod: Pod, now: float) -> None:
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

    def remove(self, uid: str) -> None:
        """Stop counting a pod that was deleted."""
        self.count.remove(uid)
        for times in (self.release_at, self.unplaced_since, self.untried_since):
            times.pop(uid, None)

    def line(
        self, seen: QuotasSeen, rules: LineRules, *, earliest: float | None
    ) -> tuple[Waiter, ...]:
        """Return the pods that wait, in their order.

        Args:
            seen: The quotas as they are cached.
            rules: How lines move.
            earliest: Room is kept for a pod without a gate that is without a node since later than
                this moment; None where every pod gets a gate.
        """
        waiting = self.count.waiting
        self.terms = following_terms(self.terms, self.count.quotas, seen, rules)
        if self.is_leaving:  # nothing is held here any more: every gate goes
            line = waiting.line(self.terms)
            return tuple(replace(one, claim=None, quotas=(), hindrance=None) for one in line)
        if earliest is None:
            return waiting.line(self.terms)
        underway = {
            uid
            for times in (self.untried_since, self.unplaced_since)
            for uid, since in times.items()
            if since > earliest
        }
        return waiting.line_with(self.terms, underway)

    def next_moment(self, resync_seconds: float) -> float:
        """Return when it is to be settled if nothing changes."""
        if self.is_dirty:
            return self.due if self.wanted == math.inf else max(self.due, self.wanted)
        expiry = self.watch.next_due()
        resync = self.due + resync_seconds
        return resync if expiry is None else min(resync, max(self.due, expiry))

    def begin_term(self) -> None:
        """Forget what an earlier leadership has seen: others may have led since.

        Reservations are watched from now on, and a ledger that is gone is waited for from now on.
        """
        self.watch.forget()
        self.lost_since = self.written = self.dirty_since = self.passed = None
        self.failures = 0
        self.due = 0.0
        self.excess.clear()
        self.arrivals.forget()

    def begin(self) -> None:
        """Take down that it is being settled: what changes from now on is to be settled again."""
        self.is_dirty = False
        self.wanted = math.inf
        self.taken_since, self.dirty_since = self.dirty_since, None

    def note(self, due: float, *, is_done: bool) -> None:
        """Take down that it was settled, or has to be again, but not before `due`."""
        self.due = due
        if not is_done:
            self.is_dirty = True
            self.dirty_since = (
                self.taken_since if self.taken_since is not None else self.dirty_since
            )
        self.is_settled = self.is_settled or is_done
