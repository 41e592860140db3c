"""Quantity: an exact amount of a resource, with Kubernetes' reading, arithmetic and text.

Laws:

1. Amounts are exact: addition, subtraction and comparison never round.
2. Equality, order and hash are by amount alone; format and text never matter.
3. A sum has the format of its left operand, or of its right one when the left is zero.
4. `str()` is the text the API server prints: as typed where it remembers that, else canonical.

Source: kubernetes v1.36, apimachinery/pkg/api/resource/quantity.go.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from webhook.jsonfields.encoding import NumberText
from webhook.jsonfields.fields import InvalidFieldError, json_type_of
from webhook.quota.amounts.quantity_text import (
    FORMAT_FAULT,
    MAX_DIGITS,
    NANO_PER_UNIT,
    SIZE_FAULT,
    Format,
    canonical_text,
    digits_of,
    has_suffix,
    scan,
)

__all__ = [
    "COUNTABLE",
    "UNCOUNTABLE",
    "ZERO",
    "Format",
    "InvalidQuantityError",
    "Quantity",
    "QuantityText",
]

_NANO_PER_MILLI: Final = 10**6
_CACHED_LENGTH: Final = 32
_CACHED_TEXTS: Final = 1024
_SHOWN_LENGTH: Final = 64
# What a JSON decoder can leave around a quantity that the API server trims. Control
# characters are not among them: they can only have been written as an escape.
_TRIMMED: Final = " \u0085\u00a0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


class InvalidQuantityError(InvalidFieldError):
    """A value is not a quantity.

    Attributes:
        text: The value as written; empty when it is not a text.
        reason: The fault, in the platform's words where it has some.
    """

    def __init__(self, value: object, *, field: str = "", reason: str = FORMAT_FAULT) -> None:
        self.text = str(value) if isinstance(value, str) else ""
        self.reason = reason
        super().__init__(field, f"{_shown(value)} is not a quantity: {reason}")

    @property
    def is_too_large(self) -> bool:
        """Whether it is a quantity for the API server, with more digits than are read here."""
        return self.reason == SIZE_FAULT


class Quantity:
    """An exact amount; it never changes."""

    __slots__ = ("_format", "_nano", "_text")

    def __init__(self, nano: int, style: Format = Format.SI, text: str | None = None) -> None:
        if not isinstance(nano, int):
            raise TypeError(
                f"Quantity() takes a whole number of 10^-9, not {type(nano).__name__};"
                f" a text is read by Quantity.parse({str(nano)!r})"
            )
        self._nano = nano
        self._format = style
        self._text = text

    @staticmethod
    def parse(text: str, *, field: str = "") -> Quantity:
        """Read a quantity's text, which has no spaces in or around it.

        Args:
            text: Such as `1.5Gi`, `100m`, `1e3`.
            field: YAML path, for the message.

        Raises:
            InvalidQuantityError: Not a quantity, or beyond 1000 digits or 10^+-300.
        """
        if not isinstance(text, str):
            raise InvalidQuantityError(text, field=field)
        read = _read_cached(text) if len(text) <= _CACHED_LENGTH else _read(text)
        if isinstance(read, Quantity):
            return read
        raise InvalidQuantityError(text, field=field, reason=read)

    @staticmethod
    def from_json(value: object, *, field: str = "") -> Quantity:
        """Read a decoded JSON value as the API server does: a text or a number; null is 0.

        Spaces around a text are trimmed. A Python float is refused: its text is lost.

        Raises:
            InvalidQuantityError: Anything else, or not a quantity.
        """
        if type(value) is str and len(value) <= _CACHED_LENGTH:
            read = _read_trimmed(value)
            if isinstance(read, Quantity):
                return read
        if isinstance(value, QuantityText):
            return value.quantity
        if isinstance(value, str):
            text = str(value) if isinstance(value, NumberText) else value.strip(_TRIMMED)
            return Quantity.parse(text, field=field)
        if value is None:
            return ZERO
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidQuantityError(value, field=field)
        if value.bit_length() > 4 * MAX_DIGITS:
            raise InvalidQuantityError(value, field=field, reason=SIZE_FAULT)
        sign = "-" if value < 0 else ""
        return Quantity.parse(f"{sign}{digits_of(abs(value))}", field=field)

    @staticmethod
    def of_nano(nano: int, style: Format = Format.SI) -> Quantity:
        """Return an amount given in nano units."""
        return Quantity(nano, style)

    @staticmethod
    def of_units(units: int, style: Format = Format.SI) -> Quantity:
        """Return a whole number of base units."""
        return Quantity(units * NANO_PER_UNIT, style)

    @property
    def nano(self) -> int:
        """The amount in nano units: 10^-9 of a core, a byte, a piece."""
        return self._nano

    @property
    def format(self) -> Format:
        """Format in which the amount prints; it has no part in comparison."""
        return self._format

    @property
    def value(self) -> int:
        """The amount in base units, rounded away from zero to a whole number.

        Exact where the platform's own accessor overflows.
        """
        return _away_from_zero(self._nano, NANO_PER_UNIT)

    @property
    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self._nano > 0) - (self._nano < 0)

    @property
    def canonical(self) -> str:
        """The text after any arithmetic, when nothing is remembered."""
        return canonical_text(self._nano, self._format)

    @property
    def is_whole(self) -> bool:
        """Whether the amount is a whole number of base units, exactly."""
        return self._nano % NANO_PER_UNIT == 0

    @property
    def is_storable(self) -> bool:
        """Whether the printed text still says this amount.

        The platform has no letter beyond E and Ei and prints larger round amounts without
        one: `1000E` is stored as `1`. Such an amount must not be accepted as a limit.
        """
        return has_suffix(self._nano, self._format)

    def rounded_to_milli(self) -> Quantity:
        """Round away from zero to a multiple of 0.001, as API defaulting does.

        The text is kept where there is nothing to round.
        """
        if self._nano % _NANO_PER_MILLI == 0:
            return self
        milli = _away_from_zero(self._nano, _NANO_PER_MILLI)
        return Quantity(milli * _NANO_PER_MILLI, self._format)

    def __str__(self) -> str:
        text = self._text
        if text is None:
            text = canonical_text(self._nano, self._format)
            self._text = text
        return text

    def __repr__(self) -> str:
        return f"Quantity.parse({str(self)!r})"

    def __bool__(self) -> bool:
        return self._nano != 0

    def __hash__(self) -> int:
        return hash(self._nano)

    def __eq__(self, other: object) -> bool:
        return self._nano == other._nano if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self._nano < other._nano

    def __le__(self, other: Quantity) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self._nano <= other._nano

    def __gt__(self, other: Quantity) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self._nano > other._nano

    def __ge__(self, other: Quantity) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self._nano >= other._nano

    def __add__(self, other: Quantity) -> Quantity:
        if not isinstance(other, Quantity):
            return NotImplemented
        return Quantity(self._nano + other._nano, self._format if self._nano else other._format)

    def __radd__(self, other: int) -> Quantity:
        # 0 is what sum() begins with
        return self if type(other) is int and other == 0 else NotImplemented

    def __sub__(self, other: Quantity) -> Quantity:
        if not isinstance(other, Quantity):
            return NotImplemented
        return Quantity(self._nano - other._nano, self._format if self._nano else other._format)

    def __neg__(self) -> Quantity:
        return Quantity(-self._nano, self._format)


class QuantityText(str):
    """Canonical text of an amount that remembers the format, which the text alone may not tell.

    `20` is read as decimal, but may be of `2e1`. As JSON it is text like any other.
    """

    __slots__ = ("quantity",)

    quantity: Quantity

    def __new__(cls, quantity: Quantity) -> QuantityText:
        """Return the text of an amount."""
        text = super().__new__(cls, quantity)
        text.quantity = quantity
        return text

    def __reduce__(self) -> tuple[type[QuantityText], tuple[Quantity]]:
        return QuantityText, (self.quantity,)


ZERO: Final = Quantity(0)

COUNTABLE: Final = Quantity.of_units(10**36, Format.EXP)
"""The largest amount that is counted, far beyond any real one."""

UNCOUNTABLE: Final = Quantity.of_units(10**39, Format.EXP)
"""What stands for every amount above `COUNTABLE`, and for one that cannot be read for its size.

It is more than any limit, because limits are counted as `COUNTABLE` at most.
"""


def _read(text: str) -> Quantity | str:
    scanned = scan(text)
    return scanned if isinstance(scanned, str) else Quantity(*scanned)


def _read_json(text: str) -> Quantity | str:
    return _read(text.strip(_TRIMMED))


_read_cached = lru_cache(maxsize=_CACHED_TEXTS)(_read)
_read_trimmed = lru_cache(maxsize=_CACHED_TEXTS)(_read_json)


def _away_from_zero(nano: int, unit: int) -> int:
    return -(-nano // unit) if nano > 0 else nano // unit


def _shown(value: object) -> str:
    if not isinstance(value, str):
        return json_type_of(value)
    return repr(str(value)) if len(value) <= _SHOWN_LENGTH else f"{value[:_SHOWN_LENGTH]!r}..."
