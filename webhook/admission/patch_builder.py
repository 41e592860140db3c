"""JSON Patch (RFC 6902): single operations, and builders that look at the object first.

Builders return the operations as values; no shared object is changed. They need the object because
`add` below a map or list that is missing fails the whole request in the API server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, TypeAlias

import msgspec

from webhook.jsonfields.encoding import NumberText

Token: TypeAlias = str | int
"""One step into an object: a key of a map or an index of a list."""


class PatchTargetError(ValueError):
    """The object has something else where the patch needs a map or a list.

    Attributes:
        field: YAML path of the value in the way.
    """

    def __init__(self, field: str, wanted: str) -> None:
        super().__init__(f"{field}: must be {wanted}")
        self.field = field


class _Absent(Enum):
    VALUE = "absent"


_MANY_KEYS: Final = 64

ABSENT: Final = _Absent.VALUE
"""No value at all, which is not the same as null."""


@dataclass(frozen=True, slots=True)
class PatchOperation:
    """One step of a patch; `value` is plain JSON data, or ABSENT for `remove`."""

    op: Literal["add", "remove", "replace"]
    path: str
    value: object = ABSENT


def pointer(*tokens: Token) -> str:
    """Write a JSON Pointer (RFC 6901); `~` and `/` inside a token are escaped."""
    return "".join(f"/{str(token).replace('~', '~0').replace('/', '~1')}" for token in tokens)


def add(path: Iterable[Token], value: object) -> PatchOperation:
    """Set a key of a map that exists, or insert into a list; "-" as the index appends."""
    return PatchOperation("add", pointer(*path), value)


def replace(path: Iterable[Token], value: object) -> PatchOperation:
    """Set what must already be there."""
    return PatchOperation("replace", pointer(*path), value)


def remove(path: Iterable[Token]) -> PatchOperation:
    """Remove what must be there: the API server fails the request otherwise."""
    return PatchOperation("remove", pointer(*path))


def set_keys(
    obj: Mapping[str, object], path: tuple[str, ...], entries: Mapping[str, object]
) -> tuple[PatchOperation, ...]:
    """Set keys of the map at `path`, which may be missing or null together with its parents.

    Keys that hold the wanted value already are left out, so that the patch of a patched object
    is empty.

    Raises:
        PatchTargetError: Something on the way is not a map.
    """
    depth, found = _descend(obj, path)
    if depth < len(path):
        missing = path[depth + 1 :]
        return (add(path[: depth + 1], _nested(missing, dict(entries))),) if entries else ()
    current = _require_map(found, path)
    return tuple(
        add((*path, key), value)
        for key, value in entries.items()
        if key not in current or current[key] != value
    )


def append(
    obj: Mapping[str, object], path: tuple[str, ...], value: object
) -> tuple[PatchOperation, ...]:
    """Append to the list at `path`, which may be missing or null together with its parents.

    Raises:
        PatchTargetError: Something on the way is not a map, or the target is not a list.
    """
    depth, found = _descend(obj, path)
    if depth < len(path):
        return (add(path[: depth + 1], _nested(path[depth + 1 :], [value])),)
    if not isinstance(found, list | tuple):
        raise PatchTargetError(".".join(path), "a list")
    return (add((*path, "-"), value),)


def remove_keys(
    obj: Mapping[str, object], path: tuple[str, ...], keys: Iterable[str]
) -> tuple[PatchOperation, ...]:
    """Remove those of `keys` that the map at `path` has; a missing map has none.

    Where they are very many, the map is written anew: a path for each takes more than the map.

    Raises:
        PatchTargetError: Something on the way is not a map.
    """
    depth, found = _descend(obj, path)
    if depth < len(path):
        return ()
    current = _require_map(found, path)
    present = [key for key in keys if key in current]
    if len(present) > _MANY_KEYS:
        gone = frozenset(present)
        return (replace(path, {key: item for key, item in current.items() if key not in gone}),)
    return tuple(remove((*path, key)) for key in present)


def encode_patch(operations: Iterable[PatchOperation]) -> bytes:
    """Write operations as a JSON array; numbers that were kept as text are written as they were.

    Raises:
        TypeError: A value is not plain JSON data.
    """
    return _ENCODER.encode([_plain_operation(operation) for operation in operations])


def _plain_operation(operation: PatchOperation) -> dict[str, object]:
    plain: dict[str, object] = {"op": operation.op, "path": operation.path}
    if operation.value is not ABSENT:
        plain["value"] = operation.value
    return plain


def _number(value: object) -> msgspec.Raw:
    if isinstance(value, NumberText):
        return msgspec.Raw(value.encode())
    raise TypeError(f"{type(value).__name__} is not plain JSON data")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_number)


def _descend(obj: Mapping[str, object], path: tuple[str, ...]) -> tuple[int, object]:
    """Return how many steps of `path` lead to something, and what is there."""
    here: object = obj
    for depth, token in enumerate(path):
        child = _require_map(here, path[:depth]).get(token)
        if child is None:
            return depth, here
        here = child
    return len(path), here


def _require_map(value: object, path: tuple[str, ...]) -> Mapping[str, object]:
    if isinstance(value, Mapping):
        return value
    raise PatchTargetError(".".join(path), "a map")


def _nested(path: tuple[str, ...], value: object) -> object:
    for token in reversed(path):
        value = {token: value}
    return value
