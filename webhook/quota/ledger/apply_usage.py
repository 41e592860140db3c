"""Bring a count of the pods into the ledger (laws 4, 5, 6 and 10 of the ledger).

The controller counts the pods of a namespace from its cache, and this module turns the count into
the next ledger: `used` replaced, reservations folded, kept or dropped. Whether a reservation may
expire is decided by the caller, because that takes time and a look at the API server.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import ResourceList, add, excess, mask, max_of, subtract
from webhook.quota.ledger.ledger import (
    EMPTY,
    Account,
    Ledger,
    QuotaRevision,
    Reservation,
    reserved_by,
)


@dataclass(frozen=True, slots=True)
class Expiry:
    """Proof that no request can be using a reservation any more.

    It was watched with one `serial` for longer than a request can last; after that the API
    server, asked for its newest state, showed the pod absent, or just as the count shows it.
    """

    serial: int
    """The reservation that was watched."""
    pod_resource_version: int
    """The pod's version in that answer; 0 when it was absent."""
    is_kept: bool = False
    """The reservation stays for the pod's sake; that no update is on its way is proved all the
    same."""


_NONE_EXPIRED: Mapping[str, Expiry] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class CountedQuota:
    """A quota as the controller counted it."""

    observed: QuotaRevision
    """The quota object and its spec."""
    hard: ResourceList
    used: ResourceList
    """Usage of assigned, live pods that it applies to."""
    pending: ResourceList = field(default_factory=dict)
    """Usage of unassigned, live pods that it applies to, with their number as `pods`."""


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """A pod as the controller's cache shows it."""

    resource_version: int
    is_assigned: bool
    is_live: bool
    """Its usage counts: neither finished nor stuck terminating."""
    usage: ResourceList
    """What it is charged, deferred resources only."""
    quotas: frozenset[str]
    """Names of the quotas that apply to it."""


@dataclass(frozen=True, slots=True)
class UsageCount:
    """Count of a namespace at one state of its pods."""

    pods_resource_version: int
    """The state of the pods that was counted."""
    quotas: Mapping[str, CountedQuota]
    """Quota name → what was counted for it."""
    pods: Mapping[str, ObservedPod]
    """Pod uid → the pod; at least those with a reservation that the cache holds."""
    gone: Collection[str] = ()
    """Uids of pods that the controller has seen deleted."""


def apply_usage(
    ledger: Ledger | None,
    count: UsageCount,
    *,
    expired: Mapping[str, Expiry] = _NONE_EXPIRED,
    is_from_before: bool = False,
) -> Ledger | None:
    """Return the ledger that follows from `count`, or None when it cannot be used yet.

    A count that is older than the ledger is never used. One with a resource that the ledger has
    not counted so far (another configuration, another quota) waits for the reservations of pods,
    and of updates of pods, that it does not show: what they take of that resource, the handler that
    wrote them may not have known. They are seen, or expire, within the time of a request.

    Args:
        ledger: The present ledger; None when there is none yet.
        count: What the controller has counted.
        expired: Pod uid → proof that no request uses its reservation. A reservation that has been
            written again since then is kept.
        is_from_before: The ledger may have been counted before the namespace opted in, or before
            the guard was registered, and no handler was called for what happened since: no account
            of it counts as unchanged, and no handler judges by a view of a pod that is older than
            this count.
    """
    if ledger is None:
        # what waiting pods meant to become was in the ledger that may have been here before
        return _ledger(count, {}, Ledger({}, {}), barrier=count.pods_resource_version)
    if count.pods_resource_version < ledger.pods_resource_version:
        return None
    unchanged = {
        name
        for name, quota in count.quotas.items()
        if not is_from_before
        and name in ledger.accounts
        and ledger.accounts[name].observed == quota.observed
    }
    kept: dict[str, Reservation] = {}
    barrier = ledger.pods_barrier
    proved: set[str] = set()
    for uid, reservation in ledger.reservations.items():
        if uid in count.gone:
            continue
        expiry = expired.get(uid)
        if expiry is not None and expiry.serial == reservation.serial:
            proved.add(uid)
            if not expiry.is_kept:
                barrier = max(barrier, expiry.pod_resource_version)
                continue
        following = reservation_after(reservation, count, unchanged)
        if following is not None:
            kept[uid] = following
    counts_more = _counts_more(ledger, count)
    if counts_more and any(
        _may_hide(one, count.pods.get(uid)) for uid, one in kept.items() if uid not in proved
    ):
        return None
    if counts_more or is_from_before:
        # changes of waiting pods were not claimed for what was not deferred
        barrier = max(barrier, count.pods_resource_version)
    within = _within_hard(kept, ledger, count, unchanged)
    return _ledger(count, within, ledger, barrier=barrier)


