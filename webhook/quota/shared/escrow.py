"""Escrow of a shared quota: each namespace holds a part of it, and admits only from that part.

In the ledger of each namespace a shared quota is one more account. Its `granted` says what the
namespace holds; the status of the ClusterDeferredQuota (`grants`) says what each namespace holds.
Nothing but the compare-and-swaps of these two objects keeps the following laws:

A. Own. In a ledger that a handler wrote, used + reserved <= granted, for every amount that the
   handler added to.

B. Covered. A ledger's `granted` never exceeds what the quota's status says of the namespace.

C. Total. No admission makes the sum over all namespaces exceed `hard`. Only usage that runs already
   can, because it is counted by force.

D. Complete. The quota's status says that all are counted only while that is true of the very spec
   that it names: before a ledger begins to count another spec, or begins again, that is taken back,
   and before one stops to count by another spec, or is made anew without it. Where the leader
   writes what namespaces hold, it leaves no claim for a former spec: an edit may be taken back at
   any time, and what followed of it must not count as that spec. Nor may a write that is carried
   out late: where one may be on its way, a ledger is written again before it is taken as counted.
   Where the guard was registered anew, what was bound unasked is in no grant yet: that all are
   counted is taken back before the first ledger says so of its namespace. Nothing is lowered, and
   no namespace dropped, but for the spec and the labels as they are in storage.

E. Promised. What the status holds for one pod (`Promise`) counts as held elsewhere in every
   decision, except on that pod and on pods with an earlier promise. It does so until the ledger of
   the pod's namespace has a reservation for the pod, for which the grant was raised first; an
   intent is no such reservation, because it holds nothing.
   A pod with an earlier promise takes what the victims of a later one free, and leaves it what its
   own victims free: otherwise each new promise would put off all earlier ones. It does not take
   what is kept for the later one's namespace (F), of which that promise is a part as long as it is
   counted.
   Two kinds of claims are not compared with promises. One is the bind of a released pod, within its
   reservation: a promise may be of what victims still take, and such a pod goes on to its bind.
   (Any other claim is, or its client could have a reservation written anew for ever.) The other is
   a claim that may not be refused: what runs anyway is held before what is promised.

F. Kept. What the spec keeps for some namespaces, and they do not hold, counts as held elsewhere in
   the decisions of all others, except for those two kinds of claims.

G. Current. Each admission fits beside all that others hold at one moment between its request and
   the write of its ledger.

Together: what all of them use and have reserved stays within the sum of what is granted.

Raising, for handlers, queues and the controller: (1) have the ledger at a version; (2) decide on it
by the quota at a version, which says what others hold (`elsewhere`); (3) where that needs more than
is granted, write the quota in the place of that version, even if it shows as much already; where it
does not, the version of (2) has to have been read since the request came; (4) write the ledger in
the place of the version of (1). Several namespaces may go through (2) together,
one after the other, each beside what those before it are to get; then (3) is one write for all, and
if it fails, none of their decisions is answered. Claims are admitted only where the quota is
`open_to` the namespace; the count of what runs already is written by force, and thereby lets the
namespace take part.

Lowering, for the leader: (1) have the quota at a version; (2) write the ledger with the smaller
`granted`, or see that there is no ledger, or none that counts the quota; (3) write the quota in the
place of the version of (1). The write of (2) must change something, because an update that does not
is none to the API server.

Headroom is what a namespace holds and does not use: a raise takes more than it needs, if the spec
allows that, and the leader leaves it while no pod lacks it. For all of the above it is held like
the rest, so a bind within it reads the quota and writes only its ledger. The status says how much
of a grant is headroom, for people and for two questions that no admission depends on: what is to be
recalled, and whether a refusal is final. It may be outdated or missing.

Why G needs the read: others are counted by force beyond `hard`, and `hard` is lowered, while a
namespace holds headroom. The sum of what is granted is then more than `hard`, and what was granted
once does not show what fits now. What the namespace needs and what the others hold does: the others
use no more than they hold, whatever is admitted for them at the same time. A quota that by its spec
is of one namespace need not be read: there are no others, and an edit of it is in force once the
ledger counts it, as that of a ResourceQuota.

Why B holds: of a ledger's raise and any lowering, either the lowering has read the quota before the
raise wrote it, and its (3) fails; or its (2) comes after the raise had read the ledger, and makes
the raise's (4) fail, or comes after that and is what the ledger says from then on. A crash between
two writes leaves the quota's status too high, which is too much usage, never too little.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import (
    ResourceList,
    add,
    excess,
    is_within,
    mask,
    max_of,
    total_of,
)
from webhook.quota.charging.deferral import deferred_part, observed_as
from webhook.quota.ledger.ledger_values import EMPTY, NO_PROMISES, Account, Claim, Ledger
from webhook.quota.objects.names import SHARED_PREFIX
from webhook.quota.shared.cluster_quotas import ClusterQuota
from webhook.quota.shared.grants import (
    Grants,
    Promise,
    with_headroom,
    with_lowered,
    with_raised,
)

_IN_MILLI: Final = frozenset({"requests.cpu", "limits.cpu"})
"""Keys whose amounts are divided into thousandths; of others into whole bytes and counts."""
_NAMED: Final = 4
"""Namespaces of one elastic quota that are named."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A shared quota at one version."""

    quota: ClusterQuota
    """What its owner wrote."""
    grants: Grants
    """What the namespaces hold."""


