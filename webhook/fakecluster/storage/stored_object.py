"""One revision of one object as it is stored: typed metadata, and the rest as JSON bytes.

Nothing here is ever changed in place, so revisions may share what did not change: a status
write of a large object keeps the bytes of its spec and decodes neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import msgspec

from webhook.kube.api import EventType, Object, Revision, WatchEvent
from webhook.kube.codec import decode_object, encode
from webhook.kube.errors import BadRequestError
from webhook.kube.kinds import Kind
from webhook.kube.metadata import ObjectMeta, read_metadata

Parts = Mapping[str, bytes]
"""Top-level field → its value as JSON, without apiVersion, kind and metadata."""

_HEAD: Final = frozenset({"apiVersion", "kind", "metadata"})


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object at one version; version 0 until it is in the store."""

    kind: Kind
    meta: ObjectMeta
    parts: Parts
    version: int = 0

    @property
    def key(self) -> str:
        """Return "namespace/name", or the name where there is no namespace."""
        return self.meta.key

    @property
    def size_bytes(self) -> int:
        """Return about how much memory the content takes."""
        return 500 + sum(map(len, self.parts.values()))

    def data(self) -> bytes:
        """Return the whole object as JSON."""
        pieces = [_head(self.kind), encode(self.meta)]
        for name, value in self.parts.items():
            pieces += (b",", encode(name), b":", value)
        pieces.append(b"}")
        return b"".join(pieces)

    def decode(self) -> dict[str, object]:
        """Return the whole object, decoded anew for this caller."""
        return decode_object(self.data())

    def revision(self) -> Revision:
        """Return what a write answers."""
        return Revision(
            key=self.key, uid=self.meta.uid, resource_version=self.version, data=self.data()
        )

    def event(self, event_type: EventType) -> WatchEvent:
        """Return the revision as a line of a watch."""
        return WatchEvent(
            type=event_type,
            key=self.key,
            uid=self.meta.uid,
            resource_version=self.version,
            data=self.data(),
        )

    def at(self, version: int) -> StoredObject:
        """Return the object with another resourceVersion."""
        meta = msgspec.structs.replace(self.meta, resource_version=str(version))
        return StoredObject(self.kind, meta, self.parts, version)

    def with_meta(self, **changes: object) -> StoredObject:
        """Return the object with some fields of its metadata changed."""
        return StoredObject(self.kind, msgspec.structs.replace(self.meta, **changes), self.parts)

    def with_parts(self, **changes: bytes) -> StoredObject:
        """Return the object with some top-level fields replaced."""
        return StoredObject(self.kind, self.meta, {**self.parts, **changes})

    def is_same(self, other: StoredObject) -> bool:
        """Return whether both say the same, the version aside."""
        return self.parts == other.parts and self.meta == msgspec.structs.replace(
            other.meta, resource_version=self.meta.resource_version
        )


@lru_cache(maxsize=1024)
def _head(kind: Kind) -> bytes:
    return b'{"apiVersion":%s,"kind":%s,"metadata":' % (encode(kind.api_version), encode(kind.kind))


def read_object(kind: Kind, obj: Object) -> StoredObject:
    """Read an object that a caller sends; nothing of it is shared afterwards.

    Raises:
        BadRequestError: It is of another kind, its metadata cannot be read, or it is not JSON.
    """
    if not isinstance(obj, Mapping):
        raise BadRequestError(f"a {kind.kind} must be an object")
    _check_kind(kind, obj)
    parts = {
        str(name): encode(value)
        for name, value in obj.items()
        if name not in _HEAD and value is not None
    }
    if kind.has_status and not kind.is_custom:
        parts = {"spec": b"{}", "status": b"{}", **parts}
    return StoredObject(kind, read_metadata(kind, obj), parts)


def _check_kind(kind: Kind, obj: Object) -> None:
    for name, expected in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        found = obj.get(name)
        if found not in (None, "", expected):
            raise BadRequestError(
                f"the {name} in the data ({found}) does not match the expected {name} ({expected})"
            )
