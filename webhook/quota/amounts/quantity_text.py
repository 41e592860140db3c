"""The text of quantities: what Kubernetes reads as one, and how it prints one.

An amount is an exact int of nano units: every Kubernetes quantity is a multiple of 10^-9,
because the parser rounds away from zero to one.

Rules, as in kubernetes v1.36, apimachinery/pkg/api/resource (quantity.go, suffix.go):

1. sign, digits with at most one point, suffix; ASCII only; nothing between or around.
2. The suffix is a decimal letter (n to E), a binary one (Ki to Ei), or `e`/`E` and an
   exponent, which is read as 64 bits and cut to 32: `1e4294967297` is 10.
3. Binary amounts are capped at +-(2^63-1), decimal ones at nothing. A binary amount
   between -1 and 1 becomes a decimal one.
4. Texts that are short and need no rounding may be remembered and printed as typed.
5. A text without a digit is 0 where the platform's parser takes its short cut (`.`, `Gi`),
   and an error elsewhere (`Pi`).

Unlike the platform's parser, which would compute for minutes, this one refuses exponents
beyond +-300 and more than 1000 digits. Amounts are computed as a whole, so that an exponent of
three digits more would make kilobytes of a few characters, and a body has room for many.
"""

from __future__ import annotations

import re
from decimal import Decimal
from enum import Enum, unique
from functools import lru_cache
from typing import Final, NamedTuple

NANO_PER_UNIT: Final = 10**9
MAX_EXPONENT: Final = 300
MAX_DIGITS: Final = 1_000

FORMAT_FAULT: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
SUFFIX_FAULT: Final = "unable to parse quantity's suffix"
NUMERIC_FAULT: Final = "unable to parse numeric part of quantity"
SIZE_FAULT: Final = (
    f"an exponent beyond {MAX_EXPONENT} or more than {MAX_DIGITS} digits are not supported"
)


@unique
class Format(Enum):
    """Format of an amount without remembered text."""

    SI = "DecimalSI"
    BIN = "BinarySI"
    EXP = "DecimalExponent"


class Scanned(NamedTuple):
    """Value of a text."""

    nano: int
    format: Format
    remembered: str | None
    """The text itself where it is printed as typed."""


class _Scale(NamedTuple):
    format: Format
    exponent: int
    """Power of ten, for BIN of two."""


class _Number(NamedTuple):
    digits: str
    """Whole digits without leading zeros, then those behind the point; at least one."""
    fraction: int
    """How many digits are behind the point."""


# Possessive quantifiers: one pass, as the platform's scanner, and linear for any text.
_SHAPE: Final = re.compile(
    r"(?P<sign>[+-]?+)0*+(?P<whole>[0-9]*+)(?:\.(?P<part>[0-9]*+))?+"
    r"(?P<suffix>[eEinumkKMGTP]*+[-+]?+[0-9]*+)"
)
_EXPONENT: Final = re.compile(r"[eE](?P<sign>[+-]?)0*+(?P<digits>[0-9]*+)")

_DECIMAL_LETTERS: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY_LETTERS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_LOWEST_EXPONENT: Final = -9

_SUFFIXES: Final = {
    letter: _Scale(Format.BIN, 10 * power) for power, letter in enumerate(_BINARY_LETTERS)
} | {
    letter: _Scale(Format.SI, _LOWEST_EXPONENT + 3 * power)
    for power, letter in enumerate(_DECIMAL_LETTERS)
}

_BINARY_CAP: Final = (2**63 - 1) * NANO_PER_UNIT
_SHORT_CUT_DIGITS: Final = 18
# Whole digits the platform's short cut takes per power of two.
_BINARY_SHORT_CUT_DIGITS: Final = {10: 11, 20: 8, 30: 5, 40: 2}
# Python converts between int and text without limit below this many digits.
_UNLIMITED_DIGITS: Final = 600
_UNLIMITED_INT: Final = 10**_UNLIMITED_DIGITS


def scan(text: str) -> Scanned | str:
    """Read a quantity's text; what is not one gives the fault in the platform's words."""
    shape = _SHAPE.fullmatch(text)
    if shape is None or not text:
        return FORMAT_FAULT
    sign, whole, part, suffix = shape["sign"], shape["whole"], shape["part"] or "", shape["suffix"]
    scale = _SUFFIXES.get(suffix) or _exponent_scale(suffix)
    if scale is None:
        return SUFFIX_FAULT
    number = _Number((whole or "0") + part, len(part))
    if _is_too_large(number, scale):
        return SIZE_FAULT
    short = _takes_short_cut(number, scale)
    if not short and _has_no_digit(text, suffix):
        return NUMERIC_FAULT
    nano, style = _nano(number, scale), scale.format
    if style is Format.BIN:
        nano = min(nano, _BINARY_CAP)
        style = Format.SI if 0 < nano < NANO_PER_UNIT else Format.BIN
    remembered = text if short and _is_remembered(number, scale) else None
    return Scanned(-nano if sign == "-" else nano, style, remembered)


