"""Amounts as whole numbers of a billionth, read from Kubernetes' texts.

Written for the observer alone, so that a fault in the product's own arithmetic cannot hide itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Final, TypeAlias

Amounts: TypeAlias = Mapping[str, int]
"""Resource or quota key → billionths of a core, a byte or a piece."""

NANO: Final = 10**9

_TEXT: Final = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:([eE][+-]?\d+)|([a-zA-Z]*))", re.ASCII)
_SUFFIXES: Final[Mapping[str, Fraction]] = {
    "": Fraction(1),
    **{suffix: Fraction(1000) ** (power - 3) for power, suffix in enumerate("num")},
    **{suffix: Fraction(1000) ** (power + 1) for power, suffix in enumerate("kMGTPE")},
    **{f"{letter}i": Fraction(1024) ** (power + 1) for power, letter in enumerate("KMGTPE")},
}


@lru_cache(maxsize=4096)
def billionths(text: str) -> int:
    """Read a quantity; what is finer than a billionth rounds away from zero.

    Raises:
        ValueError: The text is no quantity.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a quantity")
    sign, number, exponent, suffix = found.groups()
    scale = _SUFFIXES.get(suffix or "")
    if scale is None:
        raise ValueError(f"{text!r} is not a quantity: unknown suffix {suffix!r}")
    size = math.ceil(Fraction(number + (exponent or "")) * scale * NANO)
    return -size if sign == "-" else size


def read_amounts(raw: object) -> dict[str, int]:
    """Read a resource list; numbers stand for their text."""
    if not isinstance(raw, Mapping):
        return {}
    return {str(name): billionths(str(value)) for name, value in raw.items()}


def total(lists: Iterable[Amounts]) -> dict[str, int]:
    """Add up, key by key."""
    result: dict[str, int] = {}
    for amounts in lists:
        for key, amount in amounts.items():
            result[key] = result.get(key, 0) + amount
    return result


def largest(lists: Iterable[Amounts]) -> dict[str, int]:
    """Take the largest of each key; a key that one list lacks comes from the others."""
    result: dict[str, int] = {}
    for amounts in lists:
        for key, amount in amounts.items():
            result[key] = max(result.get(key, amount), amount)
    return result


def spelled(amounts: Amounts) -> str:
    """Write amounts for people, exactly."""
    return ",".join(f"{key}={_decimal(value)}" for key, value in sorted(amounts.items()))


def _decimal(value: int) -> str:
    whole, rest = divmod(abs(value), NANO)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{'-' if value < 0 else ''}{whole}{fraction}"
