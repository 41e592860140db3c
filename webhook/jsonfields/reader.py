"""Read fields of one JSON object, knowing where it stands, so that errors can name the path.

Pods are read at every decision, so what is well formed is read at once; only what is not goes
through the readers of `fields`, which say what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Self

from webhook.jsonfields import fields

_NO_FIELDS: Mapping[str, object] = MappingProxyType({})


class FieldReader:
    """A JSON object and its place in the whole, such as `spec.containers[1]`.

    Every method reads one field. An absent field and `null` are the same, as for the API
    server. Paths are only put together when an error needs them.

    Args:
        raw: The object; null is one without fields, unless it is the outermost.
        path: Where it stands within `parent`: a YAML path, empty for the whole.
        parent: The node that holds it; None for the outermost.

    Raises:
        InvalidFieldError: `raw` is not an object, or (from the methods) the field has the
            wrong type; its `field` is the full path.
    """

    __slots__ = ("_index", "_parent", "_path", "_raw")

    def __init__(
        self,
        raw: object,
        path: str = "",
        parent: FieldReader | None = None,
        index: int | None = None,
    ) -> None:
        self._path = path
        self._parent = parent
        self._index = index
        self._raw: Mapping[str, object] = raw if type(raw) is dict else self._fields_of(raw)

    def path(self, name: str) -> str:
        """Return the YAML path of the field."""
        return fields.child(self._where(), name)

    def has(self, name: str) -> bool:
        """Return whether the field is there and not null."""
        return self._raw.get(name) is not None

    def text(self, name: str) -> str:
        """Return a string; absent is empty."""
        value = self._raw.get(name)
        if value is None:
            return ""
        return value if type(value) is str else fields.text(value, self.path(name))

    def integer(self, name: str) -> int | None:
        """Return a whole number of 64 bits, or None."""
        value = self._raw.get(name)
        return None if value is None else fields.integer(value, self.path(name))

    def boolean(self, name: str) -> bool:
        """Return a boolean; absent is false."""
        value = self._raw.get(name)
        return False if value is None else fields.boolean(value, self.path(name))

    def timestamp(self, name: str) -> datetime | None:
        """Return an aware time, written as RFC 3339, or None."""
        value = self._raw.get(name)
        return None if value is None else fields.timestamp(value, self.path(name))

    def string_map(self, name: str) -> Mapping[str, str]:
        """Return an object of strings; absent is empty."""
        value = self._raw.get(name)
        if value is None:
            return {}
        return _strings_of(value) or fields.string_map(value, self.path(name))

    def strings(self, name: str) -> tuple[str, ...]:
        """Return a list of strings; absent is empty."""
        value = self._raw.get(name)
        if value is None:
            return ()
        if type(value) is list and all(type(item) is str for item in value):
            return tuple(value)
        path = self.path(name)
        items = enumerate(fields.sequence(value, path))
        return tuple([fields.text(item, f"{path}[{index}]") for index, item in items])

    def child(self, name: str) -> Self:
        """Return an object; absent is one without fields."""
        return self.__class__(self._raw.get(name), name, self)

    def children(self, name: str) -> list[Self]:
        """Return the objects of a list; absent is none, a null item is one without fields."""
        value = self._raw.get(name)
        if value is None:
            return []
        items = value if type(value) is list else fields.sequence(value, self.path(name))
        return [self.__class__(item, name, self, index) for index, item in enumerate(items)]

    def _fields_of(self, raw: object) -> Mapping[str, object]:
        if raw is None and self._parent is None:
            raise fields.InvalidFieldError(self._path, "must be an object, not null")
        return _NO_FIELDS if raw is None else fields.mapping(raw, self._where())

    def _where(self) -> str:
        here = self._path if self._index is None else f"{self._path}[{self._index}]"
        return here if self._parent is None else self._parent.path(here)


def _strings_of(value: object) -> dict[str, str] | None:
    """Return a copy of an object of strings, or None if it is anything else."""
    if type(value) is not dict:
        return None
    strings = {key: item for key, item in value.items() if type(key) is str and type(item) is str}
    return strings if len(strings) == len(value) else None
