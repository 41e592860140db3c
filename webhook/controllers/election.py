"""Which of several processes leads, by a Lease of coordination.k8s.io/v1.

Rules:

1. Only durations on this process' own steady clock count. A lease is free when it has no holder,
   or when this process has itself seen it unchanged for the time that it is given for. Times that
   others wrote into it are never compared with a clock.
2. Every write names the version it replaces, so of two that take the lease one succeeds.
3. A leader stops saying yes `renew_seconds` after the *sending* of the last renewal that is known
   to have been written; nobody may take the lease before `lease_seconds` after that. `is_leader`
   looks at the clock each time: a process that was paused says no in the moment it runs again.
4. A lease that somebody deleted is not free either, for those who have seen it: its holder may
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
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from webhook.cluster.api import (
    LEASES,
    AlreadyExistsError,
    ApiError,
    ClusterApi,
    ConflictError,
    NotFoundError,
    Object,
)
from webhook.controllers.lease import LeaseTerm, StoredLease, lease_object, read_lease
from webhook.controllers.rounds import Rounds
from webhook.quota.fields import InvalidFieldError

_log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 0.25
_STOP_SECONDS: Final = 15.0


def steady_clock() -> float:
    """Tell the time since the machine started, time asleep included where it can be told."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@dataclass(frozen=True, slots=True)
class ElectionTiming:
    """Durations and clocks of an election; all times are seconds.

    Attributes:
        lease_seconds: Others take the lease when they saw it unchanged for this long.
        renew_seconds: A leader that could not renew for this long no longer leads.
        retry_seconds: Between two renewals, or two looks at somebody else's lease.
        longest_pause: Between two attempts of a process that does not lead, during an outage.
        clock: A steady clock.
        now: The time of day, for people.
        rand: Uniform numbers in [0, 1): pauses are up to a fifth longer than said.
    """

    lease_seconds: int = 15
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0
    longest_pause: float = 8.0
    clock: Callable[[], float] = steady_clock
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    rand: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        if not 0 < self.retry_seconds * 1.2 < self.renew_seconds < self.lease_seconds:
            raise ValueError(
                "an election needs 1.2 * retry_seconds < renew_seconds < lease_seconds, not "
                f"{self.retry_seconds}, {self.renew_seconds}, {self.lease_seconds}"
            )

    def pause(self, seconds: float) -> float:
        """Return a pause with jitter."""
        return seconds * (1 + 0.2 * self.rand())


