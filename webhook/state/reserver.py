"""Decide claims on the ledger of a namespace, together and with one write (group commit).

Requests of a namespace that arrive while a write is on its way are decided afterwards as one
batch. The thread of one of them leads: it does the work for all, and hands the lead over when its
batch is done and others are pending.

Every outcome is one of three: reserved, denied, undecided. A denial rests on a ledger that was
read after the request arrived. An admission rests on the ledger that its write replaced. An
answer of the API server that got lost leaves everything undecided; reading again shows what
became of the write, and a reservation that is there is not made twice.

A request that claims nothing is compared with the ledger too (`verify_uncharged`): it may count
quotas that are not seen here yet.

Where a quota is shared with other namespaces, admissions are first written there, with one write
for all namespaces that come together (`grant_raising`); the ledgers are written after that, each
by its own thread. A denial then rests on both objects.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ApiError, ConflictError, NotFoundError, TooLargeError
from webhook.quota.ledger.ledger import (
    NO_LEDGER,
    Admitted,
    Claim,
    Ledger,
    QuotaRevision,
    Undecided,
    check_observed,
    final_verdicts,
)
from webhook.quota.shared.escrow import Raise, granting, growth, is_granted, raises, shared_names
from webhook.state.batch_decision import (
    HEADROOM_HELD,
    Batch,
    BatchDecider,
    Decision,
    outcome_of,
    too_large,
    unreachable,
)
from webhook.state.grant_raising import (
    NO_SHARED_QUOTAS,
    GrantRaiser,
    PendingRaise,
    SharedLookups,
    look_up,
    look_up_shared,
    recall_headroom,
    shared_of,
    with_other_namespaces,
)
from webhook.state.group_commit import (
    DEADLINE_EXCEEDED,
    CommitQueue,
    CommitQueues,
    Lead,
    Outcome,
    PendingClaim,
    Reserved,
)
from webhook.state.ledger_store import LedgerStore, LedgerVersion

__all__ = ["Outcome", "Reserved", "Reserver", "ReserverStats"]

_log = logging.getLogger(__name__)

_BATCH_SECONDS: Final = 0.01
"""How long a batch may grow before it is decided: each write costs the API server as much as the
decisions of many, and leaves the controller a moment for its own."""
_MAX_SHARED_ATTEMPTS: Final = 6
"""How often a version of a ledger is decided on while others write a quota that it shares."""
_WRITE_SECONDS: Final = 0.5
"""The part of a request's time that is kept for the writes, when it waits for a shared quota."""


@dataclass(frozen=True, slots=True)
class ReserverStats:
    """Reports of the reserver as it works; each is called without locks held."""

    batch_written: Callable[[int], None] = lambda _claims: None
    conflicted: Callable[[], None] = lambda: None
    waited: Callable[[float], None] = lambda _seconds: None
    """Seconds until a claim was taken to be decided, or its time was over."""


@dataclass(frozen=True, slots=True)
class _Ledger:
    """A version of a namespace's ledger that claims are decided by."""

    namespace: str
    version: LedgerVersion
    is_fresh: bool
    """It was read after the claims arrived, so it may deny them; a cached one may be outdated."""


@dataclass(slots=True, eq=False)
class _Round:
    """Claims that are decided once by one version of a ledger."""

    decider: BatchDecider
    ledger: _Ledger
    known: Ledger
    """What the ledger says."""
    claims: Sequence[PendingClaim]
    decision: Decision = field(init=False)
    """Made by `decide`."""
    lookups: SharedLookups = field(init=False)
    """What it was made by."""

    @property
    def is_final(self) -> bool:
        """Whether the ledger is new enough for the decision: a cached one may only admit."""
        return self.ledger.is_fresh or self.decision.is_admission_only

    def decide(self, lookups: SharedLookups) -> Mapping[str, Raise]:
        """Decide by a version of every shared quota; return what has to be granted."""
        namespace, self.lookups = self.ledger.namespace, lookups
        known = with_other_namespaces(self.known, namespace, lookups)
        self.decision = self.decider.decide(namespace, known, self.claims, lookups)
        if self.decision.status is None or not self.is_final:
            return {}
        following = self.decision.following
        needed = growth(known, following, sorted(lookups))
        if not needed:
            return {}
        wanted = raises(needed, following, namespace, shared_of(lookups))
        granted = {name: one.held for name, one in wanted.items()}
        self.decision = self.decision.with_following(granting(following, granted))
        return wanted


@dataclass(frozen=True, slots=True)
class _Settled:
    """All that this version of the ledger can decide has its outcome."""


@dataclass(frozen=True, slots=True)
class _Stale:
    """The cached version does not admit all claims, and only one that is read now may deny."""


@dataclass(frozen=True, slots=True)
class _Contended:
    """A shared quota was written by another process first; the version of the ledger stands."""


_Attempt: TypeAlias = _Settled | _Stale | _Contended