def only_folds(former: Ledger | None, following: Ledger) -> bool:
    """Return whether a ledger differs from the one before in what is `used` of what is taken.

    Reservations became part of `used`, and handlers judge claims by the one as by the other. How
    far pods were counted is not compared.
    """
    return (
        former is not None
        and former.pods_barrier == following.pods_barrier
        and former.accounts.keys() == following.accounts.keys()
        and following.reservations.keys() <= former.reservations.keys()
        and all(
            _is_as_full(account, following.accounts[name])
            for name, account in former.accounts.items()
        )
    )


def _is_as_full(account: Account, other: Account) -> bool:
    if (account.observed, account.hard, account.granted) != (
        other.observed,
        other.hard,
        other.granted,
    ):
        return False
    taken, then = add(account.used, account.reserved), add(other.used, other.reserved)
    return all(taken.get(name, ZERO) == then.get(name, ZERO) for name in account.hard)


def seconds_until_new(*, lost_since: float | None, now: float, expire_seconds: float) -> float:
    """Return how long no ledger may be made where one was lost; 0 when there was none.

    What was reserved in it can be on its way to storage for as long as a request lasts. Without a
    ledger nothing more is admitted, so when that time is over, a count of the pods has it all.

    Args:
        lost_since: When it was first seen to be gone, on the caller's clock.
        now: The time on that clock.
        expire_seconds: Longer than any request lasts.
    """
    if lost_since is None:
        return 0.0
    return max(0.0, lost_since + expire_seconds - now)


def _may_hide(reservation: Reservation, pod: ObservedPod | None) -> bool:
    """Return whether a pod may take what neither its reservation nor the count shows."""
    return pod is None or pod.resource_version <= reservation.base_version


def _counts_more(ledger: Ledger, count: UsageCount) -> bool:
    """Return whether some resource is counted that no account of the ledger has.

    A decision by an account knew all of its resources, so what one account has, every
    reservation has.
    """
    known = {name for account in ledger.accounts.values() for name in account.hard}
    return any(not quota.hard.keys() <= known for quota in count.quotas.values())


def reservation_after(
    reservation: Reservation, count: UsageCount, unchanged: Collection[str]
) -> Reservation | None:
    """What becomes of one reservation; None when nothing of it is left to hold."""
    pod = count.pods.get(reservation.uid)
    if pod is None:
        return still_held(reservation, count, count.quotas, unchanged)
    if not pod.is_live:
        return None
    if len(unchanged) < len(count.quotas):
        # more resources may be deferred than when the pod reserved
        reservation = replace(reservation, usage=max_of(reservation.usage, pod.usage))
    if not pod.is_assigned:
        # an update that is not stored yet can move the pod into quotas that do not select it now
        is_as_seen = pod.resource_version > reservation.base_version
        return still_held(reservation, count, pod.quotas if is_as_seen else count.quotas, unchanged)
    return _beside_used(reservation, count, pod, unchanged)


def still_held(
    reservation: Reservation,
    count: UsageCount,
    applying: Collection[str],
    unchanged: Collection[str],
) -> Reservation:
    """Keep the reservation of a pod that `used` does not contain.

    A quota that was not there, or had another spec, when the pod reserved is charged with all of
    the pod's usage if it applies to it or might (`applying`).
    """
    claimed = {name for name in reservation.quotas if name in count.quotas}
    quotas = claimed | {name for name in applying if name in count.quotas} - set(unchanged)
    kept = replace(reservation, quotas=tuple(sorted(quotas)))
    if reservation.is_intent:
        return kept
    was_compared = unchanged if not reservation.is_capped else ()
    charges = {
        name: reservation.charges.get(name, reservation.usage)
        if name in was_compared
        else reservation.usage
        for name in kept.quotas
    }
    return replace(kept, charges=charges)


def _beside_used(
    reservation: Reservation, count: UsageCount, pod: ObservedPod, unchanged: Collection[str]
) -> Reservation | None:
    """Keep what `used` may lack of an assigned pod; None when it lacks nothing (law 4).

    Only an update that has not been stored yet can add to what is seen. A quota that the seen pod
    is outside of may apply after it, and so is charged with everything.
    """
    if reservation.is_intent or pod.resource_version > reservation.base_version:
        return None
    changed = {name for name in count.quotas if name not in unchanged}
    quotas = {name for name in reservation.quotas if name in count.quotas} | changed
    growth = excess(reservation.usage, pod.usage)
    charges = {name: growth if name in pod.quotas else reservation.usage for name in sorted(quotas)}
    return replace(reservation, quotas=tuple(charges), charges=charges)


