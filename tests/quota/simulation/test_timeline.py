"""Sums over time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from webhook.quota.simulation.timeline import PARTS, Timeline

CHANGES = st.lists(st.tuples(st.integers(0, 40_000), st.integers(-5, 5)), max_size=30)


@given(CHANGES, st.integers(1, 40_000))
def test_sums_are_exact_however_long_the_parts_become(
    changes: list[tuple[int, int]], rest: int
) -> None:
    line = Timeline()
    total = value = time = 0
    for pause, difference in changes:
        total += value * pause
        time += pause
        value += difference
        line.change(time, difference)
    end = time + rest
    assert line.total(end) == total + value * rest
    length, parts = line.means(end)
    assert sum(amount for amount, _ in parts) == total + value * rest
    assert sum(lasts for _, lasts in parts) == end
    assert all(lasts == length for _, lasts in parts[:-1])
    assert len(parts) <= PARTS


def test_a_value_that_does_not_last_is_no_peak() -> None:
    line = Timeline()
    for difference in (3, 4, -5):
        line.change(10, difference)
    line.change(20, 0)
    assert line.peak == 2
