"""Decisions on a batch of claims by one version of a ledger, within what it can hold.

Nothing is read or written here. What the quotas do not decide is kept out and stays undecided: a
claim that was made for other quotas than the ledger counts, that concerns a shared quota of which
nothing may be granted now, or for which the ledger has no room.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ApiError
from webhook.quota.ledger.ledger import (
    Admitted,
    Claim,
    Denied,
    Ledger,
    ReservationSource,
    Undecided,
    Verdict,
    admit,
    admit_all,
    check_observed,
)
from webhook.quota.ledger.ledger_codec import EncodedStatus, encode_status, written_bytes_of
from webhook.quota.ledger.ledger_room import MAX_LEDGER_BYTES, is_for_binds_only
from webhook.quota.shared.escrow import borrowers, without_headroom
from webhook.state.grant_raising import SharedLookups, blocking_reason, shared_of, unavailable
from webhook.state.group_commit import DEADLINE_EXCEEDED, Outcome, PendingClaim, Reserved

LEDGER_BUSY: Final = Undecided("the quota ledger is busy")
HEADROOM_RECALLED: Final = Undecided(
    "other namespaces hold what is missing without using it; it is being recalled"
)
HEADROOM_HELD: Final = Undecided(
    "other namespaces hold what is missing without using it; a bind has it recalled"
)
LEDGER_FULL: Final = Undecided("the quota ledger holds as many reservations as it can")


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Claims that are decided together, and the outcomes so far."""

    claims: Sequence[PendingClaim]
    _outcomes: dict[PendingClaim, Outcome] = field(default_factory=dict, init=False)

    def undecided(self) -> list[PendingClaim]:
        """Return the claims without outcome; those past their deadline get theirs."""
        now = time.monotonic()
        for pending in self.claims:
            if pending.deadline <= now:
                self._outcomes.setdefault(pending, DEADLINE_EXCEEDED)
        return [pending for pending in self.claims if pending not in self._outcomes]

    def settle(self, claims: Iterable[PendingClaim], outcome: Outcome) -> None:
        """Return claims their outcome; one that a claim has already stands."""
        for pending in claims:
            self._outcomes.setdefault(pending, outcome)

    def outcome(self, claim: PendingClaim) -> Outcome:
        """Return the claim's outcome; without one the ledger was too busy to decide it."""
        return self._outcomes.get(claim, LEDGER_BUSY)


@dataclass(frozen=True, slots=True)
class Decision:
    """Verdicts on claims by one version of a ledger, and the ledger that follows from them."""

    verdicts: Sequence[Verdict]
    """One for each claim, in their order."""
    following: Ledger
    status: EncodedStatus | None
    """`following` as it is to be written; None where no claim is admitted."""

    @property
    def is_admission_only(self) -> bool:
        """Whether every claim is admitted, so that the write alone proves the version current."""
        return all(isinstance(one, Admitted) for one in self.verdicts)

    @property
    def is_recalling(self) -> bool:
        """Whether a claim only lacks what other namespaces hold unused."""
        return any(one is HEADROOM_RECALLED for one in self.verdicts)

    def with_following(self, ledger: Ledger) -> Decision:
        """Return the decision with another ledger to write: the same, with more granted to it."""
        return replace(self, following=ledger, status=encode_status(ledger))


@dataclass(frozen=True, slots=True)
class BatchDecider:
    """Decides claims. Safe to use from many threads."""

    capacity: Callable[[], int] = lambda: 4000
    """Returns how many reservations a namespace may have; further claims are undecided, and before
    that those that are no binds."""
    max_bytes: int = MAX_LEDGER_BYTES
    """How large a ledger's status may become; what makes it larger is undecided."""
    opted_in_at: Callable[[str], int] = lambda _namespace: 0
    """Returns the version of a Namespace by which it opted in, as far as it is known; a ledger
    that was counted before decides nothing."""
    guard_uid: Callable[[], str | None] = lambda: None
    """Returns the uid of the guard's registration, see `check_observed`; a ledger that was counted
    under another one decides nothing."""

    def decide(
        self,
        namespace: str,
        ledger: Ledger,
        claims: Sequence[PendingClaim],
        lookups: SharedLookups,
    ) -> Decision:
        """Decide the claims in their order on one running ledger.

        Args:
            ledger: Its ledger, with what other namespaces hold.
            claims: What is asked.
            lookups: The shared quotas that the ledger counts, as they were looked up.
        """
        kept_out = self._undecidable(namespace, ledger, claims, lookups)
        decision = _decided(ledger, claims, kept_out)
        if decision.status is not None and len(decision.status) > self.max_bytes:
            kept_out = self._oversized(namespace, ledger, claims, kept_out)
            decision = _decided(ledger, claims, kept_out)
        if lookups and any(isinstance(one, Denied) for one in decision.verdicts):
            found = _without_headroom(decision, ledger, namespace, claims, lookups)
            return replace(
                found, verdicts=[_with_borrowers(one, lookups) for one in found.verdicts]
            )
        return decision

    def _undecidable(
        self, namespace: str, known: Ledger, claims: Sequence[PendingClaim], lookups: SharedLookups
    ) -> list[Undecided | None]:
        """Return of each claim why it cannot be decided; None where it can."""
        since, guard_uid = self.opted_in_at(namespace), self.guard_uid()
        uncounted = {
            observed: check_observed(known, observed, since=since, guard_uid=guard_uid)
            for observed in {pending.observed for pending in claims}
        }
        unavailable_quotas = unavailable(namespace, known, lookups) if lookups else {}
        full_to = self._full_to({pending.claim.source for pending in claims}, known)
        return [
            LEDGER_FULL
            if pending.claim.source in full_to and pending.claim.uid not in known.reservations
            else uncounted[pending.observed]
            or blocking_reason(pending.claim, known, unavailable_quotas)
            for pending in claims
        ]

    def _full_to(self, sources: Set[ReservationSource], known: Ledger) -> Set[ReservationSource]:
        """Return from which sources no other pod may reserve."""
        capacity = self.capacity()
        if len(known.reservations) >= capacity:
            return sources
        others = sources - {ReservationSource.BIND}
        return others if others and is_for_binds_only(known, capacity, self.max_bytes) else set()

    def _oversized(
        self,
        namespace: str,
        known: Ledger,
        claims: Sequence[PendingClaim],
        kept_out: Sequence[Undecided | None],
    ) -> list[Undecided | None]:
        """Keep the newest claims out that would make the ledger larger than an object can be."""
        room = max(0, self.max_bytes - len(encode_status(known)))
        out: list[Undecided | None] = []
        for pending, reason in zip(claims, kept_out, strict=True):
            growth = 0 if reason is not None else _growth_of(known, pending.claim)
            out.append(too_large(namespace) if growth > room else reason)
            room -= growth if growth <= room else 0
        return out


