"""Usage of every deferred quota: used, reserved and pending, by the ledgers as they are now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import NAMESPACES, PODS, QUOTA_LEDGERS, NotFoundError, Object
from webhook.kube.metadata import object_name
from webhook.operations.cluster_quotas import SharedQuota, shared_quotas
from webhook.operations.emergency_state import emergency_notes
from webhook.operations.explain.parts import controller_part
from webhook.operations.explain.session import Session
from webhook.operations.reading import name_of
from webhook.operations.snapshot_usage import (
    COUNTED_FROM_PODS,
    NOT_COUNTED,
    ledgers_from_pods,
    namespaces_of,
    opted_in,
)
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList, add, mask, total_of
from webhook.quota.explaining.facts import Health
from webhook.quota.ledger.ledger import OPTED_OUT, Account, Ledger
from webhook.quota.objects.names import SHARED_PREFIX
from webhook.quota.shared.cluster_quotas import own_name
from webhook.state.ledger_store import read_ledger

_COUNTED: Final = "Counted"
_NOT_YET: Final = "usage of namespace {} is not counted yet"
_OF_A_NAMESPACE: Final = "to see a namespace of yours, give -n NAMESPACE"
_LACKS_LEDGERS: Final = ": the snapshot lacks ledgers"
_OTHER_SNAPSHOT: Final = (
    "give -n NAMESPACE for one that the snapshot is of, or take it with the right to list"
    " quotaledgers"
)


class QuotaOrder(StrEnum):
    """Order of the rows."""

    NAME = "name"
    """By namespace, quota and resource."""
    SHARE = "share"
    """The fullest."""
    PENDING = "pending"
    """Those for which most is pending, in proportion to hard."""


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    """One resource of one quota."""

    namespace: str
    """Empty for a quota of several namespaces."""
    quota: str
    resource: str
    used: Quantity
    reserved: Quantity
    pending: Quantity
    """Requests of pods without a node."""
    hard: Quantity

    @property
    def taken(self) -> Quantity:
        """Return what no other pod can have."""
        return self.used + self.reserved


@dataclass(frozen=True, slots=True)
class UsageReport:
    """All rows, and what is not known."""

    rows: tuple[QuotaUsage, ...]
    notes: tuple[str, ...]
    lack: str = ""
    """Why rows may be missing, behind "no deferred quotas"; empty where none is."""
    absent: tuple[str, ...] = ()
    """What the API server says of namespaces that were asked for and do not exist."""


def read_usage(session: Session, namespaces: Iterable[str] = ()) -> UsageReport:
    """Read the ledgers of some namespaces, of all where none is named.

    Quotas of several namespaces are summed over those that are read, and used has what the others
    hold.

    Raises:
        ApiError: The cluster does not answer.
    """
    wanted = tuple(dict.fromkeys(namespaces))
    notes = [*emergency_notes(session.api)]
    unread: set[str | None] = set()
    found = dict(_ledgers(session, wanted, notes, unread))
    ledgers = {name: ledger for name, ledger in found.items() if ledger is not None}
    absent: list[str] = []
    is_uncounted = len(ledgers) < len(found)
    if session.has_no_ledgers and not unread:
        if session.may_lack(PODS):
            return UsageReport((), (*session.unknown, NOT_COUNTED), _LACKS_LEDGERS)
        ledgers = _from_pods(session, wanted, notes, unread)
    rows = [row for name, ledger in ledgers.items() for row in _own_rows(name, ledger)]
    known = {*found, *ledgers}
    for name in wanted:
        if name not in known and name not in unread:
            try:
                why, is_known = _without_ledger(session, name)
            except NotFoundError as err:
                absent.append(err.message)
                continue
            notes.append(why)
            is_uncounted = is_uncounted or not is_known
    if not (wanted or unread):
        what = "which namespaces have opted in"
        joined = _opted_in(session, lambda: session.objects(NAMESPACES), what)
        notes.extend(_NOT_YET.format(name) for name in sorted(joined - known))
        is_uncounted = is_uncounted or not joined <= known
    rows.extend(_shared_rows(session, ledgers, is_whole=not (wanted or unread)))
    controller = controller_part(
        session, None if session.options.is_offline else session.options.now()
    )
    if ledgers and controller.health is Health.DOWN:
        notes.append(f"{controller.detail}: these figures are not renewed")
    lack = " that are counted" if is_uncounted else ""
    if unread:
        is_offline = session.options.is_offline
        lack = _LACKS_LEDGERS if is_offline else " that may be read"
        if is_offline or None in unread:
            notes.append(_OTHER_SNAPSHOT if is_offline else _OF_A_NAMESPACE)
    return UsageReport(tuple(rows), (*session.unknown, *notes), lack, tuple(absent))


def _ledgers(
    session: Session, wanted: tuple[str, ...], notes: list[str], unread: set[str | None]
) -> Iterator[tuple[str, Ledger | None]]:
    """Yield namespaces and ledgers, None for one that is not counted and that a note is about.

    `unread` gets the namespaces whose ledgers may not be read, None for all.
    """
    raws: list[Object] = []
    for place in wanted or (None,):
        what = "the ledgers of all namespaces" if place is None else f"the ledger of {place}"
        before = len(session.unknown)
        raws.extend(session.readable(QUOTA_LEDGERS, what, namespace=place) or ())
        if len(session.unknown) > before:
            unread.add(place)
    for raw in sorted(raws, key=name_of):
        namespace = name_of(raw).partition("/")[0]
        try:
            ledger = read_ledger(raw).ledger
        except InvalidFieldError as err:
            notes.append(f"the ledger of namespace {namespace} cannot be read: {err}")
            yield namespace, None
            continue
        if ledger is None:
            notes.append(_NOT_YET.format(namespace))
            yield namespace, None
            continue
        if any(one.reason == OPTED_OUT for one in ledger.conditions):
            continue
        if any(one.type == _COUNTED and one.status != "True" for one in ledger.conditions):
            notes.append(f"usage of namespace {namespace} is not counted now")
        yield namespace, ledger


def _without_ledger(session: Session, namespace: str) -> tuple[str, bool]:
    """Return why a namespace has no ledger that counts, and whether nothing is to be counted.

    Raises:
        NotFoundError: It does not exist.
    """
    before = len(session.unknown)
    what = f"the labels of namespace {namespace}"
    raw = session.read(lambda: session.api.get(NAMESPACES, namespace), None, what)
    joined = _opted_in(session, lambda: () if raw is None else (raw,), what)
    if len(session.unknown) > before or session.may_lack(NAMESPACES):
        return f"namespace {namespace} has no ledger that counts", False
    if raw is None:
        raise NotFoundError.of(NAMESPACES, namespace)
    if not joined:
        return f"namespace {namespace} has not opted in", True
    return _NOT_YET.format(namespace), False


def _opted_in(session: Session, read: Callable[[], Iterable[Object]], what: str) -> Set[str]:
    """Return the namespaces that have opted in, and that nothing exempts, if they may be read."""

    def labels() -> Mapping[str, Mapping[str, str]]:
        return {
            object_name(raw): FieldReader(raw).child("metadata").string_map("labels")
            for raw in read()
        }

    none: Mapping[str, Mapping[str, str]] = {}
    return opted_in(session.read(labels, none, what)).keys() - session.options.exempt


def _from_pods(
    session: Session, wanted: tuple[str, ...], notes: list[str], unread: set[str | None]
) -> dict[str, Ledger]:
    """Return ledgers as they are counted from the pods of a snapshot without any.

    Where no namespace has opted in, as before an installation, all are counted as if they had.
    """
    found = namespaces_of(session)
    joined = opted_in(found)
    counted = {
        name: labels for name, labels in (joined or found).items() if not wanted or name in wanted
    }
    ledgers = dict(ledgers_from_pods(session, counted, session.options.taken))
    unread.update(counted.keys() - ledgers.keys())
    notes.append(COUNTED_FROM_PODS)
    if found and not joined:
        notes.append("no namespace of the snapshot has opted in: this is what would be counted")
    return ledgers


def _own_rows(namespace: str, ledger: Ledger) -> Iterator[QuotaUsage]:
    for name, account in sorted(ledger.accounts.items()):
        if not name.startswith(SHARED_PREFIX):
            yield from _rows(namespace, name, account)


def _rows(namespace: str, name: str, account: Account) -> Iterator[QuotaUsage]:
    for resource, hard in sorted(account.hard.items()):
        yield QuotaUsage(
            namespace,
            name,
            resource,
            account.used.get(resource, ZERO),
            account.reserved.get(resource, ZERO),
            account.pending.get(resource, ZERO),
            hard,
        )


def _shared_rows(
    session: Session, ledgers: Mapping[str, Ledger], *, is_whole: bool
) -> Iterator[QuotaUsage]:
    sums: dict[str, Account] = {}
    for ledger in ledgers.values():
        for name, account in ledger.accounts.items():
            if name.startswith(SHARED_PREFIX):
                sums[name] = _sum(sums.get(name), account)
    others = {} if is_whole or not sums else _held_by_others(session, ledgers.keys())
    for name, account in sorted(sums.items()):
        held = mask(others.get(own_name(name), {}), account.hard)
        yield from _rows("", own_name(name), replace(account, used=add(account.used, held)))


def _held_by_others(session: Session, shown: Set[str]) -> Mapping[str, ResourceList]:
    """Return what other namespaces than those shown hold of each cluster quota."""
    none: tuple[SharedQuota, ...] = ()
    what = "what other namespaces use of cluster quotas"
    return {
        one.spec.name: total_of(
            held for name, held in one.grants.in_use.items() if name not in shown
        )
        for one in session.read(lambda: shared_quotas(session.api), none, what)
    }


def _sum(before: Account | None, account: Account) -> Account:
    if before is None:
        return account
    return Account(
        account.observed,
        account.hard,
        add(before.used, account.used),
        add(before.reserved, account.reserved),
        add(before.pending, account.pending),
    )


def in_order(rows: Iterable[QuotaUsage], order: QuotaOrder) -> list[QuotaUsage]:
    """Return the rows sorted; equal ones by namespace, quota and resource."""

    def name(row: QuotaUsage) -> tuple[bool, str, str, str]:
        return not row.namespace, row.namespace, row.quota, row.resource

    listed = sorted(rows, key=name)
    if order is QuotaOrder.NAME:
        return listed

    def share(row: QuotaUsage) -> tuple[bool, int]:
        return _parts_per_million(row.taken if order is QuotaOrder.SHARE else row.pending, row.hard)

    return sorted(listed, key=share, reverse=True)


def _parts_per_million(amount: Quantity, hard: Quantity) -> tuple[bool, int]:
    """Return an amount in proportion to hard; anything of nothing is more than all of something."""
    if hard.sign <= 0:
        return amount.sign > 0, 0
    return False, amount.nano * 10**6 // hard.nano


def bar_cells(amounts: Iterable[Quantity], hard: Quantity, width: int) -> list[int]:
    """Return how many of `width` cells each amount fills, one after the other, at most all.

    What is not zero fills a cell, where one is left.
    """
    filled = 0
    found: list[int] = []
    for amount in amounts:
        share = width if hard.sign <= 0 else amount.nano * width // hard.nano
        count = min(width - filled, max(share, 1)) if amount.sign > 0 else 0
        filled += count
        found.append(count)
    return found
