"""Fields of API objects: what is wrong with one, and readers that check its type.

Objects arrive as decoded JSON or YAML. A reader returns the value as one Python type or
raises `InvalidFieldError` with the YAML path; null is read as the empty value of the type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal

from webhook.jsonfields.encoding import NumberText

FieldErrorType = Literal[
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueNotFound",
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
]

_ERROR_WORDS: Final[Mapping[FieldErrorType, str]] = {
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueInvalid": "Invalid value",
    "FieldValueNotFound": "Not found",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueRequired": "Required value",
    "FieldValueTooLong": "Too long",
}
_WITHOUT_VALUE: Final = frozenset(
    {"FieldValueForbidden", "FieldValueRequired", "FieldValueTooLong"}
)

_NO_FIELDS: Final[Mapping[str, object]] = MappingProxyType({})
_NO_STRINGS: Final[Mapping[str, str]] = MappingProxyType({})
_INT64: Final = range(-(2**63), 2**63)
_RFC3339: Final = re.compile(
    r"\d{4}-\d\d-\d\dT([01]\d|2[0-3]):\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", flags=re.ASCII
)
_USUAL_TIME: Final = len("2006-01-02T15:04:05.999999Z")
# In this order: a boolean is also an int, a number's text also a str, a str also a sequence.
_KINDS: Final = (
    (type(None), "null"),
    (bool, "a boolean"),
    ((NumberText, int), "a number"),
    (str, "a string"),
    (Mapping, "an object"),
    ((list, tuple), "a list"),
)


class InvalidFieldError(ValueError):
    """A field of an object cannot be read.

    Attributes:
        field: YAML path of the field; empty when the value stands alone.
        detail: What is wrong, as words that follow the path.
    """

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(field, detail)
        self.field = field
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.field}: {self.detail}" if self.field else self.detail


class InvalidFieldsError(InvalidFieldError):
    """Several fields of an object cannot be read; as one error it is the first of them.

    Attributes:
        errors: All of them.
    """

    def __init__(self, errors: Sequence[InvalidFieldError]) -> None:
        super().__init__(errors[0].field, errors[0].detail)
        self.errors = tuple(errors)


class NewerFormatError(InvalidFieldError):
    """What is stored has a format that a newer release has made.

    This one would misunderstand it: nothing may be decided by it, nor be written over it.
    """


MOST_ERRORS: Final = 128
"""Errors of one object that our own rules list: answers show no more. A review, which any client
can post, may have a quarter of a million."""
MOST_NATIVE_ERRORS: Final = 1000
"""Those that the rules of the API server list, which has no such limit itself."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault found by validation, as the API server lists it under `details.causes`."""

    type: FieldErrorType
    """The cause's reason."""
    field: str
    """YAML path."""
    detail: str
    """The words behind the value; may be empty where the type says it all."""
    value: str = dataclass_field(default="", compare=False)
    """The bad value as the API server prints it, such as `"500m"`; empty when left out."""

    @property
    def message(self) -> str:
        """The cause's message: `Invalid value: "500m": must be an integer`."""
        kind = _ERROR_WORDS[self.type]
        if self.type in _WITHOUT_VALUE:
            return _joined(kind, self.detail)
        if self.value:
            return _joined(kind, self.value, self.detail)
        return self.detail or kind

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def refuse(errors: Iterable[FieldError], place: Callable[[str], str]) -> None:
    """Raise what validation has found, if anything.

    Args:
        errors: What it has found.
        place: Returns where a field of theirs is.

    Raises:
        InvalidFieldsError: There is something.
    """
    if found := [InvalidFieldError(place(one.field), one.detail or one.message) for one in errors]:
        raise InvalidFieldsError(found)


def child(field: str, name: str) -> str:
    """Return the path of the member `name` of the object at `field`."""
    return f"{field}.{name}" if field else name


def key(field: str, name: str) -> str:
    """Return the path of a map's key, in brackets where a dot would not show where it begins.

    `resources.requests.cpu`, but `hard[requests.cpu]` and `limits[nvidia.com/gpu]`.
    """
    return f"{field}[{name}]" if "." in name or "/" in name else child(field, name)


def json_type_of(value: object) -> str:
    """Name the JSON type of a value, with its article, for messages."""
    for types, name in _KINDS:
        if isinstance(value, types):
            return name
    return f"a Python {type(value).__name__}"


def mapping(value: object, field: str) -> Mapping[str, object]:
    """Read an object; null is the empty one.

    Raises:
        InvalidFieldError: Not an object, or a key is not a string (YAML allows others).
    """
    if value is None:
        return _NO_FIELDS
    if type(value) is not dict and not isinstance(value, Mapping):
        raise _wrong_type(field, "an object", value)
    for name in value:
        if not isinstance(name, str):
            raise InvalidFieldError(field, f"keys must be strings, not {json_type_of(name)}")
    return value


