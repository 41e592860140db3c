"""One namespace as the tracker keeps it, and when something is to be done about it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from webhook.cluster.informer import Timing
from webhook.controllers.counting import NamespaceCount
from webhook.controllers.expiry import ReservationWatch


@dataclass(frozen=True, slots=True)
class TrackerTiming:
    """When the tracker acts; all times are seconds.

    Attributes:
        settle_seconds: Between two writes of one ledger.
        resync_seconds: Between two looks at a ledger where nothing happens.
        expire_seconds: How long a reservation is watched before it can expire.
        waits_at_start: Whether namespaces that are opted in when the tracker starts, and have no
            ledger, get one only after `expire_seconds`: it may have been lost, and with it what
            was reserved in it. False where the cluster begins with this process.
        clock: The monotonic clock.
        informer: Clock and pauses of the informer of pods.
    """

    settle_seconds: float = 0.1
    resync_seconds: float = 10.0
    expire_seconds: float = 45.0
    waits_at_start: bool = False
    clock: Callable[[], float] = time.monotonic
    informer: Timing = field(default_factory=Timing)


@dataclass(slots=True, eq=False)
class Tracked:
    """A namespace that is opted in, or that has opted out and is to be left in order.

    Attributes:
        count: What its pods use.
        watch: Its reservations.
        unreadable_pods: Pod uid → why its usage is not known.
        is_dirty: There is something to settle.
        due: Not to be settled before.
        is_settled: All has been said at least once since the namespace is tracked, or that has
            failed for a reason that waiting does not cure.
        has_ledger: There has been a ledger since then.
        release_at: Uid of a pod that is being deleted → when it is no longer charged.
        lost_since: When it was found to be gone.
        is_leaving: It has opted out.
    """

    count: NamespaceCount
    watch: ReservationWatch
    unreadable_pods: dict[str, str] = field(default_factory=dict)
    is_dirty: bool = True
    due: float = 0.0
    is_settled: bool = False
    has_ledger: bool = False
    release_at: dict[str, float] = field(default_factory=dict)
    lost_since: float | None = None
    is_leaving: bool = False

    @property
    def has_left(self) -> bool:
        """Whether it has opted out and nothing is left to say."""
        return self.is_leaving and not self.is_dirty

    def is_due(self, now: float, resync_seconds: float) -> bool:
        """Say whether it is to be settled now."""
        if self.due > now:
            return False
        expiry = self.watch.next_due()
        return (
            self.is_dirty
            or self.due + resync_seconds <= now
            or (expiry is not None and expiry < now)
        )

    def next_moment(self, resync_seconds: float) -> float:
        """Return when it is to be settled if nothing changes."""
        if self.is_dirty:
            return self.due
        expiry = self.watch.next_due()
        resync = self.due + resync_seconds
        return resync if expiry is None else min(resync, max(self.due, expiry))

    def note(self, due: float, *, is_done: bool) -> None:
        """Take down that it was settled, or has to be again, but not before `due`."""
        self.due = due
        self.is_dirty = self.is_dirty or not is_done
        self.is_settled = self.is_settled or is_done