class Election:
    """One candidate. `is_leader`, `term` and `stop` may be called from any thread.

    Args:
        api: The API server; requests should end well before `renew_seconds`.
        namespace: Of the Lease.
        name: Of the Lease.
        identity: Who this process is; a restarted one is another.
        timing: Durations and clocks.
        on_started: Called when a leadership begins, on the election's thread.
        on_lost: Called when it ends, also by `stop`; with a paused process or an API server that
            does not answer, some time after `is_leader` began to say no.
    """

    def __init__(
        self,
        api: ClusterApi,
        *,
        namespace: str,
        name: str,
        identity: str,
        timing: ElectionTiming | None = None,
        on_started: Callable[[], None] = lambda: None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.identity: Final = identity
        self._api = api
        self._namespace = namespace
        self._name = name
        self._timing = timing or ElectionTiming()
        self._on_started = on_started
        self._on_lost = on_lost
        self._held: tuple[int, float] = (0, -math.inf)
        """The version at which the leadership began, and until when it lasts; set as one."""
        self._lease: StoredLease | None = None
        self._raw: Object | None = None
        self._seen: tuple[int, float] | None = None
        self._absent_since: float | None = None
        self._told = 0
        self._failures = 0
        self._rounds = Rounds("election", self.step, rest_seconds=self._timing.retry_seconds)

    def is_leader(self) -> bool:
        """Tell whether this process leads at this moment; costs a look at the clock."""
        return self._timing.clock() < self._held[1]

    def term(self) -> int:
        """Return 0 unless this process leads; else the resource version at which that began.

        Another leadership, however soon after, has a higher number.
        """
        began, until = self._held
        return began if self._timing.clock() < until else 0

    @property
    def leader(self) -> str:
        """The holder of the lease as last seen; empty when there was none."""
        return "" if self._lease is None else self._lease.term.holder

    @property
    def transitions(self) -> int:
        """How often the lease went to another holder, as last seen."""
        return 0 if self._lease is None else self._lease.term.transitions

    def start(self) -> None:
        """Begin to stand for election, on a thread of its own."""
        self._rounds.start()

    def stop(self) -> None:
        """Stop leading at once, then give the lease back so that another process takes it.

        Whatever this process writes as a leader should have ended before.
        """
        self._rounds.end()
        self._resign()
        self._rounds.stop(_STOP_SECONDS)
        self._tell()
        self._release()

    # -- one step ------------------------------------------------------------------------------

    def step(self) -> float:
        """Renew or try to take the lease; return how long to wait before the next step."""
        try:
            self._attempt()
            self._failures = 0
        except (ApiError, InvalidFieldError) as err:
            self._failures += 1
            self._raw = None  # nobody knows what the lease says now
            _log.warning(
                "election failed",
                extra={"lease": f"{self._namespace}/{self._name}", "error": str(err)},
            )
        self._tell()
        return self._pause()

    def _attempt(self) -> None:
        sent = self._timing.clock()  # before anything is sent: rule 3
        if self._raw is None or not self.is_leader():
            self._look()
        stored = self._lease
        if stored is None:
            self._make(sent)
        elif stored.term.holder == self.identity:
            self._write(stored, stored.term.renewed_at(self._timing.now()), sent)
        elif self._is_free(stored.term):
            taken = stored.term.taken_by(
                self.identity, self._timing.lease_seconds, self._timing.now()
            )
            self._write(stored, taken, sent)
        else:
            self._resign()

    def _look(self) -> None:
        try:
            raw = self._api.get(LEASES, self._name, namespace=self._namespace)
        except NotFoundError:
            if self._absent_since is None:
                self._absent_since = -math.inf if self._lease is None else self._timing.clock()
            self._lease = self._raw = self._seen = None
            return
        self._raw = raw
        self._note(read_lease(raw))

    def _note(self, stored: StoredLease) -> None:
        self._lease, self._absent_since = stored, None
        # by its version, since a clock that leaps can write the same times again
        if self._seen is None or self._seen[0] != stored.resource_version:
            self._seen = (stored.resource_version, self._timing.clock())

    def _is_free(self, term: LeaseTerm) -> bool:
        if not term.holder:
            return True
        assert self._seen is not None  # noqa: S101 - `_note` came before
        # a shorter time that somebody wrote by hand must not cut the holder's short
        seconds = max(term.seconds, self._timing.lease_seconds)
        return self._timing.clock() - self._seen[1] > seconds

    def _make(self, sent: float) -> None:
        """Create the lease, unless its last holder may still lead (rule 4)."""
        assert self._absent_since is not None  # noqa: S101 - `_look` came before
        absent = self._timing.clock() - self._absent_since
        if not self.is_leader() and absent <= self._timing.lease_seconds:
            return
        first = LeaseTerm(holder=self.identity)
        term = first.taken_by(self.identity, self._timing.lease_seconds, self._timing.now())
        try:
            made = self._api.create(LEASES, lease_object(self._namespace, self._name, term))
        except AlreadyExistsError:
            self._resign()
            return
        self._lead(made.object, sent)

    def _write(self, stored: StoredLease, term: LeaseTerm, sent: float) -> None:
        wanted = lease_object(self._namespace, self._name, term, self._raw)
        try:
            written = self._api.update(LEASES, wanted)
        except (ConflictError, NotFoundError):
            self._raw = None  # somebody else wrote it: look again, and lead until then
            if stored.term.holder != self.identity:
                return
            raise
        self._lead(written.object, sent)

    def _lead(self, raw: Object, sent: float) -> None:
        self._raw = raw
        stored = read_lease(raw)
        self._note(stored)
        if self._rounds.are_over:
            return
        began = self._held[0] if self.is_leader() else stored.resource_version
        self._held = (began, sent + self._timing.renew_seconds)

    def _resign(self) -> None:
        self._held = (0, -math.inf)

    def _tell(self) -> None:
        """Call the callbacks when a leadership began or ended since the last call."""
        term, told = self.term(), self._told
        if term == told:
            return
        self._told = term
        facts = {"identity": self.identity, "holder": self.leader}
        if told:
            _log.info("leadership ended", extra=facts)
            self._on_lost()
        if term:
            _log.info("leadership began", extra=facts)
            self._on_started()

    def _pause(self) -> float:
        if not self._failures:
            retry = self._timing.retry_seconds
            return self._timing.pause(retry if self.is_leader() else retry / 2)
        longest = self._timing.retry_seconds if self.is_leader() else self._timing.longest_pause
        growing = math.ldexp(_FIRST_PAUSE_SECONDS, min(self._failures - 1, 16))
        return self._timing.pause(min(longest, growing))

    def _release(self) -> None:
        """Give the lease back if it is held by this process; nobody has to wait then."""
        try:
            self._look()
            stored = self._lease
            if stored is not None and stored.term.holder == self.identity:
                given = stored.term.given_back(self._timing.now())
                self._api.update(
                    LEASES, lease_object(self._namespace, self._name, given, self._raw)
                )
        except (ApiError, InvalidFieldError) as err:
            _log.warning(
                "the lease could not be given back; others take it when it ends",
                extra={"lease": f"{self._namespace}/{self._name}", "error": str(err)},
            )