def shared_names(ledger: Ledger | None) -> tuple[str, ...]:
    """Return the accounts of shared quotas, sorted."""
    if ledger is None:
        return ()
    return tuple(sorted([name for name in ledger.accounts if name.startswith(SHARED_PREFIX)]))


def open_to(namespace: str, account: Account, shared: Shared | None) -> bool:
    """Return whether a namespace may be granted more by a shared quota.

    It may once the leader has said that all namespaces are named that take part, the namespace
    is one of them, and all of that for the very spec that the ledger has counted.
    """
    return (
        shared is not None
        and is_counted_as(account, shared)
        and account.observed == shared.grants.observed
        and namespace in shared.grants.namespaces
    )


def is_counted_as(account: Account, shared: Shared) -> bool:
    """Return whether a ledger has counted the very spec that the quota has at this version."""
    quota = shared.quota.quota
    hard = deferred_part(quota.hard, account.hard.keys())
    return account.observed in (
        observed_as(quota, hard),
        observed_as(quota, hard, holds_terminating=True),
    )


def names_former_spec(shared: Shared | None) -> bool:
    """Return whether a quota is said to be complete for another spec than it has."""
    if shared is None or shared.grants.observed is None:
        return False
    observed, quota = shared.grants.observed, shared.quota.quota
    return observed.uid != quota.uid or observed.spec_hash.partition("-")[0] != quota.spec_hash


def beside(ledger: Ledger, namespace: str, shared: Mapping[str, Shared | None]) -> Ledger:
    """Return the ledger with what other namespaces and promises hold, to be decided by."""
    accounts = {
        name: _beside(ledger, name, namespace, found)
        for name, found in shared.items()
        if name in ledger.accounts
    }
    return replace(ledger, accounts={**ledger.accounts, **accounts}) if accounts else ledger


def _beside(ledger: Ledger, name: str, namespace: str, shared: Shared | None) -> Account:
    account = ledger.accounts[name]
    if shared is None:
        return replace(
            account,
            used_elsewhere=EMPTY,
            promised=NO_PROMISES,
            kept_from=NO_PROMISES,
            unheld=EMPTY,
        )
    kept = _kept_for_others(shared, namespace)
    promised = {
        uid: one.amounts
        for uid, one in shared.grants.promises.items()
        if not ledger.is_reserved(uid)
    }
    unheld = total_of([kept[-1], *promised.values()])
    return replace(
        account,
        used_elsewhere=add(shared.grants.held_elsewhere(namespace), unheld),
        promised=promised or NO_PROMISES,
        kept_from={
            one.uid: excess(then, kept[-1])
            for one, then in zip(shared.grants.promises.values(), kept[1:], strict=True)
            if then and one.namespace == namespace
        },
        unheld=unheld,
    )


def _kept_for_others(shared: Shared, namespace: str) -> list[ResourceList]:
    """Return what is kept for others beyond what they hold, and beside the promises to their pods.

    The first is that beside none, each of the others beside one promise more, in their order.
    """
    left: list[ResourceList] = []
    parts: dict[str, list[int]] = {}
    total: ResourceList = EMPTY
    for part in shared.quota.kept:
        if namespace in part.namespaces:
            continue
        held: ResourceList = EMPTY
        for name in part.namespaces:
            held = add(held, shared.grants.namespaces.get(name, EMPTY))
            parts.setdefault(name, []).append(len(left))
        left.append(excess(part.amounts, held))
        total = add(total, left[-1])
    found = [total]
    for one in shared.grants.promises.values():
        for number in parts.get(one.namespace, ()):
            former, left[number] = left[number], excess(left[number], one.amounts)
            total = add(excess(total, former), left[number])
        found.append(total)
    return found


