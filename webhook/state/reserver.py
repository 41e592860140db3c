"""Decide claims on the ledger of a namespace, together and with one write.

Requests of a namespace that arrive while a write is on its way wait for it and are then decided
as one batch. The thread of one of them does the work for all; when it is done with its own batch
and others wait, it hands the work over.

Every answer is one of three: reserved, refused, undecided. A refusal rests on a ledger that was
read after the request arrived. An admission rests on the ledger that its write replaced. An
answer of the API server that got lost leaves everything undecided; reading again shows what
became of the write, and a reservation that is there is not made twice.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from webhook.cluster.api import ApiError, ConflictError, NotFoundError
from webhook.quota.fields import InvalidFieldError
from webhook.quota.ledger import (
    NO_LEDGER,
    Admitted,
    Claim,
    Ledger,
    Observed,
    Refused,
    Undecided,
    Verdict,
    admit_all,
    final_verdicts,
    not_counted,
)
from webhook.quota.refusals import QuotaExceeded
from webhook.state.ledgers import LedgerStore, LedgerVersion

_log = logging.getLogger(__name__)

_BUSY = Undecided("the quota ledger is busy")
_LATE = Undecided("the request's time ran out before its quota could be reserved")


@dataclass(frozen=True, slots=True)
class Reserved:
    """The claim is in the ledger at this version; of a dry run, it would fit there."""

    ledger_version: int


Outcome: TypeAlias = Reserved | QuotaExceeded | Undecided


@dataclass(frozen=True, slots=True)
class ReserverStats:
    """What the reserver reports as it works; each is called without locks held."""

    batch_written: Callable[[int], None] = lambda _claims: None
    conflicted: Callable[[], None] = lambda: None


@dataclass(slots=True, eq=False)
class _Ticket:
    """A claim that waits for its outcome."""

    claim: Claim
    observed: frozenset[Observed]
    deadline: float
    woken: threading.Lock = field(default_factory=threading.Lock)
    outcome: Outcome | None = None
    leads: bool = False

    def __post_init__(self) -> None:
        self.woken.acquire()


@dataclass(slots=True, eq=False)
class _Lane:
    """The claims of one namespace: those that wait, and whether a thread is at work."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: list[_Ticket] = field(default_factory=list)
    is_busy: bool = False


