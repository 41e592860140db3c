"""Decide claims by one version of a ledger, within what a ledger can hold.

Nothing is read or written here. What the quotas do not decide is kept out and stays undecided: a
claim that was made for other quotas than the ledger counts, that concerns a shared quota of which
nothing may be granted now, or for which the ledger has no room.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from webhook.quota.ledger import (
    NO_LEDGER,
    Admitted,
    Claim,
    Ledger,
    Undecided,
    Verdict,
    admit,
    admit_all,
    not_counted,
)
from webhook.quota.ledger_codec import written_bytes, written_bytes_of
from webhook.state.lanes import Ticket
from webhook.state.outcomes import FULL, too_large
from webhook.state.sharing import SharedMap, closed, reason_of


class Decider:
    """Decides tickets. Safe to use from many threads.

    Args:
        capacity: Says how many reservations a namespace may have; further claims are undecided.
        most_bytes: How large a ledger may become; what makes it larger is undecided.
        opted_in_at: Says by which version of a Namespace it opted in, as far as is known; a ledger
            that was counted before decides nothing.
    """

    def __init__(
        self, capacity: Callable[[], int], most_bytes: int, opted_in_at: Callable[[str], int]
    ) -> None:
        self._capacity = capacity
        self._most_bytes = most_bytes
        self._opted_in_at = opted_in_at

    def verdicts(
        self, namespace: str, known: Ledger | None, tickets: Sequence[Ticket], seen: SharedMap
    ) -> tuple[Ledger | None, list[Verdict]]:
        """Decide the tickets in their order on one running ledger.

        Args:
            namespace: The namespace.
            known: Its ledger, with what other namespaces hold; None where there is none.
            tickets: What is asked.
            seen: The shared quotas that the ledger counts, as they were looked up.

        Returns:
            The ledger that follows, and a verdict for each ticket.
        """
        if known is None:
            return None, [NO_LEDGER for _ in tickets]
        kept_out = self._kept_out(namespace, known, tickets, seen)
        following, verdicts = _decided(known, tickets, kept_out)
        if written_bytes(following) > self._most_bytes:
            kept_out = self._without_room(namespace, known, tickets, kept_out)
            following, verdicts = _decided(known, tickets, kept_out)
        return following, verdicts

    def _kept_out(
        self, namespace: str, known: Ledger, tickets: Sequence[Ticket], seen: SharedMap
    ) -> list[Undecided | None]:
        """Say of each ticket why it cannot be decided; None where it can."""
        since = self._opted_in_at(namespace)
        shut = closed(namespace, known, seen) if seen else {}
        is_full = len(known.reservations) >= self._capacity()
        return [
            FULL
            if is_full and ticket.claim.uid not in known.reservations
            else not_counted(known, ticket.observed, since=since)
            or reason_of(ticket.claim, known, shut)
            for ticket in tickets
        ]

    def _without_room(
        self,
        namespace: str,
        known: Ledger,
        tickets: Sequence[Ticket],
        kept_out: Sequence[Undecided | None],
    ) -> list[Undecided | None]:
        """Keep the newest claims out that would make the ledger larger than an object can be."""
        room = max(0, self._most_bytes - written_bytes(known))
        out: list[Undecided | None] = []
        for ticket, reason in zip(tickets, kept_out, strict=True):
            growth = 0 if reason is not None else _growth_of(known, ticket.claim)
            out.append(too_large(namespace) if growth > room else reason)
            room -= growth if growth <= room else 0
        return out


def _decided(
    known: Ledger, tickets: Sequence[Ticket], kept_out: Sequence[Undecided | None]
) -> tuple[Ledger, list[Verdict]]:
    """Decide the tickets for which there is no reason not to."""
    pairs = list(zip(tickets, kept_out, strict=True))
    following, verdicts = admit_all(
        known, [ticket.claim for ticket, reason in pairs if reason is None]
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
