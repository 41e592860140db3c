"""Decisions on a batch of claims by one version of a ledger, within what it can hold.

Nothing is read or written here. What the quotas do not decide is kept out and stays undecided: a
claim that was made for other quotas than the ledger counts, that concerns a shared quota of which
nothing may be granted now, or for which the ledger has no room.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ApiError
from webhook.quota.ledger.ledger import (
    NO_LEDGER,
    Admitted,
    Claim,
    Denied,
    Ledger,
    Undecided,
    Verdict,
    admit,
    admit_all,
    check_observed,
)
from webhook.quota.ledger.ledger_codec import written_bytes, written_bytes_of
from webhook.state.group_commit import Outcome, PendingClaim, Reserved
from webhook.state.shared_claims import SharedLookups, blocking_reason, unavailable

LEDGER_BUSY: Final = Undecided("the quota ledger is busy")
LEDGER_FULL: Final = Undecided("the quota ledger holds as many reservations as it can")
DEADLINE_EXCEEDED: Final = Undecided(
    "the request's time ran out before its quota could be reserved"
)


class BatchDecider:
    """Decides claims. Safe to use from many threads.

    Args:
        capacity: Says how many reservations a namespace may have; further claims are undecided.
        max_bytes: How large a ledger may become; what makes it larger is undecided.
        opted_in_at: Says by which version of a Namespace it opted in, as far as is known; a ledger
            that was counted before decides nothing.
    """

    def __init__(
        self, capacity: Callable[[], int], max_bytes: int, opted_in_at: Callable[[str], int]
    ) -> None:
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._opted_in_at = opted_in_at

    def verdicts(
        self,
        namespace: str,
        ledger: Ledger | None,
        claims: Sequence[PendingClaim],
        lookups: SharedLookups,
    ) -> tuple[Ledger | None, list[Verdict]]:
        """Decide the claims in their order on one running ledger.

        Args:
            namespace: The namespace.
            ledger: Its ledger, with what other namespaces hold; None where there is none.
            claims: What is asked.
            lookups: The shared quotas that the ledger counts, as they were looked up.

        Returns:
            The ledger that follows, and a verdict for each claim.
        """
        if ledger is None:
            return None, [NO_LEDGER for _ in claims]
        kept_out = self._undecidable(namespace, ledger, claims, lookups)
        following, verdicts = _decided(ledger, claims, kept_out)
        if written_bytes(following) > self._max_bytes:
            kept_out = self._oversized(namespace, ledger, claims, kept_out)
            following, verdicts = _decided(ledger, claims, kept_out)
        return following, verdicts

    def _undecidable(
        self, namespace: str, known: Ledger, claims: Sequence[PendingClaim], lookups: SharedLookups
    ) -> list[Undecided | None]:
        """Say of each claim why it cannot be decided; None where it can."""
        since = self._opted_in_at(namespace)
        unavailable_quotas = unavailable(namespace, known, lookups) if lookups else {}
        is_full = len(known.reservations) >= self._capacity()
        return [
            LEDGER_FULL
            if is_full and pending.claim.uid not in known.reservations
            else check_observed(known, pending.observed, since=since)
            or blocking_reason(pending.claim, known, unavailable_quotas)
            for pending in claims
        ]

    def _oversized(
        self,
        namespace: str,
        known: Ledger,
        claims: Sequence[PendingClaim],
        kept_out: Sequence[Undecided | None],
    ) -> list[Undecided | None]:
        """Keep the newest claims out that would make the ledger larger than an object can be."""
        room = max(0, self._max_bytes - written_bytes(known))
        out: list[Undecided | None] = []
        for pending, reason in zip(claims, kept_out, strict=True):
            growth = 0 if reason is not None else _growth_of(known, pending.claim)
            out.append(too_large(namespace) if growth > room else reason)
            room -= growth if growth <= room else 0
        return out


def _decided(
    known: Ledger, claims: Sequence[PendingClaim], kept_out: Sequence[Undecided | None]
) -> tuple[Ledger, list[Verdict]]:
    """Decide the claims for which there is no reason not to."""
    pairs = list(zip(claims, kept_out, strict=True))
    following, verdicts = admit_all(
        known, [pending.claim for pending, reason in pairs if reason is None]
    )
    rest = iter(verdicts)
    return following, [next(rest) if reason is None else reason for reason in kept_out]


def _growth_of(known: Ledger, claim: Claim) -> int:
    """Return by how many bytes a claim would make the ledger larger, if it fits its quotas."""
    _, verdict = admit(known, claim)
    if not isinstance(verdict, Admitted):
        return 0
    before = known.reservations.get(claim.uid)
    grown = written_bytes_of(verdict.reservation)
    return max(0, grown - (0 if before is None else written_bytes_of(before)))


def unresolved(batch: Sequence[PendingClaim]) -> list[PendingClaim]:
    """Return the claims without outcome; those that are out of time get theirs."""
    now = time.monotonic()
    for pending in batch:
        if pending.outcome is None and pending.deadline <= now:
            pending.outcome = DEADLINE_EXCEEDED
    return [pending for pending in batch if pending.outcome is None]


def resolve(claims: Sequence[PendingClaim], outcome: Outcome) -> None:
    """Give claims their outcome."""
    for pending in claims:
        pending.outcome = outcome


def outcome_of(verdict: Verdict, ledger_version: int) -> Outcome:
    """Return what a verdict is to who asked; a refusal or a doubt is its own outcome."""
    if isinstance(verdict, Admitted):
        return Reserved(ledger_version)
    if isinstance(verdict, Denied):
        return verdict.denial
    return verdict


def unreachable(err: ApiError | InvalidFieldError) -> Undecided:
    """Say that the ledger cannot be had."""
    if isinstance(err, InvalidFieldError):
        return Undecided(f"the quota ledger cannot be read: {err}")
    return Undecided(f"the quota ledger cannot be reached: {err.message}")


def too_large(namespace: str) -> Undecided:
    """Say that a ledger cannot become larger."""
    return Undecided(f"the quota ledger of namespace {namespace} holds as much as one object can")
