"""The file of `deferred-quota snapshot`: a list of objects with a version.

```json
{"apiVersion": "deferredquota.io/v1alpha1", "kind": "SnapshotList", "format": 1,
 "taken": "2026-11-23T08:00:00Z", "program": "deferred-quota 0.1.0",
 "namespaces": [], "unread": ["Node.v1", "Pod.v1 in team-b"], "items": [...]}
```

`namespaces` are those whose objects it has; empty: all. `unread` are the kinds that could not be
read when it was taken. A file of a newer format is refused: what it leaves out cannot be known.
So is a file without any document, as `kubectl get ... > FILE` leaves behind where it fails.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError, timestamp
from webhook.kube.files.documents import Document, SnapshotError, read_documents

API_VERSION: Final = "deferredquota.io/v1alpha1"
SNAPSHOT_KIND: Final = "SnapshotList"
FORMAT: Final = 1

MAX_UNPACKED_BYTES: Final = 2 << 30
"""Most that a gzip file may unpack to: 14 kB for each of the 150,000 pods of the largest cluster
that Kubernetes supports. kubectl prints a pod of one or two containers as 5 to 10 kB of JSON;
snapshots of ours, which leave much out, have about one for each."""

_TOO_LONG: Final = (
    "unpacks to more than {} MiB, more than a snapshot of the largest cluster takes; if it is one,"
    " unpack it with gunzip and give the file that comes out"
)
_GZIP: Final = b"\x1f\x8b"
_PART_BYTES: Final = 1 << 20


def unpacked(file: str, data: bytes) -> bytes:
    """Return the content of a file, decompressed where it is gzip.

    Raises:
        SnapshotError: The stream is damaged, ends too early, or is longer than any snapshot.
    """
    if not data.startswith(_GZIP):
        return data
    parts: list[bytes] = []
    left = MAX_UNPACKED_BYTES
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            while part := stream.read(_PART_BYTES):
                left -= len(part)
                if left < 0:
                    raise SnapshotError(file, _TOO_LONG.format(MAX_UNPACKED_BYTES >> 20))
                parts.append(part)
    except (EOFError, OSError, zlib.error) as err:
        raise SnapshotError(file, f"invalid gzip file: {err}") from err
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class SnapshotExtent:
    """Extent of snapshots: what they do not hold."""

    unread: frozenset[str] = frozenset()
    """Kinds, as `Kind.apiVersion` or `Kind.apiVersion in NAMESPACE`."""
    namespaces: frozenset[str] = frozenset()
    """Namespaces whose objects they have; empty: all."""
    taken: datetime | None = None
    """When the last of them was taken; None where none has that."""

    def lacks(self, kind: str, namespace: str | None) -> bool:
        """Return whether objects of a kind may be missing, in a namespace or in any.

        Args:
            kind: As `Kind.apiVersion`.
            namespace: None for kinds without namespaces, empty for all namespaces.
        """
        if kind in self.unread or (namespace and f"{kind} in {namespace}" in self.unread):
            return True
        if namespace is None or (namespace and not self.namespaces):
            return False
        if namespace:
            return namespace not in self.namespaces
        return bool(self.namespaces) or any(one.startswith(f"{kind} in ") for one in self.unread)


def documents_of(files: Iterable[tuple[str, bytes]]) -> list[Document]:
    """Return the documents of some files, by name and content.

    Raises:
        SnapshotError: A file cannot be read, or says nothing of a cluster, which is not a cluster
            without objects: all its documents are empty, or there is none.
    """
    every: list[Document] = []
    for file, data in files:
        found = read_documents(file, data)
        if all(document.value is None for document in found):
            raise SnapshotError(file, "is empty: not what a command prints of a cluster")
        every += found
    return every


def extent_of(documents: Iterable[Document]) -> SnapshotExtent:
    """Return what the snapshots among documents do not hold.

    Raises:
        SnapshotError: A snapshot has a newer format, or its head is wrong.
    """
    heads = [head for document in documents if (head := _head_of(document)) is not None]
    is_partial = bool(heads) and all(head.namespaces for head in heads)
    names = frozenset[str]().union(*(head.namespaces for head in heads))
    return SnapshotExtent(
        frozenset[str]().union(*(head.unread for head in heads)),
        names if is_partial else frozenset(),
        max((head.taken for head in heads if head.taken is not None), default=None),
    )


def _head_of(document: Document) -> SnapshotExtent | None:
    """Return what one snapshot does not hold; None if it is none."""
    head = document.value
    if not isinstance(head, dict) or head.get("kind") != SNAPSHOT_KIND:
        return None
    if head.get("apiVersion") != API_VERSION:
        detail = f"is {head.get('apiVersion')!r}, of another release: this one reads {API_VERSION}"
        raise document.error(detail, field="apiVersion")
    version = head.get("format")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise document.error("must be a whole number from 1", field="format")
    if version > FORMAT:
        detail = f"is {version}, of a newer release: this one reads up to {FORMAT}"
        raise document.error(detail, field="format")
    try:
        taken = timestamp(head.get("taken"), "taken")
    except InvalidFieldError as err:
        raise document.error(err.detail, field=err.field) from err
    return SnapshotExtent(
        _texts(document, head, "unread"), _texts(document, head, "namespaces"), taken
    )


def _texts(document: Document, head: Mapping[str, object], name: str) -> frozenset[str]:
    found = head.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise document.error("must be a list of strings", field=name)
    return frozenset(found)