def canonical_text(nano: int, style: Format) -> str:
    """Print an amount as the platform does when it remembers no text.

    An amount too large for the last letter (SI from 10^21, BIN from 2^70) prints without
    one and so reads back as another amount; `has_suffix` tells.
    """
    if nano == 0:
        return "0"
    # the same sums come up again and again; huge ones would fill the cache with digits
    return _canonical_cached(nano, style) if abs(nano) < _CACHED_BELOW else _canonical(nano, style)


def _canonical(nano: int, style: Format) -> str:
    if style is Format.BIN and _prints_binary(nano):
        mantissa, power = _binary_parts(nano)
        return f"{mantissa}{_letter(_BINARY_LETTERS, power)}"
    digits, exponent = _decimal_parts(nano)
    sign = "-" if nano < 0 else ""
    if style is Format.EXP:
        return f"{sign}{digits}e{exponent}" if exponent else f"{sign}{digits}"
    return f"{sign}{digits}{_letter(_DECIMAL_LETTERS, (exponent - _LOWEST_EXPONENT) // 3)}"


_CACHED_BELOW: Final = 2**128
_CACHED_TEXTS: Final = 1024
_canonical_cached = lru_cache(maxsize=_CACHED_TEXTS)(_canonical)


def has_suffix(nano: int, style: Format) -> bool:
    """Return whether there is a suffix for the canonical text of this amount."""
    if nano == 0 or style is Format.EXP:
        return True
    if style is Format.BIN and _prints_binary(nano):
        return _binary_parts(nano)[1] < len(_BINARY_LETTERS)
    return _decimal_parts(nano)[1] <= 18


def digits_of(amount: int) -> str:
    """Print a non-negative int of any size; Python's own conversion stops at 4300 digits."""
    return str(amount) if amount < _UNLIMITED_INT else str(Decimal(amount))


def _exponent_scale(suffix: str) -> _Scale | None:
    found = _EXPONENT.fullmatch(suffix)
    if found is None or not suffix[-1].isdigit() or len(found["digits"]) > 19:
        return None
    exponent = int(f"{found['sign']}{found['digits'] or '0'}")
    if not -(2**63) <= exponent < 2**63:
        return None
    return _Scale(Format.EXP, (exponent + 2**31) % 2**32 - 2**31)


def _is_too_large(number: _Number, scale: _Scale) -> bool:
    kept = number.digits.rstrip("0")
    exponent = scale.exponent - number.fraction + len(number.digits) - len(kept)
    canonical = exponent // 3 * 3
    significant = len(kept.lstrip("0"))
    return max(abs(scale.exponent), canonical) > MAX_EXPONENT or significant > MAX_DIGITS


def _takes_short_cut(number: _Number, scale: _Scale) -> bool:
    digits, fraction = len(number.digits), number.fraction
    if scale.format is Format.BIN:
        return fraction == 0 and digits <= _BINARY_SHORT_CUT_DIGITS.get(scale.exponent, 0)
    return digits <= _SHORT_CUT_DIGITS and scale.exponent - fraction >= _LOWEST_EXPONENT


def _has_no_digit(text: str, suffix: str) -> bool:
    number = text[: len(text) - len(suffix)] if suffix else text
    return not number.strip("+-.")


def _is_remembered(number: _Number, scale: _Scale) -> bool:
    digits = number.digits
    if scale.format is Format.BIN:
        return int(digits) % 8 != 0
    whole_groups = (scale.exponent - number.fraction) % 3 == 0
    return whole_groups and not digits.endswith("000") and digits[0] != "0"


def _nano(number: _Number, scale: _Scale) -> int:
    """Return the amount without its sign in nano units, rounded up."""
    kept = number.digits.rstrip("0")
    power = len(number.digits) - len(kept) - number.fraction - _LOWEST_EXPONENT
    significant = kept.lstrip("0") or "0"
    is_short = len(significant) <= _UNLIMITED_DIGITS
    amount = int(significant) if is_short else int(Decimal(significant))
    if scale.format is Format.BIN:
        amount <<= scale.exponent
    else:
        power += scale.exponent
    return _times_power_of_ten(amount, power)


def _times_power_of_ten(amount: int, power: int) -> int:
    """Multiply, rounding up."""
    if amount == 0 or -power > amount.bit_length():  # far below 1: spare the large divisor
        return min(amount, 1)
    unit: int = 10 ** abs(power)
    return amount * unit if power >= 0 else -(-amount // unit)


def _prints_binary(nano: int) -> bool:
    return abs(nano) >= 1024 * NANO_PER_UNIT and nano % NANO_PER_UNIT == 0


def _binary_parts(nano: int) -> tuple[str, int]:
    units = abs(nano) // NANO_PER_UNIT
    power = ((units & -units).bit_length() - 1) // 10
    return ("-" if nano < 0 else "") + digits_of(units >> 10 * power), power


def _decimal_parts(nano: int) -> tuple[str, int]:
    digits = digits_of(abs(nano))
    groups = (len(digits) - len(digits.rstrip("0"))) // 3
    return digits[: len(digits) - 3 * groups], 3 * groups + _LOWEST_EXPONENT


def _letter(letters: tuple[str, ...], power: int) -> str:
    return letters[power] if power < len(letters) else ""
