"""The ledger of one namespace: what its quotas have given away, and to which pods.

`used` is the usage of assigned pods, as the controller has counted it. A *reservation* is what a
handler has granted to one pod and the controller has not counted yet. Both are in one object, so
that one compare-and-swap covers every quota of the namespace. The laws:

1. Safety. Per quota and resource, used + reserved >= usage of all assigned, live, matching pods,
   or >= hard, where nothing more is admitted: not what a claim holds already either.
2. Admit. A handler admits only what fits beside used + reserved, decided on the very version of the
   ledger that its write replaces, and only while the ledger has counted the quotas as the handler
   knows them. Whatever prevents that leaves the request undecided: never an allow.
3. Once. There is one reservation per pod uid; a repeated request is not charged again.
4. Fold. A reservation becomes part of `used` in one write (`apply_usage`).
5. Expire. A reservation whose pod is not assigned is dropped only after the controller has watched
   it, unchanged, for longer than any request can last, and the API server confirms it.
6. Monotonic. `used` is never counted from an older state of the pods than before.
7. All or none. All quotas of a request are charged in one write or none is.
8. Final. A refusal stands for its request, whatever later writes do.
9. Bias. Every doubt counts as more usage, never as less.
10. Evidence. What is known from a request alone is never charged beyond hard. `used` may exceed
   hard, because it is counted from stored pods.

Laws 4, 5, 6 and 10 also bind the controller: `apply_usage`.

A repeated request writes its reservation again, with a new serial number. Without that trace,
law 5 could drop a reservation while the repeated request is still on its way to storage.

Two requests change what a pod will be charged while it is not assigned yet: a resize, and a
deadline that moves it between scopes. They leave a reservation that charges nothing, an *intent*;
a bind that overtakes them is then charged for the larger pod, and if the bind was first, they are
charged themselves. (For a pod without a gate a scheduler looks for a node already, so that its
change is reserved for, or denied.) When such a reservation expires, the ledger's *barrier* rises to
the version of the pod that made it superfluous, so that no handler judges by an older one.

A handler claims for every pod that takes deferred resources, even if no quota applies to it: a
quota that is created or edited while the request is on its way then finds the pod in the ledger.

A claim that cannot be denied (a mirror pod: its kubelet runs it whatever the answer is) reserves
what is left, up to all that it takes. If that is less, the quota is full, and the controller fills
the reservation up with what others give back, in the write that would make room for other claims.

A quota that several namespaces share is one account in the ledger of each; `shared.escrow` has the
laws by which they share it.

Before the gate of a queued pod is removed, its quota is reserved (`queue.release_order`), so that
what was freed for it goes to no other pod. The same is done for a pod that was created without a
gate, because there was room (`queue.fast_path`), while others wait behind it. No request is on its
way for such a reservation: the bind claims again. It is kept at least as long as law 5 requires.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeAlias

from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList, add, excess, max_of, total_of
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.ledger.ledger_values import (
    EMPTY,
    GUARDED,
    NEWEST,
    NO_GUARD,
    NO_PROMISES,
    OPTED_OUT,
    Account,
    Claim,
    Condition,
    Ledger,
    QuotaRevision,
    Reservation,
    ReservationSource,
    reserved_by,
)

__all__ = [
    "EMPTY",
    "GUARDED",
    "JUST_OPTED_IN",
    "JUST_REGISTERED",
    "NEWEST",
    "NO_GUARD",
    "NO_LEDGER",
    "OPTED_OUT",
    "Account",
    "Admitted",
    "Claim",
    "Condition",
    "Denied",
    "Ledger",
    "QuotaRevision",
    "Reservation",
    "ReservationSource",
    "Undecided",
    "Verdict",
    "admit",
    "admit_all",
    "check_observed",
    "exceeded_quotas",
    "final_verdicts",
    "reserved_by",
]

_NO_CHARGES: Mapping[str, ResourceList] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Admitted:
    """The claim fits and the ledger holds `reservation` for it."""

    reservation: Reservation


@dataclass(frozen=True, slots=True)
class Denied:
    """The claim does not fit."""

    denial: QuotaExceeded
    provisional: bool = False
    """It would fit without the claims decided before it in the same batch, so it is final only once
    their write has succeeded."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """The ledger cannot answer now; asking again later can help."""

    message: str
    is_view_old: bool = False
    """The pod has to be looked up again, at the API server, before asking again."""


Verdict: TypeAlias = Admitted | Denied | Undecided


NO_LEDGER: Final = Undecided("the quota ledger of this namespace is not there yet")
JUST_OPTED_IN: Final = Undecided("the namespace has opted in and its usage is being counted")
JUST_REGISTERED: Final = Undecided(
    "the webhook was registered anew and the usage of the namespace is being counted"
)


def check_observed(
    ledger: Ledger | None,
    observed: frozenset[QuotaRevision],
    *,
    since: int = 0,
    guard_uid: str | None = None,
) -> Undecided | None:
    """Return why `ledger` cannot decide for a handler that knows the quotas as `observed`, if so.

    Args:
        ledger: The ledger as it is known.
        observed: The quotas as the handler knows them.
        since: The version of the Namespace by which it opted in. What ran there before was not
            asked about, so pods have to have been counted up to then.
        guard_uid: The uid of the guard's registration; empty where it is not known. Nothing was
            asked about before it was there, so pods have to have been counted up to then. None
            where that is not to be compared; a ledger that names none is not either.
    """
    if ledger is None:
        return NO_LEDGER
    if ledger.observed != observed:
        differing = {one.name for one in ledger.observed ^ observed}
        return Undecided(f"usage is being counted for quota: {', '.join(sorted(differing))}")
    if guard_uid is not None and ledger.guard_uid not in ("", guard_uid):
        return JUST_REGISTERED
    return JUST_OPTED_IN if ledger.pods_resource_version < since else None


def admit(ledger: Ledger, claim: Claim) -> tuple[Ledger, Verdict]:
    """Reserve what `claim` requests, or return which quota it exceeds.

    Quotas are checked in the order of their names and the first that is exceeded is reported.
    Resources that the claim does not request are not compared: a quota that is over its limit does
    not block a request that leaves that resource alone. A repeated claim is compared with
    the quotas as they are now, its own reservation counted once.

    Returns:
        The ledger to write and the verdict; unless admitted, the ledger as it was given.
    """
    if claim.observed_version < ledger.pods_barrier:
        return ledger, Undecided(
            "the pod may have changed since it was looked up", is_view_old=True
        )
    before = ledger.reservations.get(claim.uid)
    after = merged_reservation(before, claim, ledger)
    held = _NO_CHARGES if before is None else before.charges
    if claim.skip_limits:
        after = _within_hard(ledger, held, after)
    else:
        is_kept = _is_kept(before, claim)
        for name in after.charges:  # in the order of the names
            refusal = _exceeded(ledger.accounts[name], claim, held, after, is_kept=is_kept)
            if refusal is not None:
                return ledger, Denied(refusal)
        short = _short_quota(ledger, claim, held, after, is_kept=is_kept) if ledger.capped else None
        if short is not None:
            return ledger, Undecided(f"usage is being counted for quota: {short}")
    return _with_reservation(ledger, held, after), Admitted(after)


def _short_quota(
    ledger: Ledger,
    claim: Claim,
    held: Mapping[str, ResourceList],
    after: Reservation,
    *,
    is_kept: bool,
) -> str | None:
    """Return a quota that `claim` may exceed together with reservations that are capped.

    A limit that was lowered, or a pod that runs anyway, leaves a reservation that holds less than
    its request may store. The quota is full then for new claims, but what a claim itself holds
    already is room to it alone: beside all that the others may still store, it need not fit.
    """
    others = [one for one in ledger.capped if one.uid != claim.uid]
    for name in after.charges:
        missing = total_of(
            excess(one.usage, one.charges[name]) for one in others if name in one.charges
        )
        if not missing:
            continue
        account = ledger.accounts[name]
        fuller = replace(account, used=add(account.used, missing))
        if _exceeded(fuller, claim, held, after, is_kept=is_kept) is not None:
            return name
    return None


def exceeded_quotas(ledger: Ledger, claim: Claim) -> tuple[QuotaExceeded, ...]:
    """Return every quota that `claim` would exceed, in the order of their names.

    It is empty exactly where `admit` admits a claim that is not forced and sees enough, or leaves
    it undecided because others are short.
    """
    before = ledger.reservations.get(claim.uid)
    after = merged_reservation(before, claim, ledger)
    held = _NO_CHARGES if before is None else before.charges
    is_kept = _is_kept(before, claim)
    found = [
        _exceeded(ledger.accounts[name], claim, held, after, is_kept=is_kept)
        for name in after.charges
    ]
    return tuple([refusal for refusal in found if refusal is not None])


def admit_all(ledger: Ledger, claims: Sequence[Claim]) -> tuple[Ledger, list[Verdict]]:
    """Decide claims in order on one running ledger, so that one write can cover them all."""
    verdicts: list[Verdict] = []
    running = ledger
    for claim in claims:
        running, verdict = admit(running, claim)
        if isinstance(verdict, Denied) and running is not ledger:
            _, alone = admit(ledger, claim)
            verdict = replace(verdict, provisional=isinstance(alone, Admitted))
        verdicts.append(verdict)
    return running, verdicts


def final_verdicts(verdicts: Sequence[Verdict], *, is_written: bool) -> list[Verdict | None]:
    """Return which verdicts of a batch stand, and which have to be decided again (None).

    Once the batch's ledger is written, all stand. When the write was refused, admissions do not,
    nor refusals that rested on them; every other refusal does (law 8).
    """
    if is_written:
        return list(verdicts)
    return [
        None
        if isinstance(verdict, Admitted) or (isinstance(verdict, Denied) and verdict.provisional)
        else verdict
        for verdict in verdicts
    ]


def merged_reservation(before: Reservation | None, claim: Claim, ledger: Ledger) -> Reservation:
    """Combine a pod's reservation with a further claim; nothing ever shrinks (law 9)."""
    usage, applying = claim.usage, {*claim.quotas}
    base_version, is_intent = claim.base_version, claim.is_intent
    if before is not None:
        usage = max_of(before.usage, usage)
        applying.update(name for name in before.quotas if name in ledger.accounts)
        base_version = max(before.base_version, base_version)
        is_intent = before.is_intent and is_intent
    quotas = tuple(sorted(applying))
    charges = {} if is_intent else {name: charge_of(name, before, claim, usage) for name in quotas}
    return Reservation(
        uid=claim.uid,
        pod=claim.pod,
        source=_merged_source(before, claim),
        usage=usage,
        charges=charges,
        quotas=quotas,
        serial=ledger.serial + 1,
        base_version=base_version,
        is_intent=is_intent,
        is_capped=before is not None
        and before.is_capped
        and any(excess(usage, charge) for charge in charges.values()),
    )