def sequence(value: object, field: str) -> Sequence[object]:
    """Read a list; null is the empty one."""
    if value is None:
        return ()
    if isinstance(value, (list, tuple)):
        return value
    raise _wrong_type(field, "a list", value)


def text(value: object, field: str) -> str:
    """Read a string; null is the empty one. A number is not a string."""
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, NumberText):
        return value
    raise _wrong_type(field, "a string", value)


def integer(value: object, field: str) -> int | None:
    """Read a 64-bit integer; null is None. A number with a point or an exponent is not one."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong_type(field, "an integer", value)
    if value not in _INT64:
        raise InvalidFieldError(field, "must be an integer of 64 bits")
    return value


def check_format(raw: Mapping[str, object], field: str, newest: int) -> None:
    """Check that `format` is one that this release knows; absent is the first.

    Args:
        raw: The object that carries it.
        field: The object's path.
        newest: The newest format that this release reads.

    Raises:
        NewerFormatError: It is a newer one.
        InvalidFieldError: It is no whole number, or negative.
    """
    path = child(field, "format")
    version = integer(raw.get("format"), path) or 0
    if version < 0:
        raise InvalidFieldError(path, "must not be negative")
    if version > newest:
        detail = f"is {version}, of a newer release: this one reads up to {newest}"
        raise NewerFormatError(path, detail)


def boolean(value: object, field: str) -> bool:
    """Read a boolean; null is false."""
    if value is None:
        return False
    if isinstance(value, bool):
        return value
    raise _wrong_type(field, "a boolean", value)


def timestamp(value: object, field: str) -> datetime | None:
    """Read an RFC 3339 time as UTC, to the microsecond; null is None."""
    if value is None:
        return None
    written = text(value, field)
    if _RFC3339.fullmatch(written) is None:
        raise InvalidFieldError(field, "must be a time such as 2006-01-02T15:04:05Z")
    try:
        # most are whole seconds that many objects share: one value is kept for all of them
        return _to_utc(written) if len(written) <= _USUAL_TIME else _to_utc.__wrapped__(written)
    except (ValueError, OverflowError) as err:
        raise InvalidFieldError(field, "is not a time of the calendar") from err


@lru_cache(maxsize=1024)
def _to_utc(written: str) -> datetime:
    return datetime.fromisoformat(written).astimezone(UTC)


def string_map(value: object, field: str) -> Mapping[str, str]:
    """Read an object of strings, such as labels; null is the empty one, a null member ""."""
    if value is None:
        return _NO_STRINGS
    return {name: text(item, key(field, name)) for name, item in mapping(value, field).items()}


def _wrong_type(field: str, expected: str, value: object) -> InvalidFieldError:
    found = json_type_of(value)
    if found == "a number" and expected == "an integer":
        found = "a number with a fraction or an exponent"
    return InvalidFieldError(field, f"must be {expected}, not {found}")


def _joined(*parts: str) -> str:
    return ": ".join(filter(None, parts))


def differences(wanted: object, found: object, path: str = "") -> Iterator[str]:
    """Yield the paths at which a found value is not the wanted one.

    Fields that only the found one has are no difference where it is an object: the API server
    fills some in. Lists have to have the same items in the same order.
    """
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for name, value in wanted.items():
            yield from differences(value, found.get(name), child(path, str(name)))
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, (value, other) in enumerate(zip(wanted, found, strict=True)):
            yield from differences(value, other, f"{path}[{index}]")
    elif wanted != found and not (_is_empty(wanted) and _is_empty(found)):
        yield path


def additions(
    wanted: object, found: object, filled_in: Mapping[str, object], path: str = ""
) -> Iterator[str]:
    """Yield the paths of fields that only a found value has, but for what the API server fills in.

    Args:
        wanted: What it should be; `differences` compares the fields that this one has.
        found: The value.
        filled_in: Name of a field → what is filled in.
        path: Where the value stands.
    """
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for name, value in found.items():
            if name in wanted:
                yield from additions(wanted[name], value, filled_in, child(path, name))
            elif not _is_empty(value) and filled_in.get(name) != value:
                yield child(path, name)
    elif isinstance(wanted, list) and isinstance(found, list):
        for index, (value, other) in enumerate(zip(wanted, found, strict=False)):
            yield from additions(value, other, filled_in, f"{path}[{index}]")


def _is_empty(value: object) -> bool:
    """Return whether a value is left out when it is stored."""
    return value is None or value in ([], {}, "")
