"""Equality of two values of an API object, as the API server compares them.

`canonical` maps a value to plain Python data that is equal (`==`) exactly when the API server
takes the two for equal. A `Shape` says what stands at a place; nothing is guessed from the name
of a field, which may be a key that a user chose:

1. Amounts are compared by value: `0.1` is `100m`. So are times.
2. null, an absent field and an empty list are the same, and so is an empty map (labels,
   amounts). An empty object is not: `emptyDir: {}` is a volume, `securityContext: {}` is set.
   Objects that every parent has, such as `metadata`, are the exception.
3. An empty text, and a flag or number whose zero is its default, are the same as an absent one;
   in a list, null is an item of that kind.
4. The order of a list matters, the order of keys does not.

Source: kubernetes v1.36, apimachinery/pkg/api/equality and the Go types of the pod template,
which decide what is a pointer and so has an absence of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, TypeAlias

from webhook.jsonfields.encoding import NumberText
from webhook.jsonfields.fields import (
    InvalidFieldError,
    boolean,
    child,
    integer,
    json_type_of,
    mapping,
    sequence,
    string_map,
    text,
    timestamp,
)
from webhook.quota.amounts.resources import parse_stored_amount, parse_stored_list

MAX_DEPTH: Final = 64
"""More than twice the depth of any field of a pod template."""
_NO_TIME: Final = datetime(1, 1, 1, tzinfo=UTC)

_NO_MEMBERS: Final[Mapping[str, Shape]] = MappingProxyType({})
_Reader: TypeAlias = Callable[[object, str], object]


@dataclass(frozen=True, slots=True)
class Shape:
    """What stands at one place of an object."""

    read: _Reader | None = None
    """Reads the whole value; None where it is gone through by its JSON type."""
    members: Mapping[str, Shape] = field(default_factory=lambda: _NO_MEMBERS)
    """Name → shape of the fields of an object that are known."""
    gated: frozenset[str] = frozenset()
    """Those of them that the API server may drop: their feature gate can be off."""
    items: Shape | None = None
    """Shape of the items of a list; None where nothing is known of them."""
    is_part: bool = False
    """Whether an object is part of its parent, so that an empty one says nothing."""
    default: bool | int | None = None
    """A flag or number that says no more than its absence, if there is one."""
    is_optional: bool = False
    """Whether an empty text says something else than its absence."""
    check: _Reader | None = None
    """Refuses a value of the wrong type, where `read` does not and it is no object or list. It
    makes no difference to what is equal."""


ANY: Final = Shape()
"""A value of which nothing is known but its JSON type."""
_ITEM: Final = Shape(is_part=True)


def part(shape: Shape) -> Shape:
    """Return the shape of an object that every parent has."""
    return replace(shape, is_part=True)


def list_of(shape: Shape) -> Shape:
    """Return the shape of a list; its items are parts of it."""
    return Shape(items=part(shape))


def struct(
    *names: str,
    texts: str = "",
    flags: str = "",
    numbers: str = "",
    optional: str = "",
    gated: str = "",
    others: Mapping[str, Shape] | None = None,
    **members: Shape,
) -> Shape:
    """Return the shape of an object.

    Args:
        names: Fields of which nothing more has to be known, several in one text.
        texts: Texts of which the empty one is the same as their absence.
        flags: Flags of which false is the same as their absence.
        numbers: Numbers of which 0 is.
        optional: Texts of which the empty one is not.
        gated: Which of all fields the API server may drop; where they are not named otherwise,
            nothing more is known of them.
        others: Further fields that several objects have.
        members: All other fields.
    """
    known = dict.fromkeys(" ".join((*names, gated)).split(), ANY)
    known |= dict.fromkeys(texts.split(), TEXT)
    known |= dict.fromkeys(flags.split(), Shape(default=False, check=boolean))
    known |= dict.fromkeys(numbers.split(), Shape(default=0, check=_whole))
    known |= dict.fromkeys(optional.split(), OPTIONAL_TEXT)
    known |= {**(others or {}), **members}
    return Shape(members=MappingProxyType(known), gated=frozenset(gated.split()))


def check_types(value: object, field: str, shape: Shape) -> None:
    """Refuse what the API server cannot read; what no shape names is not looked at.

    Args:
        value: Decoded JSON or YAML.
        field: YAML path of the value, for messages.
        shape: What stands there.

    Raises:
        InvalidFieldError: The first value that is of a wrong type, or is no amount or time.
    """
    read = shape.read or shape.check
    if value is None:
        return
    if read is not None:
        read(value, field)
    elif shape.members:
        for name, item in mapping(value, field).items():
            if name in shape.members:
                check_types(item, child(field, name), shape.members[name])
    elif shape.items is not None:
        for index, item in enumerate(sequence(value, field)):
            check_types(item, f"{field}[{index}]", shape.items)


def canonical(value: object, field: str, shape: Shape = ANY, *, depth: int = 0) -> object:
    """Return what the value means; None if it says nothing.

    Args:
        value: Decoded JSON.
        field: YAML path of the value, for messages.
        shape: What stands there.
        depth: How deep the value is nested.

    Raises:
        InvalidFieldError: Not JSON, nested too deep, or of a wrong type where that matters.
    """
    if value is None:
        return None
    if depth > MAX_DEPTH:
        raise InvalidFieldError(field, "nests too deep")
    if shape.read is not None:
        return shape.read(value, field)
    if isinstance(value, Mapping):
        members = canonical_members(value, field, shape, depth=depth)
        return None if not members and shape.is_part else members
    if isinstance(value, (list, tuple)):
        kind, items = shape.items or _ITEM, enumerate(value)
        return [
            canonical(item, f"{field}[{i}]", kind, depth=depth + 1) for i, item in items
        ] or None
    return _scalar(value, field, shape)


def canonical_members(
    value: object, field: str, shape: Shape = ANY, *, depth: int = 0
) -> dict[str, object]:
    """Return the members of an object that say something; null has none.

    Raises:
        InvalidFieldError: Not an object, or see `canonical`.
    """
    members = {
        key: canonical(item, child(field, key), shape.members.get(key, ANY), depth=depth + 1)
        for key, item in mapping(value, field).items()
    }
    return {key: item for key, item in members.items() if item is not None}


def _scalar(value: object, field: str, shape: Shape) -> object:
    match value:
        case bool():
            # Python's True is 1, JSON's is not
            return None if shape.default is False and not value else ("boolean", value)
        case int():
            return None if value == 0 and type(shape.default) is int else value
        case NumberText():
            return ("number", str(value))
        case str():
            return None if value == "" and not shape.is_optional else value
        case _:
            raise InvalidFieldError(field, f"must be a JSON value, not {json_type_of(value)}")


def _whole(value: object, field: str) -> object:
    """Read an integer; kubectl writes 1.0 as 1."""
    return value if isinstance(value, NumberText) else integer(value, field)


def _amounts(value: object, field: str) -> object:
    return parse_stored_list(value, field=field) or None


def _strings(value: object, field: str) -> object:
    return string_map(value, field) or None


def _amount(value: object, field: str) -> object:
    return parse_stored_amount(value, field=field)


def _amount_but_zero(value: object, field: str) -> object:
    return parse_stored_amount(value, field=field) or None


def _number_or_text(value: object, field: str) -> object:
    """Read what may be 80 or "http"; 80 is not "80", and its absence is the number 0."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidFieldError(field, f"must be a number or a string, not {json_type_of(value)}")
    return None if value == 0 else value


def _time(value: object, field: str) -> object:
    return timestamp(value, field)


def _time_but_zero(value: object, field: str) -> object:
    read = timestamp(value, field)
    return None if read == _NO_TIME else read


STRINGS: Final = Shape(_strings)
"""A map of strings, whose keys people choose."""
AMOUNTS: Final = Shape(_amounts)
"""A map from resources to quantities."""
AMOUNT: Final = Shape(_amount)
"""A quantity that is 0 or absent, which is not the same."""
AMOUNT_BUT_ZERO: Final = Shape(_amount_but_zero)
"""A quantity whose absence is 0."""
NUMBER_OR_TEXT: Final = Shape(_number_or_text)
"""The number or the name of a port."""
TIME: Final = Shape(_time)
TIME_BUT_ZERO: Final = Shape(_time_but_zero)
"""A time whose absence is the first of all times."""
TEXT: Final = Shape(check=text)
OPTIONAL_TEXT: Final = Shape(is_optional=True, check=text)
INTEGER: Final = Shape(check=_whole)
"""An integer that is 0 or absent, which is not the same."""
FLAG: Final = Shape(check=boolean)
"""A flag that is false or absent, which is not the same."""