def _merged_source(before: Reservation | None, claim: Claim) -> ReservationSource:
    """Return the source of the merged reservation: a change before the bind leaves it as it is.

    A queue's reservation stays one, and that of a bind does not become one: it is used at once, or
    never.
    """
    is_change_before_bind = claim.is_intent or claim.source is ReservationSource.RELEASE
    if before is None or before.is_intent or not is_change_before_bind:
        return claim.source
    return before.source


def charge_of(
    quota: str, before: Reservation | None, claim: Claim, usage: ResourceList
) -> ResourceList:
    """Return what a quota must hold so that, with its `used`, all of `usage` is covered.

    `used` contains what the stored pod was charged (law 1), and the rest is due. Where a charge is
    held already, it and `used` cover the usage reserved before, and growth is added, but only if
    that claim knew the stored pod: an API server asks about an update of an older, larger pod
    first, finds out that it is older, and asks again.
    """
    due = excess(usage, claim.counted.get(quota, EMPTY))
    if before is None or quota not in before.charges:
        return due
    held = before.charges[quota]
    growth = excess(usage, before.usage)
    return max_of(add(held, growth) if growth else held, due)


def _is_kept(before: Reservation | None, claim: Claim) -> bool:
    """Return whether what a reservation holds is room to a further claim, whatever was promised.

    It is for the bind of a released pod. Another bind of the same pod, or a resize, whatever it
    changes, would have the reservation written anew as often as its client likes, and what was
    promised would never come free; until it expires it stands all the same.
    """
    is_released = before is not None and before.source is ReservationSource.RELEASE
    return is_released and claim.source is ReservationSource.BIND


