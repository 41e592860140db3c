"""Decide claims on the ledger of a namespace, together and with one write.

Requests of a namespace that arrive while a write is on its way wait for it and are then decided
as one batch. The thread of one of them does the work for all; when it is done with its own batch
and others wait, it hands the work over.

Every answer is one of three: reserved, refused, undecided. A refusal rests on a ledger that was
read after the request arrived. An admission rests on the ledger that its write replaced. An
answer of the API server that got lost leaves everything undecided; reading again shows what
became of the write, and a reservation that is there is not made twice.

Who finds nothing to claim asks too (`verify_uncharged`): the ledger may know better.

Where a quota is shared with other namespaces, what is admitted is first written there
(`shared_claims`); whoever does so keeps others of this process waiting, so that they do not make
each other begin again. A refusal then rests on both objects.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ApiError, ConflictError, NotFoundError, TooLargeError
from webhook.quota.ledger.ledger import (
    NO_LEDGER,
    Admitted,
    Claim,
    Ledger,
    QuotaRevision,
    Undecided,
    Verdict,
    check_observed,
    final_verdicts,
)
from webhook.quota.shared.escrow import shared_names
from webhook.state.batch_decision import (
    DEADLINE_EXCEEDED,
    LEDGER_BUSY,
    BatchDecider,
    outcome_of,
    resolve,
    too_large,
    unreachable,
    unresolved,
)
from webhook.state.group_commit import CommitQueue, CommitQueues, Outcome, PendingClaim, Reserved
from webhook.state.ledgers import LedgerStore, LedgerVersion
from webhook.state.shared_claims import (
    NO_SHARED_QUOTAS,
    SharedLookups,
    look_up,
    raise_grants,
    with_other_namespaces,
)
from webhook.state.shared_quotas import SharedQuotaLookup, SharedQuotaStore

__all__ = ["Outcome", "Reserved", "Reserver", "ReserverStats"]

_log = logging.getLogger(__name__)

_BATCH_SECONDS: Final = 0.01
"""How long a crowd may grow before it is decided: each write costs the API server as much as the
decisions of many, and leaves the controller a moment for its own."""
_MAX_SHARED_ATTEMPTS: Final = 6
"""How often a version of a ledger is decided on while others write a quota that it shares."""
_WRITE_SECONDS: Final = 0.5
"""What is left of a request's time for the writes, when it has waited for a shared quota."""
MAX_LEDGER_BYTES: Final = 1_280 * 1024
"""Of a ledger's status as JSON. etcd takes 1.5 MiB by default, metadata included."""


@dataclass(frozen=True, slots=True)
class ReserverStats:
    """What the reserver reports as it works; each is called without locks held."""

    batch_written: Callable[[int], None] = lambda _claims: None
    conflicted: Callable[[], None] = lambda: None


