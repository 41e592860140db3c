"""YAML text to plain values, and plain values to typed ones; every error names its field."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import yaml

_T = TypeVar("_T")
_E = TypeVar("_E", bound=StrEnum)
_R = TypeVar("_R", bound=Callable[[object, str], object])

Reader: TypeAlias = Callable[[object, str], _T]
"""Reads a plain value at a field path; raises InvalidSettingError."""

Schema: TypeAlias = Mapping[str, object]
"""A JSON Schema, of draft 7."""

_SCHEMAS: Final[WeakKeyDictionary[Callable[[object, str], object], Schema]] = WeakKeyDictionary()


def reads(schema: Schema) -> Callable[[_R], _R]:
    """Return a decorator that notes the JSON Schema of what a reader accepts."""

    def note(reader: _R) -> _R:
        _SCHEMAS[reader] = schema
        return reader

    return note


def schema_of(reader: Callable[[object, str], object]) -> Schema:
    """Return the JSON Schema of what a reader accepts; of anything where none was noted."""
    return _SCHEMAS.get(reader, {})


class InvalidSettingError(Exception):
    """A value that is not what its field takes; `field` is empty for the text as a whole."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(field, detail)
        self.field = field
        self.detail = detail


class _Loader(yaml.SafeLoader):
    """The scalars of YAML 1.2's core: `off` is a word, `010` is not eight, nothing is a float."""


_TAG = "tag:yaml.org,2002:"
# tag: what it looks like, the characters it starts with, its value
_SCALARS: Mapping[str, tuple[str, tuple[str, ...], Callable[[str], object]]] = {
    "bool": (r"true|false", tuple("tf"), lambda text: text == "true"),
    "null": (r"null|~|", ("n", "~", ""), lambda _: None),
    "int": (r"[-+]?(?:0|[1-9][0-9]{0,17})", tuple("-+0123456789"), int),
}


def _scalar_constructor(
    tag: str, pattern: re.Pattern[str], convert: Callable[[str], object]
) -> Callable[[_Loader, yaml.ScalarNode], object]:
    def construct(loader: _Loader, node: yaml.ScalarNode) -> object:
        text = str(loader.construct_scalar(node))
        if not pattern.fullmatch(text):  # an explicit tag, as in `!!int x`
            raise _malformed(f"{text!r} is not of type {tag}", node)
        return convert(text)

    return construct


def _construct_mapping(loader: _Loader, node: yaml.Node) -> dict[str, object]:
    if not isinstance(node, yaml.MappingNode):
        raise _malformed("an object is needed here", node)
    result: dict[str, object] = {}
    for key_node, value_node in node.value:
        key = _plain(loader, key_node)
        if not isinstance(key, str):
            raise _malformed("a field name must be a string", key_node)
        if key in result:
            raise _malformed(f"field {key!r} appears twice", key_node)
        result[key] = _plain(loader, value_node)
    return result


def _plain(loader: _Loader, node: yaml.Node) -> object:
    value: object = loader.construct_object(node, deep=True)
    return value