def _exceeded(
    account: Account,
    claim: Claim,
    held: Mapping[str, ResourceList],
    after: Reservation,
    *,
    is_kept: bool,
) -> QuotaExceeded | None:
    """Compare one quota; report only the resources that are exceeded."""
    name = account.observed.name
    charge, own = after.charges[name], held.get(name, EMPTY)
    counted = claim.counted.get(name, EMPTY)
    over: dict[str, Quantity] = {}
    for resource, amount in charge.items():
        hard = account.hard.get(resource)
        had = own.get(resource, ZERO)
        unheld = _unheld(account, resource, claim.uid) if account.unheld else ZERO
        is_renewed = had > ZERO and unheld > ZERO and not is_kept
        grows = amount > had or claim.usage.get(resource, ZERO) > counted.get(resource, ZERO)
        if hard is None or not (grows or is_renewed):
            continue
        others = _used_by_others(account, resource, own, claim.uid)
        if is_kept and amount <= had:
            # what is promised beyond what is free takes nothing from a reservation that stands
            others = others - unheld
        if others + amount > hard:
            over[resource] = others
    if not over:
        return None
    return QuotaExceeded(
        quota=name,
        requested={resource: charge[resource] for resource in over},
        used=over,
        limited={resource: account.hard[resource] for resource in over},
    )