def _within_hard(
    kept: Mapping[str, Reservation], former: Ledger, count: UsageCount, unchanged: Collection[str]
) -> Mapping[str, Reservation]:
    """Charge what only a request has said no further than to `hard` (law 10).

    What a quota held before was compared with it, and what a stored pod asks for that claimed as
    any other is true. The rest gets what is left, the oldest claim first.
    """
    sure: dict[str, dict[str, ResourceList]] = {}
    for uid, one in kept.items():
        held = former.reservations[uid].charges
        known = {name: held[name] for name in one.charges if name in unchanged and name in held}
        if known != one.charges:
            pod = None if one.is_capped else count.pods.get(uid)
            seen = EMPTY if pod is None or pod.is_assigned else pod.usage
            sure[uid] = {
                name: _at_most(charge, max_of(known.get(name, EMPTY), seen))
                for name, charge in one.charges.items()
            }
    if not sure:
        return kept
    certain = [replace(one, charges=sure.get(uid, one.charges)) for uid, one in kept.items()]
    reserved = reserved_by(certain)
    left = {
        name: mask(subtract(quota.hard, add(quota.used, reserved.get(name, EMPTY))), quota.hard)
        for name, quota in count.quotas.items()
    }
    filled = {
        uid: _filled(kept[uid], sure[uid], left)
        for uid in sorted(sure, key=lambda uid: kept[uid].serial)
    }
    return {**kept, **filled}


def _filled(
    wanted: Reservation, sure: Mapping[str, ResourceList], left: dict[str, ResourceList]
) -> Reservation:
    """Return a reservation that holds what is sure and takes of what is left; `left` shrinks."""
    charges: dict[str, ResourceList] = {}
    for name, charge in wanted.charges.items():
        missing = excess(charge, sure[name])
        # what is not limited is not left either, and cannot be too much
        room = {
            resource: max(ZERO, left[name][resource]) if resource in left[name] else amount
            for resource, amount in missing.items()
        }
        more = _at_most(missing, room)
        left[name] = subtract(left[name], mask(more, left[name]))
        charges[name] = add(sure[name], more)
    is_capped = any(excess(charge, charges[name]) for name, charge in wanted.charges.items())
    return replace(wanted, charges=charges, is_capped=is_capped)


def _at_most(amounts: ResourceList, most: ResourceList) -> ResourceList:
    """Return amounts cut to `most`; what `most` does not name is cut to nothing."""
    return {name: min(amount, most.get(name, ZERO)) for name, amount in amounts.items()}


def _ledger(
    count: UsageCount, reservations: Mapping[str, Reservation], former: Ledger, *, barrier: int
) -> Ledger:
    reserved = reserved_by(reservations.values())
    accounts = {
        name: Account(
            observed=quota.observed,
            hard=quota.hard,
            used=quota.used,
            reserved=reserved.get(name, EMPTY),
            pending=quota.pending,
            granted=_granted(quota.observed, former),
        )
        for name, quota in sorted(count.quotas.items())
    }
    return Ledger(
        accounts,
        reservations,
        pods_resource_version=count.pods_resource_version,
        serial=former.serial,
        pods_barrier=barrier,
        conditions=former.conditions,
        unknown_fields=former.unknown_fields,
    )


def _granted(observed: QuotaRevision, former: Ledger) -> ResourceList:
    """What the namespace holds of a shared quota, as long as it is the same object."""
    account = former.accounts.get(observed.name)
    is_same = account is not None and account.observed.uid == observed.uid
    return account.granted if account is not None and is_same else EMPTY


# -- pods that got their node although nothing was reserved for them ---------------------------
#
# A handler writes its claim before storage gives a pod its node. So the ledger over which a count
# is written that has the pod for the first time holds the pod's reservation, unless no handler was
# called. The pod is counted all the same; what is lost is that it could have been refused. That
# holds only where it is sure that a handler would have claimed: see `is_watched`. Whatever leaves a
# doubt is not reported.


def is_watched(former: Ledger | None, following: Ledger) -> bool:
    """Return whether handlers claim for all that is counted by both of two ledgers in a row.

    They do not for what no quota limited when they were asked. So both have to count the very same
    quotas, and at least one.
    """
    return former is not None and bool(former.accounts) and former.observed == following.observed


def is_unguarded(uid: str, pod: ObservedPod | None, ledger: Ledger) -> bool:
    """Return whether a pod that was just given its node takes what the ledger was not asked for.

    Args:
        uid: The pod's uid.
        pod: The pod as it is counted now; None when it is gone.
        ledger: The ledger that was written over.
    """
    if uid in ledger.reservations or pod is None or not (pod.is_assigned and pod.is_live):
        return False
    accounts = [ledger.accounts[name] for name in pod.quotas if name in ledger.accounts]
    return any(
        amount.sign > 0 and resource in account.hard
        for account in accounts
        for resource, amount in pod.usage.items()
    )