def without_headroom(
    ledger: Ledger, namespace: str, shared: Mapping[str, Shared | None]
) -> Ledger | None:
    """Return a ledger from `beside` as if others had no headroom; None where none has any."""
    unused = {
        name: replace(found, grants=found.grants.without_headroom)
        for name, found in shared.items()
        if found is not None and found.grants.headroom_elsewhere(namespace)
    }
    return beside(ledger, namespace, unused) if unused else None


def headroom(shared: Shared, namespace: str, wanted: ResourceList) -> ResourceList:
    """Return how much more than `wanted` a namespace may take.

    Half of what its part of the spec has left, so that those who come later get some too, out of
    at most half of what is free, the headroom of others included; all where it is alone.

    Args:
        shared: The quota at the version that is to be written over.
        namespace: A namespace that takes part.
        wanted: What it needs.
    """
    return _headroom(shared, namespace, wanted, share=2)


def headroom_limit(shared: Shared, namespace: str, wanted: ResourceList) -> ResourceList:
    """Return up to how much more than `wanted` a namespace may keep: all that its part has left."""
    return _headroom(shared, namespace, wanted, share=1)


def _headroom(shared: Shared, namespace: str, wanted: ResourceList, *, share: int) -> ResourceList:
    if shared.grants.is_recalled:
        return EMPTY
    is_alone = shared.grants.namespaces.keys() <= {namespace}
    others = shared.grants.headroom_elsewhere(namespace)
    free = _free_beside(shared, namespace, wanted)
    found: dict[str, Quantity] = {}
    for part in shared.quota.headroom:
        if namespace not in part.namespaces:
            continue
        held: ResourceList = wanted
        for other in part.namespaces - {namespace}:
            held = add(held, shared.grants.namespaces.get(other, EMPTY))
        for name, amount in part.amounts.items():
            if name not in free:
                continue
            left = amount - held.get(name, ZERO)
            if is_alone:
                found[name] = min(left, free[name])
            else:
                spare = free[name] - others.get(name, ZERO)
                found[name] = min(_part(name, left, share), _part(name, spare, 2))
    return {name: amount for name, amount in found.items() if amount > ZERO}


def _free_beside(shared: Shared, namespace: str, wanted: ResourceList) -> ResourceList:
    """Return what is left of each limit beside what a namespace needs; it may be below zero."""
    kept = _kept_for_others(shared, namespace)[-1]
    promised = [one.amounts for one in shared.grants.promises.values()]
    elsewhere = total_of([shared.grants.held_elsewhere(namespace), kept, *promised])
    return {
        name: amount - elsewhere.get(name, ZERO) - wanted.get(name, ZERO)
        for name, amount in shared.quota.quota.hard.items()
    }


