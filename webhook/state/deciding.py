"""Decide tickets on a ledger, and give them their outcomes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from webhook.cluster.api import ApiError
from webhook.quota.fields import InvalidFieldError
from webhook.quota.ledger import (
    Admitted,
    Claim,
    Ledger,
    Refused,
    Undecided,
    Verdict,
    admit,
    admit_all,
)
from webhook.quota.ledger_codec import written_bytes_of
from webhook.state.lanes import Outcome, Reserved, Ticket

LATE: Final = Undecided("the request's time ran out before its quota could be reserved")


def decided(
    known: Ledger, tickets: Sequence[Ticket], kept_out: Sequence[Undecided | None]
) -> tuple[Ledger, list[Verdict]]:
    """Decide the tickets for which there is no reason not to."""
    pairs = list(zip(tickets, kept_out, strict=True))
    following, verdicts = admit_all(
        known, [ticket.claim for ticket, reason in pairs if reason is None]
    )
    rest = iter(verdicts)
    return following, [next(rest) if reason is None else reason for reason in kept_out]


def growth_of(known: Ledger, claim: Claim) -> int:
    """Return by how many bytes a claim would make the ledger larger, if it fits its quotas."""
    _, verdict = admit(known, claim)
    if not isinstance(verdict, Admitted):
        return 0
    before = known.reservations.get(claim.uid)
    grown = written_bytes_of(verdict.reservation)
    return max(0, grown - (0 if before is None else written_bytes_of(before)))


def too_large(namespace: str) -> Undecided:
    """Say that a ledger cannot become larger."""
    return Undecided(f"the quota ledger of namespace {namespace} holds as much as one object can")


def still_open(batch: Sequence[Ticket]) -> list[Ticket]:
    """Return the tickets without outcome; those that are out of time get theirs."""
    now = time.monotonic()
    for ticket in batch:
        if ticket.outcome is None and ticket.deadline <= now:
            ticket.outcome = LATE
    return [ticket for ticket in batch if ticket.outcome is None]


def close(tickets: Sequence[Ticket], outcome: Outcome) -> None:
    """Give tickets their outcome."""
    for ticket in tickets:
        ticket.outcome = outcome


def outcome_of(verdict: Verdict, ledger_version: int) -> Outcome:
    """Return what a verdict is to who asked; a refusal or a doubt is its own outcome."""
    if isinstance(verdict, Admitted):
        return Reserved(ledger_version)
    if isinstance(verdict, Refused):
        return verdict.refusal
    return verdict


def unreachable(err: ApiError | InvalidFieldError) -> Undecided:
    """Say that the ledger cannot be had."""
    if isinstance(err, InvalidFieldError):
        return Undecided(f"the quota ledger cannot be read: {err}")
    return Undecided(f"the quota ledger cannot be reached: {err.message}")
