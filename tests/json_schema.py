"""The part of JSON Schema that schemas of this package use; another keyword is an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

_TYPES: Final[Mapping[str, type]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "null": type(None),
}


def schema_errors(value: Any, schema: Schema, path: str = "$") -> Iterator[str]:
    """Yield everything that is wrong with a value, with its path."""
    wrong_type = list(_type_errors(value, schema, path))
    yield from wrong_type
    for keyword in schema.keys() - {"type", "$schema", "title", "description"}:
        if not wrong_type:
            yield from _CHECKS[keyword](value, schema, path)


def _type_errors(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if "type" in schema and type(value) is not _TYPES[schema["type"]]:
        yield f"{path}: is no {schema['type']}: {value!r}"


def _const(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if value != schema["const"]:
        yield f"{path}: is {value!r}, not {schema['const']!r}"


def _enum(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"


def _minimum(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if value < schema["minimum"]:
        yield f"{path}: {value} is less than {schema['minimum']}"


def _pattern(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if re.search(schema["pattern"], value) is None:
        yield f"{path}: {value!r} is not like {schema['pattern']}"


def _any_of(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if all(list(schema_errors(value, one, path)) for one in schema["anyOf"]):
        yield f"{path}: fits none of its forms: {value!r}"


def _required(value: Any, schema: Schema, path: str) -> Iterator[str]:
    yield from (f"{path}: lacks {name}" for name in schema["required"] if name not in value)


def _items(value: Any, schema: Schema, path: str) -> Iterator[str]:
    for index, item in enumerate(value):
        yield from schema_errors(item, schema["items"], f"{path}[{index}]")


def _properties(value: Any, schema: Schema, path: str) -> Iterator[str]:
    for name in schema["properties"].keys() & value.keys():
        yield from schema_errors(value[name], schema["properties"][name], f"{path}.{name}")


def _additional(value: Any, schema: Schema, path: str) -> Iterator[str]:
    wanted = schema["additionalProperties"]
    for name in value.keys() - schema.get("properties", {}).keys():
        if wanted is False:
            yield f"{path}: has {name}"
        else:
            yield from schema_errors(value[name], wanted, f"{path}.{name}")


def _names(value: Any, schema: Schema, path: str) -> Iterator[str]:
    for name in value:
        yield from schema_errors(name, schema["propertyNames"], f"{path}.{name}")


_CHECKS: Final[Mapping[str, Callable[[Any, Schema, str], Iterator[str]]]] = {
    "const": _const,
    "enum": _enum,
    "minimum": _minimum,
    "pattern": _pattern,
    "anyOf": _any_of,
    "required": _required,
    "items": _items,
    "properties": _properties,
    "additionalProperties": _additional,
    "propertyNames": _names,
}
