"""The file of `deferred-quota snapshot`: a list of objects with a version.

```json
{"apiVersion": "deferredquota.io/v1alpha1", "kind": "SnapshotList", "format": 1,
 "taken": "2026-11-23T08:00:00Z", "program": "deferred-quota 0.1.0",
 "unread": ["Node.v1"], "items": [...]}
```

`unread` are the kinds that could not be read when it was taken, as `Kind.apiVersion`. A file of a
newer format is refused: what it leaves out cannot be known.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from typing import Final

from webhook.kube.files.documents import Document, SnapshotError

API_VERSION: Final = "deferredquota.io/v1alpha1"
SNAPSHOT_KIND: Final = "SnapshotList"
FORMAT: Final = 1

_GZIP: Final = b"\x1f\x8b"


def unpacked(file: str, data: bytes) -> bytes:
    """Return the content of a file, decompressed where it is gzip.

    Raises:
        SnapshotError: The stream is damaged or ends too early.
    """
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as err:
        raise SnapshotError(file, f"not a whole gzip file: {err}") from err


def unread_kinds(documents: Iterable[Document]) -> frozenset[str]:
    """Return the kinds that snapshots say they could not read, as `Kind.apiVersion`.

    Raises:
        SnapshotError: A snapshot has a newer format, or its head is wrong.
    """
    return frozenset(kind for document in documents for kind in _unread_in(document))


def _unread_in(document: Document) -> Iterable[str]:
    head = document.value
    if not isinstance(head, dict) or head.get("kind") != SNAPSHOT_KIND:
        return ()
    version, unread = head.get("format"), head.get("unread", [])
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise document.error("must be a whole number from 1", field="format")
    if version > FORMAT:
        detail = f"is {version}, of a newer release: this one reads up to {FORMAT}"
        raise document.error(detail, field="format")
    if not (isinstance(unread, list) and all(isinstance(one, str) for one in unread)):
        raise document.error("must be a list of strings", field="unread")
    return unread