def _part(name: str, amount: Quantity, share: int) -> Quantity:
    unit = 10**6 if name in _IN_MILLI else 10**9
    return Quantity.of_nano(amount.nano // share // unit * unit)


@dataclass(frozen=True, slots=True)
class Raise:
    """Amounts that a namespace is to hold of a quota."""

    need: ResourceList
    """What it needs, at least."""
    headroom: ResourceList = field(default_factory=dict)
    """How much more it takes."""

    @property
    def held(self) -> ResourceList:
        """Both together."""
        return add(self.need, self.headroom)


def raised(grants: Grants, namespace: str, wanted: Raise) -> Grants:
    """Return the grants after a raise."""
    following = with_raised(grants, namespace, wanted.held)
    if not (wanted.headroom or namespace in grants.headroom):
        return following
    held, former = following.namespaces[namespace], grants.headroom.get(namespace, EMPTY)
    unused = {name: held[name] - amount for name, amount in wanted.need.items()}
    return with_headroom(following, namespace, {**former, **unused})


def lowered(grants: Grants, namespace: str, kept: Raise) -> Grants:
    """Return the grants in which a namespace that takes part holds this and no more."""
    return with_headroom(with_lowered(grants, namespace, kept.held), namespace, kept.headroom)


def has_room(shared: Shared, promise: Promise) -> bool:
    """Return whether a promise that stands is free by now, beside all that is held and kept.

    Those that were made later leave it its room.
    """
    made = shared.grants.promises
    at = [*made].index(promise.uid) + 1
    kept = _kept_for_others(shared, promise.namespace)[at]
    held = total_of([shared.grants.total, kept, *(one.amounts for one in [*made.values()][:at])])
    hard = shared.quota.quota.hard
    return all(name not in hard or held[name] <= hard[name] for name in promise.amounts)


def need(account: Account) -> ResourceList:
    """Return what a namespace has to hold: used and reserved, of all that is limited."""
    return {
        name: account.used.get(name, ZERO) + account.reserved.get(name, ZERO)
        for name in account.hard
    }


def is_granted(ledger: Ledger, claims: Iterable[Claim], names: Iterable[str]) -> bool:
    """Return whether the namespace holds what claims ask of shared quotas, if all are new."""
    asked = {name: need(ledger.accounts[name]) for name in names}
    for claim in claims:
        for name in asked.keys() & set(claim.quotas):
            asked[name] = add(asked[name], mask(claim.usage, asked[name]))
    return all(is_within(amounts, ledger.accounts[name].granted) for name, amounts in asked.items())


def growth(before: Ledger, following: Ledger, names: Iterable[str]) -> dict[str, ResourceList]:
    """Return what has to be granted so that `following` may be written in the place of `before`.

    Only what has grown is looked at: what was too much before stops no claim that adds nothing.

    Returns:
        Quota name → what the namespace has to hold; absent where it holds enough.
    """
    found: dict[str, ResourceList] = {}
    for name in names:
        former, account = before.accounts[name], following.accounts[name]
        if account.reserved is former.reserved and account.used is former.used:
            continue
        had, wanted = need(former), need(account)
        more = {
            resource: amount
            for resource, amount in wanted.items()
            if amount > had.get(resource, ZERO) and amount > account.granted.get(resource, ZERO)
        }
        if more:
            found[name] = more
    return found


def raises(
    wanted: Mapping[str, ResourceList],
    ledger: Ledger,
    namespace: str,
    shared: Mapping[str, Shared | None],
) -> dict[str, Raise]:
    """Return what a namespace is to hold where it needs more: with headroom, as far as it may.

    Args:
        wanted: What has to be granted (`growth`).
        ledger: The ledger that needs it.
        shared: The quotas at the versions that are to be written over.
    """
    found: dict[str, Raise] = {}
    for name, amounts in wanted.items():
        quota = shared[name]
        if quota is None or not quota.quota.headroom:
            found[name] = Raise(amounts)
        else:
            whole = need(ledger.accounts[name])
            found[name] = Raise(whole, headroom(quota, namespace, whole))
    return found


def granting(ledger: Ledger, granted: Mapping[str, ResourceList]) -> Ledger:
    """Return the ledger in which the namespace holds at least what is granted."""
    accounts = dict(ledger.accounts)
    for name, amounts in granted.items():
        account = accounts[name]
        accounts[name] = replace(account, granted=max_of(account.granted, amounts))
    return replace(ledger, accounts=accounts)


def holding_only(ledger: Ledger, name: str, granted: ResourceList) -> Ledger:
    """Return the ledger in which the namespace holds `granted` of a quota and no more."""
    account = replace(ledger.accounts[name], granted=granted)
    return replace(ledger, accounts={**ledger.accounts, name: account})


def rewritten(ledger: Ledger) -> Ledger:
    """Return the ledger in a form that is a change, whatever else it says."""
    return replace(ledger, serial=ledger.serial + 1)


def borrowers(shared: Shared, resources: Collection[str]) -> Iterator[tuple[str, ResourceList]]:
    """Yield namespaces of one elastic quota and what they use above its min.

    The spec of the quota that charges a pool says up to what its namespaces may have headroom: the
    min of their elastic quota (`elastic.derived_quotas`). Without that, min is not known.

    Args:
        shared: The quota that charges a pool.
        resources: The quota keys that are asked about.
    """
    if not shared.quota.headroom:
        return
    parts = [(sorted(one.namespaces), one.amounts) for one in shared.quota.headroom]
    in_use = shared.grants.in_use
    guaranteed = {name for names, _ in parts for name in names}
    alone = [([name], EMPTY) for name in in_use if name not in guaranteed]
    for names, least in sorted([*parts, *alone], key=lambda one: one[0]):
        used = total_of(in_use.get(name, EMPTY) for name in names)
        above = excess(mask(used, resources), least)
        if above:
            yield _names(names), above


def _names(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join([*names[:_NAMED], *([f"and {more} more"] if more > 0 else [])])
