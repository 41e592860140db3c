"""The conditions of a ledger: what could not be counted, and what has happened to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.quota.ledger.ledger import GUARDED, OPTED_OUT, Condition, Ledger

COUNTED: Final = "Counted"
QUOTAS_READABLE: Final = "QuotasReadable"
AMOUNTS_COUNTABLE: Final = "AmountsCountable"
REBUILT: Final = Condition(
    "Rebuilt",
    "True",
    "LedgerLost",
    "there was no ledger any more; this one was counted from the pods",
)
"""The condition of a ledger that replaces a lost one; it stays."""
NOT_FOUND: Final = replace(
    REBUILT,
    reason="LedgerNotFound",
    message="there was no ledger when this leadership began, as it was lost or not made yet; this"
    " one was counted from the pods",
)
"""The same, of one that no leader is known to have made before."""
_OPTED_OUT: Final = Condition(
    COUNTED, "False", OPTED_OUT, "the namespace has opted out: nothing is counted here"
)

_MAX_NAMED: Final = 8
MAX_REASON_CHARACTERS: Final = 300
"""Length of the reason that a condition gives for one pod or quota."""


@dataclass(frozen=True, slots=True)
class CountingProblems:
    """Problems in the way of counting a namespace."""

    pods: Mapping[str, str]
    """Why pods cannot be counted, by any key; texts begin with the pod's name."""
    quotas: Iterable[str]
    """Why quotas cannot be read, one sentence each."""
    unmatchable: Mapping[str, str]
    """Quota name → why its scopes cannot be evaluated."""
    uncountable: Mapping[str, str] = field(default_factory=dict)
    """Pods with amounts that are too large to be counted, and their fields, by any key."""


def counting_conditions(problems: CountingProblems) -> tuple[Condition, ...]:
    """Return what could be counted; when each of it began is not known here."""
    quotas = [
        *problems.quotas,
        *(f"quota {name}: {why}" for name, why in sorted(problems.unmatchable.items())),
    ]
    pods = sorted(problems.pods.values())
    return (
        _counted(pods, quotas),
        _readable(quotas, is_unmatchable=bool(problems.unmatchable)),
        _countable(sorted(problems.uncountable.values())),
    )


def opted_out_conditions() -> tuple[Condition, ...]:
    """Return the conditions of a ledger whose namespace has opted out."""
    return (_OPTED_OUT, _readable([], is_unmatchable=False), _countable([]))


def merge_conditions(
    present: tuple[Condition, ...], wanted: Iterable[Condition], now: str
) -> tuple[Condition, ...]:
    """Return the conditions to write: those that are `wanted`, why it was rebuilt, and `GUARDED`.

    All others are dropped, since only the controller says them: what a stolen token wrote would
    stay. A condition whose status stays keeps the time since when it has been so.
    """
    former_of = {one.type: one for one in present}
    known = {
        one.type: one
        for one in present
        if replace(one, last_transition_time="") in {REBUILT, NOT_FOUND}
    }
    for one in wanted:
        former = former_of.get(one.type)
        if former is None and (one.type, one.status) == (AMOUNTS_COUNTABLE, "True"):
            continue  # few ledgers ever need it
        is_same = former is not None and former.status == one.status
        since = former.last_transition_time if is_same and former else ""
        known[one.type] = replace(one, last_transition_time=since or now)
    guarded = former_of.get(GUARDED)
    if guarded is not None:
        known[GUARDED] = replace(guarded, last_transition_time=guarded.last_transition_time or now)
    return tuple(known.values())


def marked(ledger: Ledger, guard_uid: str) -> Ledger:
    """Return a ledger that names the registration of this uid; an empty one names none."""
    if ledger.guard_uid == guard_uid:
        return ledger
    others = [one for one in ledger.conditions if one.type != GUARDED]
    mark = [Condition(GUARDED, "True", "Registered", guard_uid)] if guard_uid else []
    return replace(ledger, conditions=(*others, *mark))


def _counted(pods: list[str], quotas: list[str]) -> Condition:
    if pods:
        return Condition(
            COUNTED,
            "False",
            "PodsUnreadable",
            f"usage stays as it was, because these pods cannot be read: {_listed(pods)}",
        )
    if quotas:
        message = f"these quotas are not counted: {_listed(quotas)}"
        return Condition(COUNTED, "False", "QuotasUnreadable", message)
    return Condition(COUNTED, "True", "AllCounted")


def _readable(quotas: list[str], *, is_unmatchable: bool) -> Condition:
    if not quotas:
        return Condition(QUOTAS_READABLE, "True", "AllReadable")
    reason = "Unmatchable" if is_unmatchable else "Unreadable"
    return Condition(QUOTAS_READABLE, "False", reason, _listed(quotas))


def _countable(pods: list[str]) -> Condition:
    if not pods:
        return Condition(AMOUNTS_COUNTABLE, "True", "AllCountable")
    message = (
        "these pods ask for more than can be counted, which is above every limit of these "
        f"resources: {_listed(pods)}"
    )
    return Condition(AMOUNTS_COUNTABLE, "False", "AmountsTooLarge", message)


def _listed(texts: list[str]) -> str:
    named = "; ".join(text[:MAX_REASON_CHARACTERS] for text in texts[:_MAX_NAMED])
    more = len(texts) - _MAX_NAMED
    return f"{named}; and {more} more" if more > 0 else named
