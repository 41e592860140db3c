"""Values of plain YAML scalars, as the reader in kubectl takes them.

Kubernetes reads YAML 1.1 with a few departures (sigs.k8s.io/yaml, goyaml.v2/resolve.go): dates and
sexagesimal numbers are text, `0o17` is a number. A whole number with a fraction or an exponent, as
templates print large ones, is the integer that kubectl sends. Others keep their source text, so
that a quantity is read from what was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Final

from webhook.jsonfields.encoding import NumberText

Scalar = str | int | bool | None
"""What a scalar can be; a number that is not whole, or is very large, is a `NumberText`."""

_WORDS: Final[Mapping[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE", "y", "Y", "yes", "Yes", "YES"), True),
    **dict.fromkeys(("on", "On", "ON"), True),
    **dict.fromkeys(("false", "False", "FALSE", "n", "N", "no", "No", "NO"), False),
    **dict.fromkeys(("off", "Off", "OFF"), False),
}
_NOT_NUMBERS: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_MAYBE_NUMBER: Final = re.compile(r"[-+.0-9]")
_INTEGERS: Final[tuple[tuple[re.Pattern[str], int], ...]] = (
    (re.compile(r"[-+]?0[xX][0-9a-fA-F]+"), 16),
    (re.compile(r"[-+]?0[bB][01]+"), 2),
    (re.compile(r"[-+]?0[oO]?[0-7]+"), 8),
    (re.compile(r"[-+]?[0-9]+"), 10),
)
_NUMBER: Final = re.compile(r"([-+]?)(\.[0-9]+|[0-9]+(?:\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_COMMON_CHARACTERS: Final = 40
MAX_NUMBER_CHARACTERS: Final = 4000
"""How many digits a number may have."""
_LEAST_WITH_EXPONENT: Final = 1e21
"""From which on JSON has whole numbers with an exponent, in Go's encoding/json."""


def plain_value(text: str) -> Scalar:
    """Return what an unquoted scalar means.

    Raises:
        ValueError: It is a number that JSON cannot hold.
    """
    return _common_value(text) if len(text) <= _COMMON_CHARACTERS else _sent(text)


def _sent(text: str) -> Scalar:
    value = _value(text)
    return as_sent(value) if isinstance(value, NumberText) else value


def as_sent(text: NumberText) -> NumberText | int:
    """Return a number with a fraction or an exponent as kubectl sends it: an integer if whole."""
    number = float(text)
    if abs(number) < _LEAST_WITH_EXPONENT and number.is_integer():
        return int(Decimal(repr(number)))  # its shortest digits, and zeros: so Go writes it
    return text


def _value(text: str) -> Scalar:
    if text in _WORDS:
        return _WORDS[text]
    if not _MAYBE_NUMBER.match(text):
        return text
    if _NOT_NUMBERS.fullmatch(text):
        raise ValueError(f"{text} is not a number that JSON can hold")
    return _number(text)


_common_value: Final = lru_cache(maxsize=4096)(_sent)
"""Keys and short values come again and again in manifests."""


def _number(text: str) -> Scalar:
    digits = text.replace("_", "")
    if _NUMBER.fullmatch(digits) is None and not _is_integer(digits):
        return text
    check_length(digits)
    for pattern, base in _INTEGERS:
        if pattern.fullmatch(digits):
            return int(digits.lower().replace("0o", "0"), base)
    return NumberText(_as_json(digits))


def check_length(digits: str) -> None:
    """Refuse a number that is too long to be one.

    Raises:
        ValueError: It has more than `MAX_NUMBER_CHARACTERS` digits.
    """
    if len(digits) > MAX_NUMBER_CHARACTERS:
        raise ValueError(f"a number of {len(digits)} digits is too long")


def _is_integer(digits: str) -> bool:
    return any(pattern.fullmatch(digits) for pattern, _ in _INTEGERS)


def _as_json(digits: str) -> str:
    """Return a number as JSON writes it; text that is JSON already stays as it is."""
    found = _NUMBER.fullmatch(digits)
    if found is None:
        raise ValueError(f"{digits} is not a number")
    sign, number, exponent = found.groups()
    whole, point, fraction = number.partition(".")
    decimals = f".{fraction or '0'}" if point else ""
    return f"{sign.strip('+')}{whole.lstrip('0') or '0'}{decimals}{exponent or ''}"


def _text(text: str) -> Scalar:
    return text


def _as_type(expected: type) -> Callable[[str], Scalar]:
    def read(text: str) -> Scalar:
        value = _value(text)
        if isinstance(value, bool) is not (expected is bool) or not isinstance(value, expected):
            raise ValueError(f"{text!r} is not a {expected.__name__}")
        return value

    return read


def _as_null(text: str) -> Scalar:
    if plain_value(text) is not None:
        raise ValueError(f"{text!r} is not null")
    return None


def _as_number(text: str) -> Scalar:
    value = plain_value(text)
    if isinstance(value, int | NumberText) and not isinstance(value, bool):
        return value
    raise ValueError(f"{text!r} is not a number")


TAGS: Final[Mapping[str, Callable[[str], Scalar]]] = {
    "tag:yaml.org,2002:str": _text,
    "tag:yaml.org,2002:timestamp": _text,
    "tag:yaml.org,2002:int": _as_type(int),
    "tag:yaml.org,2002:bool": _as_type(bool),
    "tag:yaml.org,2002:float": _as_number,
    "tag:yaml.org,2002:null": _as_null,
}
"""How a scalar with an explicit tag is read."""


def key_text(value: Scalar) -> str:
    """Return a mapping key as JSON has it: keys that are numbers or truth values become text.

    Raises:
        ValueError: The key is null.
    """
    if value is None:
        raise ValueError("a key may not be null")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