def _malformed(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _prepare(loader: Any) -> None:  # PyYAML does not type the tables of a class
    safe = loader.yaml_constructors
    loader.yaml_implicit_resolvers = {}
    loader.yaml_constructors = {tag: safe[tag] for tag in (None, f"{_TAG}str", f"{_TAG}seq")}
    loader.add_constructor(f"{_TAG}map", _construct_mapping)
    for name, (look, first, convert) in _SCALARS.items():
        pattern = re.compile(f"(?:{look})$")
        loader.add_implicit_resolver(f"{_TAG}{name}", pattern, list(first))
        loader.add_constructor(f"{_TAG}{name}", _scalar_constructor(name, pattern, convert))


_prepare(_Loader)


def parse_yaml(text: str) -> object:
    """Parse one YAML document into dicts, lists, strings, integers, booleans and None.

    Raises:
        InvalidSettingError: Not one document, not YAML, or a field name that is repeated.
    """
    try:
        value: object = yaml.load(text, Loader=_Loader)  # noqa: S506 - made from SafeLoader
    except yaml.MarkedYAMLError as err:
        mark = err.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise InvalidSettingError("", f"{place}{err.problem}") from err
    except yaml.YAMLError as err:
        raise InvalidSettingError("", " ".join(str(err).split())) from err
    except RecursionError as err:
        raise InvalidSettingError("", "nests too deep") from err
    return value


_KINDS = {bool: "a boolean", int: "a number", list: "a list", dict: "an object"}


def _wrong_type(wanted: str, value: object, field: str) -> InvalidSettingError:
    found = "empty" if value is None else _KINDS.get(type(value), f"{str(value)[:40]!r}")
    return InvalidSettingError(field, f"must be {wanted}, not {found}")


@reads({"type": "string"})
def text(value: object, field: str) -> str:
    """Read a string, which may be empty."""
    if not isinstance(value, str):
        raise _wrong_type("a string", value, field)
    return value


@reads({"type": "string", "minLength": 1})
def name(value: object, field: str) -> str:
    """Read a string that is not empty."""
    if value == "":
        raise InvalidSettingError(field, "must not be empty")
    return text(value, field)


@reads({"type": "boolean"})
def boolean(value: object, field: str) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise _wrong_type("true or false", value, field)
    return value


def whole(least: int, most: int) -> Reader[int]:
    """Return a reader of whole numbers from `least` to `most`."""

    @reads({"type": "integer", "minimum": least, "maximum": most})
    def read(value: object, field: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong_type("a whole number", value, field)
        if not least <= value <= most:
            raise InvalidSettingError(field, f"must be from {least} to {most}, not {value}")
        return value

    return read


def choice(choices: type[_E]) -> Reader[_E]:
    """Return a reader of one of the words of an enumeration."""

    @reads({"enum": [str(word) for word in choices]})
    def read(value: object, field: str) -> _E:
        word = text(value, field)
        try:
            return choices(word)
        except ValueError as err:
            known = ", ".join(choices)
            raise InvalidSettingError(field, f"must be one of {known}, not {word!r}") from err

    return read


def exactly(wanted: str) -> Reader[str]:
    """Return a reader of one word."""

    @reads({"const": wanted})
    def read(value: object, field: str) -> str:
        if value != wanted:
            raise _wrong_type(repr(wanted), value, field)
        return wanted

    return read


def list_of(item: Reader[_T]) -> Reader[tuple[_T, ...]]:
    """Return a reader of lists, each entry read by `item`."""

    @reads({"type": "array", "items": schema_of(item)})
    def read(value: object, field: str) -> tuple[_T, ...]:
        if not isinstance(value, list):
            raise _wrong_type("a list", value, field)
        return tuple(item(entry, f"{field}[{index}]") for index, entry in enumerate(value))

    return read


def set_of(item: Reader[_T]) -> Reader[frozenset[_T]]:
    """Return a reader of lists whose order says nothing, each entry read by `item`."""
    entries = list_of(item)

    @reads(schema_of(entries))
    def read(value: object, field: str) -> frozenset[_T]:
        return frozenset(entries(value, field))

    return read


def section(
    make: Callable[..., _T], table: Mapping[str, Reader[object]], *, required: tuple[str, ...] = ()
) -> Reader[_T]:
    """Return a reader of objects with the fields of `table` and no others.

    Args:
        make: Called with the fields that are present and not null, by name.
        table: Field name → reader.
        required: Fields that must be present.
    """
    schema = {
        "type": "object",
        "properties": {key: schema_of(reader) for key, reader in table.items()},
        "required": list(required),
        "additionalProperties": False,
    }

    @reads(schema)
    def read(value: object, field: str) -> _T:
        if not isinstance(value, dict):
            raise _wrong_type("an object", value, field)
        for key in value:
            if key not in table:
                raise InvalidSettingError(_join(field, key), _unknown(key, table))
        for key in required:
            if value.get(key) is None:
                raise InvalidSettingError(_join(field, key), "must be given")
        given = {key: entry for key, entry in value.items() if entry is not None}
        return make(**{key: table[key](entry, _join(field, key)) for key, entry in given.items()})

    return read


Table: TypeAlias = Mapping[str, tuple[str, Reader[object]]]
"""Name in the file → name of the dataclass' field ("" is read and dropped), reader."""


def renaming_section(
    make: Callable[..., _T], table: Table, *, required: tuple[str, ...] = ()
) -> Reader[_T]:
    """Return a reader as of `section`; `make` is called with the fields under their new names."""

    def rename(**given: object) -> _T:
        return make(**{table[key][0]: value for key, value in given.items() if table[key][0]})

    readers = {key: reader for key, (_, reader) in table.items()}
    return section(rename, readers, required=required)


def _unknown(key: str, table: Mapping[str, object]) -> str:
    close = get_close_matches(key, table, n=1)
    return f"unknown field, did you mean {close[0]!r}?" if close else "unknown field"


def _join(field: str, key: str) -> str:
    return f"{field}.{key}" if field else key
