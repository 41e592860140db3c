"""How many reservations a ledger has room for, and which part of it is for binds alone."""

from __future__ import annotations

import pytest

from webhook.quota.ledger.ledger import EMPTY, Ledger, Reservation, ReservationSource
from webhook.quota.ledger.ledger_codec import written_bytes_of
from webhook.quota.ledger.ledger_room import (
    MAX_LEDGER_BYTES,
    is_crowded,
    is_for_binds_only,
    release_room,
)


def a_ledger(count: int, *, name: str = "web") -> Ledger:
    made = [
        Reservation(f"uid-{number}", name, ReservationSource.RELEASE, EMPTY, {}, (), 1)
        for number in range(count)
    ]
    return Ledger({}, {one.uid: one for one in made})


@pytest.mark.parametrize(
    ("may_be", "released"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (8, 6), (4000, 3000)]
)
def test_releases_leave_a_quarter_where_it_is_a_whole_one(may_be: int, released: int) -> None:
    assert release_room(a_ledger(0), may_be) == released
    assert release_room(a_ledger(released - 1), may_be) == 1
    assert not is_for_binds_only(a_ledger(released - 1), may_be)
    assert release_room(a_ledger(released), may_be) == 0
    assert is_for_binds_only(a_ledger(released), may_be)
    assert release_room(a_ledger(released + 1), may_be) == 0


def test_without_a_ledger_nothing_is_released() -> None:
    assert release_room(None, 4000) == 0


def test_it_is_crowded_beyond_a_half_and_until_less_is_taken() -> None:
    taken = range(9)
    assert [is_crowded(a_ledger(count), 8) for count in taken] == [False] * 5 + [True] * 4
    still = [is_crowded(a_ledger(count), 8, was_crowded=True) for count in taken]
    assert still == [False] * 4 + [True] * 5


def test_long_reservations_fill_it_sooner() -> None:
    one = a_ledger(1, name="x" * 5000).reservations["uid-0"]
    half = MAX_LEDGER_BYTES // 2 // written_bytes_of(one)
    assert not is_crowded(a_ledger(half - 5, name="x" * 5000), 4000)
    assert is_crowded(a_ledger(half + 5, name="x" * 5000), 4000)
    assert not is_for_binds_only(a_ledger(half + 5, name="x" * 5000), 4000)
    assert is_for_binds_only(a_ledger(half + half // 2 + 5, name="x" * 5000), 4000)