class Reserver:
    """Reservations in the ledgers, on behalf of the handlers. Safe to use from many threads.

    Args:
        ledgers: Where ledgers are read and written.
        raiser: Raises what the namespaces hold of quotas that they share.
        decider: Decides a batch by one version of a ledger.
        attempts: How often a batch is decided before it is given up as busy.
        stats: Receives batches and conflicts.
        sleep: Waits some seconds between attempts.
        queues: The claims that wait, per namespace.
    """

    def __init__(
        self,
        ledgers: LedgerStore,
        raiser: GrantRaiser,
        *,
        decider: BatchDecider | None = None,
        attempts: int = 6,
        stats: ReserverStats | None = None,
        sleep: Callable[[float], None] = time.sleep,
        queues: CommitQueues[PendingClaim] | None = None,
    ) -> None:
        self._ledgers = ledgers
        self._attempts = attempts
        self._decider = decider or BatchDecider()
        self._stats = stats or ReserverStats()
        self._raiser = raiser
        self._sleep = sleep
        self._queues: CommitQueues[PendingClaim] = CommitQueues() if queues is None else queues

    def reserve(
        self, namespace: str, claim: Claim, observed: frozenset[QuotaRevision], *, deadline: float
    ) -> Outcome:
        """Reserve what `claim` asks, or return why not.

        Args:
            claim: What is asked.
            observed: The quotas of the namespace as the caller knows them; the claim was made
                for these.
            deadline: When to give up, on the monotonic clock.
        """
        own = PendingClaim(claim, observed, deadline)
        queue = self._queues.join(namespace, own)
        is_first = own.signal.done()
        if not self._queues.wait(queue, own):
            self._stats.waited(time.monotonic() - own.since)
            return DEADLINE_EXCEEDED
        match own.signal.result():
            case Lead():
                # Many claims have come during the last write. A short wait gathers more of them
                # into this one.
                if not is_first and self._queues.is_crowded(queue):
                    self._sleep(_BATCH_SECONDS)
                return self._commit_batch(queue, own)
            case outcome:
                return outcome

    def dry_run(self, namespace: str, claim: Claim, observed: frozenset[QuotaRevision]) -> Outcome:
        """Decide as `reserve` would, on the ledger as it is now, and write nothing."""
        try:
            version = self._ledgers.fetch(namespace)
        except (ApiError, InvalidFieldError) as err:
            return unreachable(err)
        if version is None or version.ledger is None:
            return NO_LEDGER
        names = shared_names(version.ledger)
        lookups = look_up(self._raiser.store, names, is_fresh=True)
        known = with_other_namespaces(version.ledger, namespace, lookups)
        pending = PendingClaim(claim, observed, deadline=0.0)
        decision = self._decider.decide(namespace, known, [pending], lookups)
        if decision.is_recalling:
            return HEADROOM_HELD
        return outcome_of(decision.verdicts[0], version.resource_version)

    def verify_uncharged(
        self, namespace: str, observed: frozenset[QuotaRevision]
    ) -> Undecided | None:
        """Return why nothing may pass uncharged by the ledger as it is now; None if it may.

        The ledger may count other quotas than the caller knows, and those might charge what is
        asked. Where neither has any, there is nothing to count.
        """
        try:
            version = self._ledgers.fetch(namespace)
        except (ApiError, InvalidFieldError) as err:
            return unreachable(err)
        known = None if version is None else version.ledger
        return check_observed(known, observed) if known or observed else None

    def _commit_batch(self, queue: CommitQueue[PendingClaim], own: PendingClaim) -> Outcome:
        """Decide all pending claims as their leader, then hand the lead over."""
        batch = Batch(self._queues.take_batch(queue))
        now = time.monotonic()
        for pending in batch.claims:
            self._stats.waited(now - pending.since)
        try:
            self._decide(queue.name, batch)
        except Exception:
            _log.exception("deciding a batch failed", extra={"namespace": queue.name})
            raise
        finally:
            # The lead first: its next holder reads and decides while this thread wakes the others.
            self._queues.pass_leadership(queue)
            for pending in batch.claims:
                if pending is not own:
                    pending.signal.set_result(batch.outcome(pending))
        return batch.outcome(own)

    def _decide(self, namespace: str, batch: Batch) -> None:
        """Return every claim of the batch its outcome, as far as attempts and time go.

        The first attempt is made by the cached version, which most often is the newest: then a
        bind costs one write and no read. An outdated one is found out by the write's conflict,
        or does not admit all; the next attempt reads.
        """
        cached = self._ledgers.known(namespace)
        ledger = None if cached is None else _Ledger(namespace, cached, is_fresh=False)
        for number in range(self._attempts):
            claims = batch.undecided()
            if not claims:
                return
            if ledger is None:
                ledger = self._read(namespace, batch)
            if ledger is None:
                return
            match self._attempt(ledger, batch, claims):
                case _Stale():
                    pass  # no write has failed, so there is no contention to back off from
                case _Settled() | _Contended():
                    if number and batch.undecided():
                        self._back_off(number)
            ledger = None

    def _read(self, namespace: str, batch: Batch) -> _Ledger | None:
        """Read the ledger; where there is none to decide by, the batch is settled."""
        try:
            version = self._ledgers.fetch(namespace)
        except (ApiError, InvalidFieldError) as err:
            batch.settle(batch.claims, unreachable(err))
            return None
        if version is None:
            batch.settle(batch.claims, NO_LEDGER)
            return None
        return _Ledger(namespace, version, is_fresh=True)

    def _attempt(self, ledger: _Ledger, batch: Batch, claims: Sequence[PendingClaim]) -> _Attempt:
        """Decide claims by one version of the ledger, however often a shared quota changes."""
        known = ledger.version.ledger
        if known is None:
            if not ledger.is_fresh:
                return _Stale()
            batch.settle(claims, NO_LEDGER)
            return _Settled()
        names = shared_names(known)
        one = _Round(self._decider, ledger, known, claims)
        if self._decides_alone(one, names):
            return self._conclude(one, batch)
        until = max(pending.deadline for pending in claims) - _WRITE_SECONDS
        for number in range(_MAX_SHARED_ATTEMPTS):
            one = _Round(self._decider, ledger, known, claims)
            # the first that fails shows that the cached shared quota is outdated
            is_fresh = ledger.is_fresh or number > 0
            wanted = PendingRaise(ledger.namespace, names, one.decide, is_fresh, until)
            if self._raiser.carry_out(wanted):
                return self._conclude(one, batch)
            self._stats.conflicted()
            if time.monotonic() >= until:
                break
            self._back_off(number)
            claims = batch.undecided()
            if not claims:
                return _Settled()
        return _Contended()

    def _decides_alone(self, one: _Round, names: Sequence[str]) -> bool:
        """Decide claims where nothing has to be granted for them; return whether that is so.

        Of shared quotas all have to be admitted by what the namespace holds already. No lock is
        waited for. The quotas are read for it: what runs unasked may have been counted beyond a
        limit since they were.
        """
        if not names:
            one.decide(NO_SHARED_QUOTAS)
            return True
        if not is_granted(one.known, [pending.claim for pending in one.claims], names):
            return False
        wanted = one.decide(look_up_shared(self._raiser.store, names))
        return not wanted and one.decision.is_admission_only

    def _conclude(self, one: _Round, batch: Batch) -> _Attempt:
        """Write the ledger that was decided, now that what it needs is granted."""
        ledger, claims, decision = one.ledger, one.claims, one.decision
        if not one.is_final:
            return _Stale()
        if decision.is_recalling:
            recall_headroom(self._raiser.store, ledger.namespace, one.lookups)
        if decision.status is None:
            _settle_final(batch, claims, decision, ledger.version)
            return _Settled()
        try:
            written = self._write(one)
        except TooLargeError:
            admitted = zip(claims, decision.verdicts, strict=True)
            batch.settle(
                [pending for pending, verdict in admitted if isinstance(verdict, Admitted)],
                too_large(ledger.namespace),
            )
            written = None
        _settle_final(batch, claims, decision, written)
        return _Settled()

    def _write(self, one: _Round) -> LedgerVersion | None:
        """Write by compare-and-swap; None when it failed, or it is not known whether it did.

        Raises:
            TooLargeError: The object would be larger than the API server stores.
        """
        ledger, following = one.ledger, one.decision.following
        try:
            written = self._ledgers.write(
                ledger.namespace, ledger.version, following, status=one.decision.status
            )
        except (ConflictError, NotFoundError):
            self._stats.conflicted()
            return None
        except ApiError as err:
            _log.warning(
                "writing the ledger failed",
                extra={"namespace": ledger.namespace, "code": err.code, "error": err.message},
            )
            if isinstance(err, TooLargeError):
                raise
            return None
        self._stats.batch_written(following.serial - one.known.serial)
        return written

    def _back_off(self, number: int) -> None:
        self._sleep(random.uniform(0, 0.002 * 2**number))  # noqa: S311 - jitter


def _settle_final(
    batch: Batch,
    claims: Sequence[PendingClaim],
    decision: Decision,
    written: LedgerVersion | None,
) -> None:
    """Return the claims their outcome whose verdict is final; `written` is None if nothing was.

    What is not written admits nothing, and denies nothing that rests on an admission; those
    claims are decided again. The other denials rest on what was read, and stand (law 8).
    """
    standing = final_verdicts(decision.verdicts, is_written=written is not None)
    number = 0 if written is None else written.resource_version
    for pending, verdict in zip(claims, standing, strict=True):
        if verdict is not None:
            batch.settle([pending], outcome_of(verdict, number))
