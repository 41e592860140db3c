"""The part of JSON Schema that the schemas of the tests use; another keyword is an error."""

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
    "boolean": bool,
    "number": int,
}
_SILENT: Final = frozenset(
    {"type", "$schema", "$id", "$comment", "title", "description", "default", "format"}
    | {"id", "definitions"}
)
"""Keywords by which nothing is judged."""


def schema_errors(
    value: Any, schema: Schema, path: str = "$", root: Schema | None = None
) -> Iterator[str]:
    """Yield everything that is wrong with a value, with its path.

    `root` is the schema in which references are looked up; the schema itself by default.
    """
    whole = schema if root is None else root
    while "$ref" in schema:
        schema = _resolved(schema["$ref"], whole)
    wrong_type = list(_type_errors(value, schema, path))
    yield from wrong_type
    for keyword in schema.keys() - _SILENT:
        if not wrong_type:
            yield from _CHECKS[keyword](value, schema, path, whole)


def _resolved(reference: str, root: Schema) -> Schema:
    found: Any = root
    for step in reference.removeprefix("#/").split("/"):
        found = found[step]
    return found  # type: ignore[no-any-return]


def _type_errors(value: Any, schema: Schema, path: str) -> Iterator[str]:
    wanted = schema.get("type", ())
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    if names and type(value) not in {_TYPES[name] for name in names}:
        yield f"{path}: is no {' or '.join(names)}: {value!r}"


def _const(value: Any, schema: Schema, path: str, _root: Schema) -> Iterator[str]:
    if value != schema["const"]:
        yield f"{path}: is {value!r}, not {schema['const']!r}"


def _not(value: Any, schema: Schema, path: str, root: Schema) -> Iterator[str]:
    if not list(schema_errors(value, schema["not"], path, root)):
        yield f"{path}: {value!r} is what it must not be"


def _enum(value: Any, schema: Schema, path: str, _root: Schema) -> Iterator[str]:
    if value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"


def _minimum(value: Any, schema: Schema, path: str, _root: Schema) -> Iterator[str]:
    if not isinstance(value, str) and value < schema["minimum"]:
        yield f"{path}: {value} is less than {schema['minimum']}"


def _maximum(value: Any, schema: Schema, path: str, _root: Schema) -> Iterator[str]:
    if value > schema["maximum"]:
        yield f"{path}: {value} is more than {schema['maximum']}"


def _min_items(value: Any, schema: Schema, path: str, _root: Schema) -> Iterator[str]:
    if len(value) < schema["minItems"]:
        yield f"{path}: has {len(value)} items, not {schema['minItems']}"


def _max_items(value: Any, schema: Schema, path: str, _root: Schema) -> Iterator[str]:
    if len(value) > schema["maxItems"]:
        yield f"{path}: has {len(value)} items, not {schema['maxItems']}"


def _min_length(value: Any, schema: Schema, path: str, _root: Schema) -> Iterator[str]:
    if len(value) < schema["minLength"]:
        yield f"{path}: is shorter than {schema['minLength']}: {value!r}"


def _max_length(value: Any, schema: Schema, path: str, _root: Schema) -> Iterator[str]:
    if len(value) > schema["maxLength"]:
        yield f"{path}: is longer than {schema['maxLength']}"


def _unique_items(value: Any, schema: Schema, path: str, _root: Schema) -> Iterator[str]:
    if schema["uniqueItems"] and len({repr(item) for item in value}) < len(value):
        yield f"{path}: has an item twice"


def _pattern(value: Any, schema: Schema, path: str, _root: Schema) -> Iterator[str]:
    if isinstance(value, str) and re.search(schema["pattern"], value) is None:
        yield f"{path}: {value!r} is not like {schema['pattern']}"


def _any_of(value: Any, schema: Schema, path: str, root: Schema) -> Iterator[str]:
    if all(list(schema_errors(value, one, path, root)) for one in schema["anyOf"]):
        yield f"{path}: fits none of its forms: {value!r}"


def _one_of(value: Any, schema: Schema, path: str, root: Schema) -> Iterator[str]:
    fitting = [one for one in schema["oneOf"] if not list(schema_errors(value, one, path, root))]
    if len(fitting) != 1:
        yield f"{path}: fits {len(fitting)} of its forms, not one: {value!r}"


def _required(value: Any, schema: Schema, path: str, _root: Schema) -> Iterator[str]:
    yield from (f"{path}: lacks {name}" for name in schema["required"] if name not in value)


def _items(value: Any, schema: Schema, path: str, root: Schema) -> Iterator[str]:
    wanted = schema["items"]
    for index, item in enumerate(value):
        if isinstance(wanted, list) and index >= len(wanted):
            return  # for `additionalItems`
        one = wanted[index] if isinstance(wanted, list) else wanted
        yield from schema_errors(item, one, f"{path}[{index}]", root)


def _additional_items(value: Any, schema: Schema, path: str, _root: Schema) -> Iterator[str]:
    if schema["additionalItems"] is False and len(value) > len(schema["items"]):
        yield f"{path}: has more than {len(schema['items'])} items"


def _properties(value: Any, schema: Schema, path: str, root: Schema) -> Iterator[str]:
    for name in schema["properties"].keys() & value.keys():
        yield from schema_errors(value[name], schema["properties"][name], f"{path}.{name}", root)


def _additional(value: Any, schema: Schema, path: str, root: Schema) -> Iterator[str]:
    wanted = schema["additionalProperties"]
    for name in value.keys() - schema.get("properties", {}).keys():
        if wanted is False:
            yield f"{path}: has {name}"
        elif wanted is not True:
            yield from schema_errors(value[name], wanted, f"{path}.{name}", root)


def _names(value: Any, schema: Schema, path: str, root: Schema) -> Iterator[str]:
    for name in value:
        yield from schema_errors(name, schema["propertyNames"], f"{path}.{name}", root)


_CHECKS: Final[Mapping[str, Callable[[Any, Schema, str, Schema], Iterator[str]]]] = {
    "const": _const,
    "enum": _enum,
    "minimum": _minimum,
    "pattern": _pattern,
    "not": _not,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "maximum": _maximum,
    "minItems": _min_items,
    "maxItems": _max_items,
    "minLength": _min_length,
    "maxLength": _max_length,
    "uniqueItems": _unique_items,
    "required": _required,
    "items": _items,
    "additionalItems": _additional_items,
    "properties": _properties,
    "additionalProperties": _additional,
    "propertyNames": _names,
}
