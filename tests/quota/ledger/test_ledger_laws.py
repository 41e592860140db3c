"""Try to break the ledger's laws with many actors, faults and arbitrary orders of events."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.quota.ledger_world.driver import STEPS, THEMES, Step, drive, random_steps
from tests.quota.ledger_world.world import World

_NUMBERS = st.integers(0, 8)
_STEPS = st.builds(Step, st.sampled_from(list(STEPS)), _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(_STEPS, min_size=20, max_size=80), holds=st.booleans())
def test_the_laws_hold_whatever_happens(steps: list[Step], *, holds: bool) -> None:
    drive(World(holds=holds), steps)


@pytest.mark.parametrize("seed", range(8))
def test_the_laws_hold_over_thousands_of_steps(seed: int) -> None:
    commits = 0
    for part in range(40):
        world = World()
        drive(world, random_steps(seed * 1000 + part, 150, has_gates=False))
        commits += world.requests.commits
    assert commits > 100, "the steps never get anything bound, so they prove nothing"


@pytest.mark.parametrize("seed", range(4))
def test_the_laws_hold_where_pods_wait_behind_our_gate(seed: int) -> None:
    commits = releases = 0
    for part in range(40):
        world = World()
        drive(world, random_steps(seed * 1000 + part, 150, has_gates=True))
        commits += world.requests.commits
        releases += world.releases
    assert commits > 40, "the steps never get anything bound, so they prove nothing"
    assert releases > 100, "nothing is ever released"


@pytest.mark.parametrize("theme", THEMES)
def test_the_laws_hold_whatever_it_is_about(theme: str) -> None:
    commits = 0
    for seed in range(200):
        world = World(holds=seed % 2 == 1)
        drive(world, random_steps(seed, 120, theme=theme))
        commits += world.requests.commits
    assert commits > 100, "the steps never get anything bound, so they prove nothing"