class Reserver:
    """The handlers' way to the ledger. Safe to use from many threads.

    Args:
        ledgers: Where ledgers are read and written.
        attempts: How often a batch is decided before it is given up as busy.
        capacity: Says how many reservations a namespace may have; further claims are undecided.
        max_bytes: How large a ledger may become; what makes it larger is undecided.
        opted_in_at: Says by which version of a Namespace it opted in, as far as is known; a ledger
            that was counted before decides nothing.
        stats: Told about batches and conflicts.
        shared: Where quotas that namespaces share are read and written; without it, what such a
            quota is about stays undecided.
        sleep: Waits some seconds between attempts.
    """

    def __init__(  # noqa: PLR0913 - the parts of one process, wired in one place
        self,
        ledgers: LedgerStore,
        *,
        attempts: int = 6,
        capacity: Callable[[], int] = lambda: 4000,
        max_bytes: int = MAX_LEDGER_BYTES,
        opted_in_at: Callable[[str], int] = lambda _namespace: 0,
        stats: ReserverStats | None = None,
        shared: SharedQuotaStore | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._ledgers = ledgers
        self._attempts = attempts
        self._decider = BatchDecider(capacity, max_bytes, opted_in_at)
        self._stats = stats or ReserverStats()
        self._shared = shared
        self._sleep = sleep
        self._queues = CommitQueues()

    def reserve(
        self, namespace: str, claim: Claim, observed: frozenset[QuotaRevision], *, deadline: float
    ) -> Outcome:
        """Reserve what `claim` asks, or say why not.

        Args:
            namespace: The pod's namespace.
            claim: What is asked.
            observed: The quotas of the namespace as the caller knows them; the claim was made
                for these.
            deadline: When to give up, on the monotonic clock.
        """
        pending = PendingClaim(claim, observed, deadline)
        queue = self._queues.join(namespace, pending)
        if not pending.is_leader:
            is_woken = pending.wake_lock.acquire(timeout=max(0.0, deadline - time.monotonic()))
            if pending.outcome is not None:
                return pending.outcome
            if not self._queues.leave(queue, pending):
                return DEADLINE_EXCEEDED
            if not is_woken:
                pending.wake_lock.acquire()  # who handed the lead over is about to wake it
            if self._queues.is_crowded(queue):
                self._sleep(_BATCH_SECONDS)
        return self._commit_batch(queue, pending)

    def dry_run(self, namespace: str, claim: Claim, observed: frozenset[QuotaRevision]) -> Outcome:
        """Decide as `reserve` would, on the ledger as it is now, and write nothing."""
        try:
            version = self._ledgers.fetch(namespace)
        except (ApiError, InvalidFieldError) as err:
            return unreachable(err)
        pending = PendingClaim(claim, observed, deadline=0.0)
        known, number = (version.ledger, version.resource_version) if version else (None, 0)
        lookups = self._look_up(shared_names(known), is_fresh=True)
        if known is not None:
            known = with_other_namespaces(known, namespace, lookups)
        _, verdicts = self._decider.verdicts(namespace, known, [pending], lookups)
        return outcome_of(verdicts[0], number)

    def verify_uncharged(
        self, namespace: str, observed: frozenset[QuotaRevision]
    ) -> Undecided | None:
        """Say why nothing may pass uncharged, if the ledger as it is now says so.

        It does where it counts other quotas than the caller knows: those might charge what is
        asked. Where neither has any, there is nothing to count.
        """
        try:
            version = self._ledgers.fetch(namespace)
        except (ApiError, InvalidFieldError) as err:
            return unreachable(err)
        known = None if version is None else version.ledger
        return check_observed(known, observed) if known or observed else None

    def _commit_batch(self, queue: CommitQueue, own: PendingClaim) -> Outcome:
        """Decide everything that waits, then hand over to the next or leave the queue."""
        batch = self._queues.take_batch(queue)
        try:
            self._decide(queue.namespace, batch)
        except Exception:
            _log.exception("deciding a batch failed", extra={"namespace": queue.namespace})
            raise
        finally:
            self._queues.pass_leadership(queue)
            for pending in batch:
                if pending.outcome is None:
                    pending.outcome = LEDGER_BUSY
                pending.wake_lock.release()
        return own.outcome or LEDGER_BUSY

    def _decide(self, namespace: str, batch: Sequence[PendingClaim]) -> None:
        """Give every claim of the batch its outcome."""
        version = self._ledgers.known(namespace)
        is_fresh = False
        for attempt in range(self._attempts):
            waiting = unresolved(batch)
            if not waiting:
                return
            if version is None:
                version, is_fresh = self._fetch(namespace, waiting), True
                if version is None:
                    return
            is_done = self._attempt(namespace, version, waiting, is_fresh=is_fresh)
            version = None
            if not is_done:
                continue  # only what is read now may refuse or hold back
            is_fresh = False
            if attempt and unresolved(batch):
                self._sleep(random.uniform(0, 0.002 * 2**attempt))  # noqa: S311 - jitter

    def _attempt(
        self,
        namespace: str,
        version: LedgerVersion,
        claims: Sequence[PendingClaim],
        *,
        is_fresh: bool,
    ) -> bool:
        """Decide the claims by one version of the ledger; False when it has to be read first."""
        names = shared_names(version.ledger)
        if not names or self._shared is None:
            lookups = self._look_up(names, is_fresh=False)
            return (
                self._decide_on(namespace, version, lookups, claims, is_fresh=is_fresh) is not False
            )
        until = max(pending.deadline for pending in claims) - _WRITE_SECONDS
        with self._shared.locked(names, until=until) as is_held:
            for turn in range(_MAX_SHARED_ATTEMPTS if is_held else 0):
                lookups = self._look_up(names, is_fresh=is_fresh or turn > 0)
                is_done = self._decide_on(namespace, version, lookups, claims, is_fresh=is_fresh)
                if is_done is not None:
                    return is_done
                self._sleep(random.uniform(0, 0.002 * 2**turn))  # noqa: S311 - jitter
                claims = unresolved(claims)
                if not claims:
                    return True
        return True

    def _look_up(self, names: Sequence[str], *, is_fresh: bool) -> SharedLookups:
        if not names:
            return NO_SHARED_QUOTAS
        if self._shared is None:
            return dict.fromkeys(names, SharedQuotaLookup(None))
        return look_up(self._shared, names, is_fresh=is_fresh)

    def _decide_on(
        self,
        namespace: str,
        version: LedgerVersion,
        lookups: SharedLookups,
        claims: Sequence[PendingClaim],
        *,
        is_fresh: bool,
    ) -> bool | None:
        """Decide as `_attempt`; None when a shared quota was written by somebody else first.

        The ledger's version stands then, and may be decided on again with what was written.
        """
        known = version.ledger
        if known is not None:
            known = with_other_namespaces(known, namespace, lookups)
        following, verdicts = self._decider.verdicts(namespace, known, claims, lookups)
        if not is_fresh and not all(isinstance(one, Admitted) for one in verdicts):
            return False
        is_admitting = any(isinstance(one, Admitted) for one in verdicts)
        if lookups and is_admitting and known is not None and following is not None:
            following = self._raise_grants(namespace, known, following, lookups)
            if following is None:
                self._resolve_final(claims, verdicts, None, is_written=False)
                return None
        self._write_and_resolve(namespace, version, following, claims, verdicts)
        return True

    def _raise_grants(
        self, namespace: str, known: Ledger, following: Ledger, lookups: SharedLookups
    ) -> Ledger | None:
        if self._shared is None:
            return None
        granted = raise_grants(self._shared, namespace, known, following, lookups)
        if granted is None:
            self._stats.conflicted()
        return granted

    def _fetch(self, namespace: str, claims: Sequence[PendingClaim]) -> LedgerVersion | None:
        """Read the ledger; when that fails, nothing can be decided."""
        try:
            version = self._ledgers.fetch(namespace)
        except (ApiError, InvalidFieldError) as err:
            resolve(claims, unreachable(err))
            return None
        if version is None:
            resolve(claims, NO_LEDGER)
        return version

    def _write_and_resolve(
        self,
        namespace: str,
        version: LedgerVersion,
        following: Ledger | None,
        claims: Sequence[PendingClaim],
        verdicts: Sequence[Verdict],
    ) -> None:
        """Write if there is something to write, and close what is final."""
        written: LedgerVersion | None = version
        if following is not None and any(isinstance(one, Admitted) for one in verdicts):
            try:
                written = self._write(namespace, version, following)
            except TooLargeError:
                admitted = zip(claims, verdicts, strict=True)
                resolve(
                    [pending for pending, verdict in admitted if isinstance(verdict, Admitted)],
                    too_large(namespace),
                )
                written = None
        self._resolve_final(claims, verdicts, written, is_written=written is not None)

    @staticmethod
    def _resolve_final(
        claims: Sequence[PendingClaim],
        verdicts: Sequence[Verdict],
        written: LedgerVersion | None,
        *,
        is_written: bool,
    ) -> None:
        """Give the claims their outcome whose verdict stands."""
        standing = final_verdicts(verdicts, is_written=is_written)
        for pending, verdict in zip(claims, standing, strict=True):
            if verdict is not None and pending.outcome is None:
                number = 0 if written is None else written.resource_version
                pending.outcome = outcome_of(verdict, number)

    def _write(
        self, namespace: str, version: LedgerVersion, following: Ledger
    ) -> LedgerVersion | None:
        """Write by compare-and-swap; None when it failed or nobody knows whether it did.

        Raises:
            TooLargeError: The object would be larger than the API server stores.
        """
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
            if isinstance(err, TooLargeError):
                raise
            return None
        self._stats.batch_written(following.sequence - (version.ledger or following).sequence)
        return written
