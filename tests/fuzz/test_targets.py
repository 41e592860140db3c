"""Every target with its seeds, and with these cut off, mixed and damaged by a fixed rule."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.fuzz.seeds import CORPUS, seeds_of
from tests.fuzz.targets import TARGETS, running_engine

DAMAGED = 60
"""Damaged inputs of each target; `scripts/fuzz` tries some ten thousand a second, by coverage."""


@pytest.fixture(scope="module", autouse=True)
def _no_engine_is_left() -> Iterator[None]:
    """Stop the engine: others count threads and read logs of their process."""
    yield
    running_engine().stop()
    running_engine.cache_clear()


def damaged(seeds: list[bytes]) -> Iterator[bytes]:
    chosen = random.Random(20261125)  # noqa: S311 - the same inputs in every run
    for _ in range(DAMAGED):
        data = bytearray(chosen.choice(seeds))
        for _ in range(chosen.randint(1, 4)):
            at = chosen.randrange(len(data) + 1)
            other = chosen.choice(seeds)
            data[at : at + chosen.randrange(6)] = other[at : at + chosen.randrange(12)]
        yield bytes(data[: chosen.choice([len(data), chosen.randrange(len(data) + 1)])])


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_what_they_become_are_read_as_promised(name: str) -> None:
    seeds = list(seeds_of(name))
    for data in (*seeds, *damaged(seeds)):
        TARGETS[name](data)


def test_every_kept_input_belongs_to_a_target() -> None:
    assert {each.name for each in CORPUS.iterdir()} <= TARGETS.keys()