def _decided(
    known: Ledger, claims: Sequence[PendingClaim], kept_out: Sequence[Undecided | None]
) -> Decision:
    """Decide the claims for which there is no reason not to."""
    pairs = list(zip(claims, kept_out, strict=True))
    following, decided = admit_all(
        known, [pending.claim for pending, reason in pairs if reason is None]
    )
    rest = iter(decided)
    verdicts = [next(rest) if reason is None else reason for reason in kept_out]
    is_admitting = any(isinstance(one, Admitted) for one in verdicts)
    return Decision(verdicts, following, encode_status(following) if is_admitting else None)


def _without_headroom(
    decision: Decision,
    ledger: Ledger,
    namespace: str,
    claims: Sequence[PendingClaim],
    lookups: SharedLookups,
) -> Decision:
    """Return a decision in which nothing is denied because of what others hold unused."""
    shared = shared_of(lookups)
    before = without_headroom(ledger, namespace, shared)
    after = without_headroom(decision.following, namespace, shared)
    if before is None or after is None:
        return decision

    def judged(claim: Claim, verdict: Verdict) -> Verdict:
        if not isinstance(verdict, Denied):
            return verdict
        found = admit(after, claim)[1]  # another quota may deny it then, and with other numbers
        if not isinstance(found, Denied):
            return HEADROOM_RECALLED
        stored = admit(before, claim)[1]
        # otherwise the denial rests on an admission of this batch, which is not written yet
        return stored if isinstance(stored, Denied) else replace(found, provisional=True)

    verdicts = [
        judged(pending.claim, verdict)
        for pending, verdict in zip(claims, decision.verdicts, strict=True)
    ]
    return replace(decision, verdicts=verdicts)


def _with_borrowers(verdict: Verdict, lookups: SharedLookups) -> Verdict:
    """Return a verdict that says, where a pool is used up, which namespaces borrow of it."""
    if not (isinstance(verdict, Denied) and verdict.denial.is_of_pool):
        return verdict
    shared = lookups[verdict.denial.quota].shared
    found = () if shared is None else borrowers(shared, verdict.denial.requested)
    return replace(verdict, denial=replace(verdict.denial, borrowed=tuple(found)))


def _growth_of(known: Ledger, claim: Claim) -> int:
    """Return by how many bytes a claim would make the ledger larger, if it fits its quotas."""
    _, verdict = admit(known, claim)
    if not isinstance(verdict, Admitted):
        return 0
    before = known.reservations.get(claim.uid)
    grown = written_bytes_of(verdict.reservation)
    return max(0, grown - (0 if before is None else written_bytes_of(before)))


def outcome_of(verdict: Verdict, ledger_version: int) -> Outcome:
    """Return the outcome that a verdict is, once it is final."""
    match verdict:
        case Admitted():
            return Reserved(ledger_version)
        case Denied():
            return verdict.denial
        case Undecided():
            return verdict


def unreachable(err: ApiError | InvalidFieldError) -> Undecided:
    """Return the outcome of a ledger that cannot be read."""
    if isinstance(err, InvalidFieldError):
        return Undecided(f"the quota ledger cannot be read: {err}")
    return Undecided(f"the quota ledger cannot be reached: {err.message}")


def too_large(namespace: str) -> Undecided:
    """Return the outcome of a claim for which a ledger would become too large."""
    return Undecided(f"the quota ledger of namespace {namespace} holds as much as one object can")
