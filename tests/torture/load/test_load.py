"""The pace of the load."""

from __future__ import annotations

import pytest

from tests.torture.load.load import Pace

CASES = {
    "nothing is tried before there is time": (0, 0.0, 50.0, True),
    "the first one": (0, 0.1, 50.0, False),
    "in time": (499, 10.0, 50.0, False),
    "ahead": (500, 10.0, 50.0, True),
    "no rate": (10**6, 1.0, 0.0, False),
}


@pytest.mark.parametrize(("tried", "seconds", "rate", "ahead"), CASES.values(), ids=CASES.keys())
def test_a_load_with_a_rate_waits_where_it_is_ahead(
    tried: int, seconds: float, rate: float, ahead: bool
) -> None:
    assert Pace(rate).is_ahead(tried, seconds) is ahead


def test_what_is_tried_before_the_pace_counts_is_not_counted_against_it() -> None:
    pace = Pace(50.0, unpaced_seconds=60.0)
    assert not pace.is_ahead(10_000, 59.9)
    assert not pace.is_ahead(10_499, 70.0)
    assert pace.is_ahead(10_500, 70.0)
