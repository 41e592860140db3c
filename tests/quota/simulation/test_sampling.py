"""Random times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.quota.simulation.sampling import Distribution, Exponential, Uniform, sample

SEEDS = st.integers(0, 2**63 - 1)


@given(SEEDS, st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**6))
def test_uniform_times_are_in_their_range(seed: int, one: int, other: int, number: int) -> None:
    least, most = sorted((one, other))
    assert least <= sample(Uniform(least, most), seed, "web", number) <= most


@given(SEEDS, st.integers(0, 10**6))
def test_series_do_not_depend_on_each_other(seed: int, number: int) -> None:
    times = Uniform(0, 2**50)
    assert sample(times, seed, "web", number) == sample(times, seed, "web", number)
    assert sample(times, seed, "web", number) != sample(times, seed, "api", number)
    assert sample(times, seed, "web", number) != sample(times, seed, "web", number + 1)


@pytest.mark.parametrize("times", [Uniform(0, 20_000), Exponential(10_000)], ids=str)
def test_times_have_their_mean(times: Distribution) -> None:
    drawn = [sample(times, 1, "web", number) for number in range(20_000)]
    assert 9_700 < sum(drawn) / len(drawn) < 10_300


def test_a_seed_means_the_same_times_in_every_release() -> None:
    drawn = [sample(Exponential(60_000), 1, "team-a/web/arrival", number) for number in range(4)]
    assert drawn == [11_692, 68_231, 90_743, 15_837]
