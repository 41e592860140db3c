"""Random times out of a seed: the same seed, name and number always give the same time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, TypeAlias

_BITS: Final = 53


@dataclass(frozen=True, slots=True)
class Uniform:
    """Times between two, both included, all equally likely; of two equal ones that one."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Exponential:
    """Times of a process without memory, such as the pauses between arrivals."""

    mean: int


Distribution: TypeAlias = Uniform | Exponential


def sample(distribution: Distribution, seed: int, name: str, number: int) -> int:
    """Return a time in milliseconds.

    Args:
        distribution: How times are distributed.
        seed: Of the simulation.
        name: Of the series, such as a workload's.
        number: The place in the series.
    """
    digest = sha256(f"{seed}/{name}/{number}".encode()).digest()
    drawn = int.from_bytes(digest[:8], "big") >> (64 - _BITS)
    match distribution:
        case Uniform(least, most):
            return least + drawn * (most - least + 1) // (1 << _BITS)
        case Exponential(mean):
            return round(-math.log1p(-drawn / (1 << _BITS)) * mean)
