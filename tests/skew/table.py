"""The facts of a run: what history says of each phase, as a table, and what must not be."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.torture.observer.facts import Fact, LedgerFact, PodFact


@dataclass(slots=True)
class Span:
    """A phase as it went; `began` is before its first move.

    Attributes:
        leaderless: How long no controller led, for each time that the one that led was ended.
    """

    name: str
    began: float
    ended: float = 0.0
    leaderless: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Row:
    """What happened in a phase.

    Attributes:
        pause: The longest time between two binds.
        lost: Namespaces whose ledger was deleted, or emptied.
    """

    span: Span
    binds: int
    pause: float
    writes: int
    lost: tuple[str, ...]


def rows(spans: Iterable[Span], facts: Sequence[Fact]) -> list[Row]:
    """Return what history says of each phase."""
    bound = _binds(facts)
    ledgers = [fact for fact in facts if isinstance(fact, LedgerFact)]
    gone = _losses(ledgers)
    return [
        Row(
            span,
            binds=sum(_is_in(span, at) for at in bound),
            pause=_longest_pause(span, bound),
            writes=sum(_is_in(span, fact.at) for fact in ledgers),
            lost=tuple(sorted({fact.namespace for fact in gone if _is_in(span, fact.at)})),
        )
        for span in spans
    ]


def problems(found: Iterable[Row]) -> list[str]:
    """Return what must not be in any phase: a lost ledger, no bind at all."""
    said = []
    for row in found:
        said += [f"{row.span.name}: the ledger of {name} was lost" for name in row.lost]
        if not row.binds:
            said.append(f"{row.span.name}: nothing was bound, so that it proves nothing")
    return said


def as_markdown(found: Sequence[Row]) -> str:
    """Return the table."""
    return "\n".join([*_HEAD, *map(_line, found)])


_HEAD: Final = (
    "| phase | lasted | binds | longest pause | writes of ledgers | ledgers lost | leaderless |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


def _line(row: Row) -> str:
    span = row.span
    leaderless = ", ".join(f"{seconds:.1f} s" for seconds in span.leaderless) or "-"
    return (
        f"| {span.name} | {span.ended - span.began:.0f} s | {row.binds} | {row.pause:.1f} s"
        f" | {row.writes} | {len(row.lost)} | {leaderless} |"
    )


def _is_in(span: Span, at: float) -> bool:
    return span.began <= at < span.ended


def _binds(facts: Iterable[Fact]) -> list[float]:
    """Return when pods got their nodes."""
    assigned: set[str] = set()
    moments = []
    for fact in facts:
        if isinstance(fact, PodFact) and fact.is_assigned and fact.uid not in assigned:
            assigned.add(fact.uid)
            moments.append(fact.at)
    return moments


def _longest_pause(span: Span, bound: Iterable[float]) -> float:
    moments = [span.began, *(at for at in sorted(bound) if _is_in(span, at)), span.ended]
    return max(after - before for before, after in itertools.pairwise(moments))


def _losses(ledgers: Iterable[LedgerFact]) -> list[LedgerFact]:
    """Return where a ledger was deleted, or lost all accounts that it had."""
    last: dict[str, LedgerFact] = {}
    found = []
    for fact in ledgers:
        before = last.get(fact.namespace)
        had_some = before is not None and before.is_there and before.accounts
        if had_some and not (fact.is_there and fact.accounts):
            found.append(fact)
        last[fact.namespace] = fact
    return found
