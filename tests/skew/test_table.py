"""What history says of each phase."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.skew.table import Span, as_markdown, problems, rows
from tests.torture.observer.facts import Account, Fact, LedgerFact, PodFact

FIRST = Span("first", began=100.0, ended=110.0)
SECOND = Span("second", began=110.0, ended=130.0, leaderless=[2.44, 17.0])


def bound(name: str, at: float, *, is_assigned: bool = True) -> PodFact:
    return PodFact(
        revision=int(at * 10),
        at=at,
        namespace="a",
        name=name,
        uid=name,
        is_assigned=is_assigned,
    )


def ledger(at: float, *accounts: str, is_there: bool = True) -> LedgerFact:
    return LedgerFact(
        revision=int(at * 10),
        at=at,
        namespace="a",
        is_there=is_there,
        accounts={name: Account(uid=name, used={}, reserved={}) for name in accounts},
    )


def test_binds_are_counted_once_and_where_they_were() -> None:
    facts = [
        bound("x", 101.0, is_assigned=False),
        bound("x", 102.0),
        bound("y", 109.0),
        bound("x", 115.0),  # it has changed, and has its node still
        bound("z", 118.0),
    ]
    first, second = rows([FIRST, SECOND], facts)
    assert (first.binds, second.binds) == (2, 1)
    assert (first.pause, second.pause) == (7.0, 12.0)


def test_a_phase_without_a_bind_proves_nothing() -> None:
    found = rows([FIRST, SECOND], [bound("x", 102.0)])
    assert found[1].pause == 20.0
    assert problems(found) == ["second: nothing was bound, so that it proves nothing"]


LOSSES: dict[str, tuple[Sequence[Fact], tuple[str, ...]]] = {
    "written on": ([ledger(101.0, "q"), ledger(112.0, "q", "r")], ()),
    "deleted": ([ledger(101.0, "q"), ledger(112.0, is_there=False)], ("a",)),
    "emptied": ([ledger(101.0, "q"), ledger(112.0)], ("a",)),
    "emptied before": ([ledger(101.0, "q"), ledger(102.0), ledger(112.0, "q")], ()),
    "never more than made": ([ledger(111.0), ledger(112.0)], ()),
}


@pytest.mark.parametrize(("facts", "lost"), LOSSES.values(), ids=LOSSES.keys())
def test_a_ledger_is_lost_where_it_is_deleted_or_emptied(
    facts: Sequence[Fact], lost: tuple[str, ...]
) -> None:
    binds = [bound("x", 102.0), bound("y", 113.0)]
    history: list[Fact] = [*facts, *binds]
    found = rows([FIRST, SECOND], sorted(history, key=lambda fact: fact.at))
    assert found[1].lost == lost
    assert problems(found[1:]) == [f"second: the ledger of {name} was lost" for name in lost]


def test_the_table_has_a_line_for_each_phase() -> None:
    facts: list[Fact] = [
        ledger(101.0, "q"),
        bound("x", 102.0),
        ledger(112.0, "q"),
        bound("y", 113.0),
    ]
    *_, first, second = as_markdown(rows([FIRST, SECOND], facts)).splitlines()
    assert first == "| first | 10 s | 1 | 8.0 s | 1 | 0 | - |"
    assert second == "| second | 20 s | 1 | 17.0 s | 1 | 0 | 2.4 s, 17.0 s |"
