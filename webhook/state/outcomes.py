"""Give tickets their outcomes, and say what keeps claims undecided."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from webhook.cluster.api import ApiError
from webhook.quota.fields import InvalidFieldError
from webhook.quota.ledger import Admitted, Refused, Undecided, Verdict
from webhook.state.lanes import Outcome, Reserved, Ticket

BUSY: Final = Undecided("the quota ledger is busy")
FULL: Final = Undecided("the quota ledger holds as many reservations as it can")
LATE: Final = Undecided("the request's time ran out before its quota could be reserved")


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


def too_large(namespace: str) -> Undecided:
    """Say that a ledger cannot become larger."""
    return Undecided(f"the quota ledger of namespace {namespace} holds as much as one object can")