class Reserver:
    """The doors' way to the ledger. Safe to use from many threads.

    Args:
        ledgers: Where ledgers are read and written.
        attempts: How often a batch is decided before it is given up as busy.
        capacity: Most reservations of a namespace; further claims are undecided.
        stats: Told about batches and conflicts.
        sleep: Waits some seconds between attempts.
    """

    def __init__(
        self,
        ledgers: LedgerStore,
        *,
        attempts: int = 6,
        capacity: int = 4000,
        stats: ReserverStats | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._ledgers = ledgers
        self._attempts = attempts
        self._capacity = capacity
        self._stats = stats or ReserverStats()
        self._sleep = sleep
        self._lanes: dict[str, _Lane] = {}
        self._lanes_lock = threading.Lock()

    def reserve(
        self, namespace: str, claim: Claim, observed: frozenset[Observed], *, deadline: float
    ) -> Outcome:
        """Reserve what `claim` asks, or say why not.

        Args:
            namespace: The pod's namespace.
            claim: What is asked.
            observed: The quotas of the namespace as the caller knows them; the claim was made
                for these.
            deadline: When to give up, on the monotonic clock.
        """
        lane = self._lane(namespace)
        ticket = _Ticket(claim, observed, deadline)
        with lane.lock:
            lane.waiting.append(ticket)
            ticket.leads = not lane.is_busy
            lane.is_busy = True
        if not ticket.leads:
            is_woken = ticket.woken.acquire(timeout=max(0.0, deadline - time.monotonic()))
            if ticket.outcome is not None:
                return ticket.outcome
            if not self._takes_over(lane, ticket):
                return _LATE
            if not is_woken:
                ticket.woken.acquire()  # who handed the lead over is about to wake it
        return self._lead(namespace, lane, ticket)

    def try_out(self, namespace: str, claim: Claim, observed: frozenset[Observed]) -> Outcome:
        """Decide as `reserve` would, on the ledger as it is now, and write nothing."""
        try:
            version = self._ledgers.fetch(namespace)
        except (ApiError, InvalidFieldError) as err:
            return _unreachable(err)
        ticket = _Ticket(claim, observed, deadline=0.0)
        known, number = (version.ledger, version.resource_version) if version else (None, 0)
        _, verdicts = self._verdicts(known, [ticket])
        return _outcome(verdicts[0], number)

    def _lane(self, namespace: str) -> _Lane:
        lane = self._lanes.get(namespace)
        if lane is None:
            with self._lanes_lock:
                lane = self._lanes.setdefault(namespace, _Lane())
        return lane

    @staticmethod
    def _takes_over(lane: _Lane, ticket: _Ticket) -> bool:
        """Leave the queue because time is up, unless the lead was handed over meanwhile."""
        with lane.lock:
            if ticket in lane.waiting and not ticket.leads:
                lane.waiting.remove(ticket)
            return ticket.leads

    def _lead(self, namespace: str, lane: _Lane, own: _Ticket) -> Outcome:
        """Decide everything that waits, then hand over to the next or leave the lane idle."""
        with lane.lock:
            batch, lane.waiting = lane.waiting, []
        try:
            self._decide(namespace, batch)
        except Exception:
            _log.exception("deciding a batch failed", extra={"namespace": namespace})
            raise
        finally:
            self._hand_over(lane)
            for ticket in batch:
                if ticket.outcome is None:
                    ticket.outcome = _BUSY
                ticket.woken.release()
        return own.outcome or _BUSY

    @staticmethod
    def _hand_over(lane: _Lane) -> None:
        with lane.lock:
            if not lane.waiting:
                lane.is_busy = False
                return
            following = lane.waiting[0]
            following.leads = True
        following.woken.release()

    def _decide(self, namespace: str, batch: Sequence[_Ticket]) -> None:
        """Give every ticket of the batch its outcome."""
        version = self._ledgers.known(namespace)
        is_fresh = False
        for attempt in range(self._attempts):
            still_open = _open(batch)
            if not still_open:
                return
            if version is None:
                version, is_fresh = self._fetch(namespace, still_open), True
                if version is None:
                    return
            following, verdicts = self._verdicts(version.ledger, still_open)
            if not is_fresh and not all(isinstance(one, Admitted) for one in verdicts):
                version = None  # only what is read now may refuse or hold back
                continue
            self._settle(namespace, version, following, still_open, verdicts)
            version, is_fresh = None, False
            if attempt and _open(batch):
                self._sleep(random.uniform(0, 0.002 * 2**attempt))  # noqa: S311 - jitter

    def _fetch(self, namespace: str, tickets: Sequence[_Ticket]) -> LedgerVersion | None:
        """Read the ledger; when that fails, nothing can be decided."""
        try:
            version = self._ledgers.fetch(namespace)
        except (ApiError, InvalidFieldError) as err:
            _close(tickets, _unreachable(err))
            return None
        if version is None:
            _close(tickets, NO_LEDGER)
        return version

    def _verdicts(
        self, known: Ledger | None, tickets: Sequence[_Ticket]
    ) -> tuple[Ledger | None, list[Verdict]]:
        """Decide the tickets in their order on one running ledger."""
        if known is None:
            return None, [NO_LEDGER for _ in tickets]
        kept_out = [self._kept_out(known, ticket) for ticket in tickets]
        claims = [
            ticket.claim for ticket, reason in zip(tickets, kept_out, strict=True) if reason is None
        ]
        following, decided = admit_all(known, claims)
        rest = iter(decided)
        return following, [next(rest) if reason is None else reason for reason in kept_out]

    def _kept_out(self, known: Ledger, ticket: _Ticket) -> Undecided | None:
        reservations = known.reservations
        if len(reservations) >= self._capacity and ticket.claim.uid not in reservations:
            return Undecided("the quota ledger holds as many reservations as it can")
        return not_counted(known, ticket.observed)

    def _settle(
        self,
        namespace: str,
        version: LedgerVersion,
        following: Ledger | None,
        tickets: Sequence[_Ticket],
        verdicts: Sequence[Verdict],
    ) -> None:
        """Write if there is something to write, and close what is final."""
        written: LedgerVersion | None = version
        if following is not None and any(isinstance(one, Admitted) for one in verdicts):
            written = self._write(namespace, version, following)
        standing = final_verdicts(verdicts, is_written=written is not None)
        for ticket, verdict in zip(tickets, standing, strict=True):
            if verdict is not None:
                number = 0 if written is None else written.resource_version
                ticket.outcome = _outcome(verdict, number)

    def _write(
        self, namespace: str, version: LedgerVersion, following: Ledger
    ) -> LedgerVersion | None:
        """Write by compare-and-swap; None when it failed or nobody knows whether it did."""
        try:
            written = self._ledgers.write(namespace, version, following)
        except (ConflictError, NotFoundError):
            self._stats.conflicted()
            return None
        except ApiError as err:
            _log.warning(
                "writing the ledger failed",
                extra={"namespace": namespace, "code": err.code, "error": err.message},
            )
            return None
        self._stats.batch_written(following.serial - (version.ledger or following).serial)
        return written


def _open(batch: Sequence[_Ticket]) -> list[_Ticket]:
    """Return the tickets without outcome; those that are out of time get theirs."""
    now = time.monotonic()
    for ticket in batch:
        if ticket.outcome is None and ticket.deadline <= now:
            ticket.outcome = _LATE
    return [ticket for ticket in batch if ticket.outcome is None]


def _close(tickets: Sequence[_Ticket], outcome: Outcome) -> None:
    for ticket in tickets:
        ticket.outcome = outcome


def _outcome(verdict: Verdict, ledger_version: int) -> Outcome:
    if isinstance(verdict, Admitted):
        return Reserved(ledger_version)
    if isinstance(verdict, Refused):
        return verdict.refusal
    return verdict


def _unreachable(err: ApiError | InvalidFieldError) -> Undecided:
    if isinstance(err, InvalidFieldError):
        return Undecided(f"the quota ledger cannot be read: {err}")
    return Undecided(f"the quota ledger cannot be reached: {err.message}")