def _within_hard(
    ledger: Ledger, held: Mapping[str, ResourceList], after: Reservation
) -> Reservation:
    """Return a reservation that holds what its quotas have left, and no less than before."""
    charges = {
        name: _left_of(ledger.accounts[name], charge, held.get(name, EMPTY), after.uid)
        for name, charge in after.charges.items()
    }
    is_capped = any(excess(charge, charges[name]) for name, charge in after.charges.items())
    return replace(after, charges=charges, is_capped=is_capped or after.is_capped)


def _left_of(account: Account, charge: ResourceList, own: ResourceList, uid: str) -> ResourceList:
    """Return as much of a charge as a quota has left, at least what is held already (`own`)."""
    left = dict(charge)
    for resource, amount in charge.items():
        hard = account.hard.get(resource)
        if hard is not None:
            # it runs whatever is promised to others: of that they get what is left beside it
            others = _used_by_others(account, resource, own, uid) - _unheld(account, resource, uid)
            room = hard - others
            left[resource] = max(own.get(resource, ZERO), min(amount, room))
    return left


def _used_by_others(account: Account, resource: str, own: ResourceList, uid: str) -> Quantity:
    """Return used and reserved, also elsewhere, without what the pod itself has or was promised."""
    taken = account.used.get(resource, ZERO)
    reserved = account.reserved.get(resource)
    if reserved:
        taken = taken + reserved
    if account.used_elsewhere and resource in account.used_elsewhere:
        taken = taken + account.used_elsewhere[resource]
        if uid in account.promised:
            taken = taken - _promised_from(account, resource, uid)
    return taken - own[resource] if resource in own else taken


def _unheld(account: Account, resource: str, uid: str) -> Quantity:
    """Return what `_used_by_others` contains that no namespace holds."""
    amount = account.unheld.get(resource, ZERO)
    return amount - _promised_from(account, resource, uid) if uid in account.promised else amount


def _promised_from(account: Account, resource: str, uid: str) -> Quantity:
    """Return what is promised to a pod, and to those after it, but for what is kept for them."""
    total = -account.kept_from.get(uid, EMPTY).get(resource, ZERO)
    for one in account.promised_from(uid):
        total = total + account.promised[one].get(resource, ZERO)
    return total


def _with_reservation(
    ledger: Ledger, held: Mapping[str, ResourceList], after: Reservation
) -> Ledger:
    """Return a ledger with the reservation `after` in the place of the pod's former one."""
    accounts = dict(ledger.accounts)
    for name, charge in after.charges.items():
        own = held.get(name)
        growth = excess(charge, own) if own else charge
        if growth:
            accounts[name] = _with_reserved(accounts[name], growth)
        if after.uid in accounts[name].promised:
            accounts[name] = _redeemed(accounts[name], after.uid)
    following = replace(
        ledger,
        accounts=accounts,
        reservations={**ledger.reservations, after.uid: after},
        serial=after.serial,
    )
    object.__setattr__(following, "_observed", ledger.observed)  # accounts of the same quotas
    return following


def _with_reserved(account: Account, growth: ResourceList) -> Account:
    following = replace(account, reserved=add(account.reserved, growth))
    object.__setattr__(following, "_written", account._written)  # noqa: SLF001 - the rest is alike
    return following


def _redeemed(account: Account, uid: str) -> Account:
    """Return an account without what was promised to a pod, which is reserved for it now."""
    amounts = account.promised[uid]
    elsewhere, unheld = (
        {name: amount - amounts.get(name, ZERO) for name, amount in part.items()}
        for part in (account.used_elsewhere, account.unheld)
    )
    left = {other: one for other, one in account.promised.items() if other != uid}
    following = replace(
        account, used_elsewhere=elsewhere, promised=left or NO_PROMISES, unheld=unheld
    )
    object.__setattr__(following, "_written", account._written)  # noqa: SLF001 - the rest is alike
    return following
