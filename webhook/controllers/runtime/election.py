"""Leader election among several processes, by a Lease of coordination.k8s.io/v1.

Rules:

1. Only durations on this process' own steady clock count. A lease is free when it has no holder,
   or when this process has itself seen it unchanged for the time that it is given for, at most
   `max_lease_seconds`. Times that others wrote into it are never compared with a clock.
2. Every write names the version it replaces, so of two that take the lease one succeeds.
3. A leader stops saying yes `renew_seconds` after the *sending* of the last renewal that is known
   to have been written; no other may take the lease before `lease_seconds` after that. `is_leader`
   looks at the clock each time: a process that was paused says no in the moment it runs again.
4. A lease that was deleted is not free either, for those that have seen it: its holder may
   still lead, and only the holder makes it anew at once.
5. A renewal always changes the lease and with it its version, also while the clock of the machine
   stands still; the others would otherwise take it for abandoned.

What a former leader has already sent is not stopped by any of this. Whatever is written under a
leadership has to be conditional on what it replaces, as ledgers are.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from webhook.controllers.runtime.lease import LeaseSpec, StoredLease, lease_object, read_lease
from webhook.controllers.runtime.periodic import PeriodicThread
from webhook.controllers.runtime.rate_limit import ExponentialBackoff
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import (
    LEASES,
    AlreadyExistsError,
    ApiError,
    ClusterApi,
    ConflictError,
    NotFoundError,
    Object,
)

_log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 0.25
_STOP_SECONDS: Final = 15.0


def steady_clock() -> float:
    """Return the seconds since the machine started, time asleep included where that is known."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class ElectionTimings:
    """Durations and clocks of an election; all times are seconds."""

    lease_seconds: int = 15
    """Others take the lease when they saw it unchanged for this long."""
    max_lease_seconds: int = 120
    """The longest that is believed of a lease which another process wrote."""
    renew_seconds: float = 10.0
    """A leader that could not renew for this long no longer leads."""
    retry_seconds: float = 2.0
    """Between two renewals, or two looks at the lease of another process."""
    max_pause_seconds: float = 8.0
    """Between two attempts of a process that does not lead, during an outage."""
    clock: Callable[[], float] = steady_clock
    """A steady clock."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    """The time of day, for people."""
    rand: Callable[[], float] = random.random
    """Uniform numbers in [0, 1): pauses are up to a fifth longer than said."""

    def __post_init__(self) -> None:
        if not 0 < self.retry_seconds * 1.2 < self.renew_seconds < self.lease_seconds:
            raise ValueError(
                "an election needs 1.2 * retry_seconds < renew_seconds < lease_seconds, not "
                f"{self.retry_seconds}, {self.renew_seconds}, {self.lease_seconds}"
            )

    def with_jitter(self, seconds: float) -> float:
        """Return a pause with jitter."""
        return seconds * (1 + 0.2 * self.rand())


class Election:
    """One candidate. `is_leader`, `epoch` and `stop` may be called from any thread.

    Args:
        api: The API server; requests should end well before `renew_seconds`.
        namespace: Of the Lease.
        name: Of the Lease.
        identity: Name of this process; a restarted one has another.
        timings: Durations and clocks.
    """

    def __init__(
        self,
        api: ClusterApi,
        *,
        namespace: str,
        name: str,
        identity: str,
        timings: ElectionTimings | None = None,
    ) -> None:
        self.identity: Final = identity
        self._api = api
        self._namespace = namespace
        self._name = name
        self.timings: Final = timings or ElectionTimings()
        self._leadership: tuple[int, float] = (0, -math.inf)
        """The version at which the leadership began, and until when it lasts; set as one."""
        self._lock = threading.Lock()
        """Guards the writes of `_leadership`."""
        self._lease: StoredLease | None = None
        self._raw: Object | None = None
        self._last_seen: tuple[int, float] | None = None
        self._absent_since: float | None = None
        self._reported_epoch = 0
        self._failures = 0
        self._thread = PeriodicThread(
            "election", self.step, retry_seconds=self.timings.retry_seconds
        )

    def is_leader(self) -> bool:
        """Return whether this process leads at this moment; costs a look at the clock."""
        return self.timings.clock() < self._leadership[1]

    def epoch(self) -> int:
        """Return 0 unless this process leads; else the resource version at which that began.

        Another leadership, however soon after, has a higher number.
        """
        began, until = self._leadership
        return began if self.timings.clock() < until else 0

    @property
    def leader(self) -> str:
        """The holder of the lease as last seen; empty when there was none."""
        return "" if self._lease is None else self._lease.spec.holder

    @property
    def transitions(self) -> int:
        """Number of changes of the lease's holder, as last seen."""
        return 0 if self._lease is None else self._lease.spec.transitions

    def start(self) -> None:
        """Start the election, on a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Stop leading at once, then give the lease back so that another process takes it.

        Whatever this process writes as a leader should have ended before.
        """
        self._thread.request_stop()
        self._resign()
        self._thread.stop(_STOP_SECONDS)
        self._report()
        self._release()

    # -- one step ------------------------------------------------------------------------------

    def step(self) -> float:
        """Renew or try to take the lease; return how long to wait before the next step."""
        try:
            self._try_once()
            self._failures = 0
        except (ApiError, InvalidFieldError) as err:
            self._failures += 1
            self._raw = None  # what the lease says now is unknown
            _log.warning(
                "election failed",
                extra={"lease": f"{self._namespace}/{self._name}", "error": str(err)},
            )
        self._report()
        return self._next_pause()

    def _try_once(self) -> None:
        sent = self.timings.clock()  # before anything is sent: rule 3
        if self._raw is None or not self.is_leader():
            self._refresh()
        stored = self._lease
        if stored is None:
            self._create(sent)
        elif stored.spec.holder == self.identity:
            self._write(stored, stored.spec.renewed_at(self.timings.now()), sent)
        elif self._is_free(stored.spec):
            taken = stored.spec.taken_by(
                self.identity, self.timings.lease_seconds, self.timings.now()
            )
            self._write(stored, taken, sent)
        else:
            self._resign()

    def _refresh(self) -> None:
        try:
            raw = self._api.get(LEASES, self._name, namespace=self._namespace)
        except NotFoundError:
            if self._absent_since is None:
                self._absent_since = -math.inf if self._lease is None else self.timings.clock()
            self._lease = self._raw = self._last_seen = None
            return
        self._raw = raw
        self._record(read_lease(raw))

    def _record(self, stored: StoredLease) -> None:
        self._lease, self._absent_since = stored, None
        # by its version, since a clock that leaps can write the same times again
        if self._last_seen is None or self._last_seen[0] != stored.resource_version:
            self._last_seen = (stored.resource_version, self.timings.clock())

    def _is_free(self, epoch: LeaseSpec) -> bool:
        if not epoch.holder:
            return True
        assert self._last_seen is not None  # noqa: S101 - `_note` came before
        # a shorter time that was written by hand must not cut the holder's short, and one of years,
        # by a client that has the token no more, must not keep the lease from all others
        seconds = min(epoch.seconds, self.timings.max_lease_seconds)
        seconds = max(seconds, self.timings.lease_seconds)
        return self.timings.clock() - self._last_seen[1] > seconds

    def _create(self, sent: float) -> None:
        """Create the lease, unless its last holder may still lead (rule 4)."""
        assert self._absent_since is not None  # noqa: S101 - `_look` came before
        absent = self.timings.clock() - self._absent_since
        if not self.is_leader() and absent <= self.timings.lease_seconds:
            return
        first = LeaseSpec(holder=self.identity)
        epoch = first.taken_by(self.identity, self.timings.lease_seconds, self.timings.now())
        try:
            made = self._api.create(LEASES, lease_object(self._namespace, self._name, epoch))
        except AlreadyExistsError:
            self._resign()
            return
        self.lead(made.object, sent)

    def _write(self, stored: StoredLease, epoch: LeaseSpec, sent: float) -> None:
        wanted = lease_object(self._namespace, self._name, epoch, self._raw)
        try:
            written = self._api.update(LEASES, wanted)
        except (ConflictError, NotFoundError):
            self._raw = None  # another client wrote it: look again, and lead until then
            if stored.spec.holder != self.identity:
                return
            raise
        self.lead(written.object, sent)

    def lead(self, raw: Object, sent: float) -> None:
        """Lead by a lease that was written, from when that was sent (rule 3)."""
        self._raw = raw
        stored = read_lease(raw)
        self._record(stored)
        began = self._leadership[0] if self.is_leader() else stored.resource_version
        with self._lock:  # else a renewal would lead again that was under way while `stop` resigned
            if not self._thread.is_stopping:
                self._leadership = (began, sent + self.timings.renew_seconds)

    def _resign(self) -> None:
        with self._lock:
            self._leadership = (0, -math.inf)

    def _report(self) -> None:
        """Log that a leadership began or ended since the last call."""
        epoch, reported = self.epoch(), self._reported_epoch
        if epoch == reported:
            return
        self._reported_epoch = epoch
        snapshot = {"identity": self.identity, "holder": self.leader}
        if reported:
            _log.info("leadership ended", extra=snapshot)
        if epoch:
            _log.info("leadership began", extra=snapshot)

    def _next_pause(self) -> float:
        if not self._failures:
            retry = self.timings.retry_seconds
            return self.timings.with_jitter(retry if self.is_leader() else retry / 2)
        longest = self.timings.retry_seconds if self.is_leader() else self.timings.max_pause_seconds
        backoff = ExponentialBackoff(_FIRST_PAUSE_SECONDS, longest)
        return self.timings.with_jitter(backoff.seconds(self._failures))

    def _release(self) -> None:
        """Release the Lease if this process holds it, so that no other has to wait for its end."""
        try:
            self._refresh()
            stored = self._lease
            if stored is not None and stored.spec.holder == self.identity:
                given = stored.spec.released(self.timings.now())
                self._api.update(
                    LEASES, lease_object(self._namespace, self._name, given, self._raw)
                )
        except (ApiError, InvalidFieldError) as err:
            _log.warning(
                "the lease could not be given back; others take it when it ends",
                extra={"lease": f"{self._namespace}/{self._name}", "error": str(err)},
            )
