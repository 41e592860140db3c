"""Values by key and by index, for many readers and the one thread that writes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from webhook.kube.kinds import split_key

T = TypeVar("T")

BY_NAMESPACE: Final = "namespace"
"""The index that every cache has."""


NOT_INDEXED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
"""Of an entry that is in no index but that of its namespace."""


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """What a cache holds for one object: its value, or the error that reading it gave.

    `indexed`: index name → the values under which it is found.
    """

    uid: str
    resource_version: int
    value: T | None = None
    error: Exception | None = None
    indexed: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NOT_INDEXED)


@dataclass(slots=True)
class _IndexEntry(Generic[T]):
    """The values under one value of one index, and their tuple once it was asked for."""

    values: dict[str, T] = field(default_factory=dict)
    listed: tuple[T, ...] | None = None


class IndexedCache(Generic[T]):
    """Entries by key, their values also by index. Safe to use from several threads.

    Reading an index again costs one lookup until something in it changes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, Entry[T]] = {}
        self._buckets: dict[tuple[str, str], _IndexEntry[T]] = {}

    def __len__(self) -> int:
        """Return how many objects are known, readable or not."""
        return len(self._entries)

    def entry(self, key: str) -> Entry[T] | None:
        """Return all that is known of an object; None if it is not there."""
        return self._entries.get(key)

    def entries(self) -> dict[str, Entry[T]]:
        """Return all entries at one moment."""
        with self._lock:
            return dict(self._entries)

    def find(self, index: str, value: str) -> tuple[T, ...]:
        """Return the values that an index has under a value, sorted by key."""
        with self._lock:
            bucket = self._buckets.get((index, value))
            if bucket is None:
                return ()
            if bucket.listed is None:
                bucket.listed = tuple(bucket.values[key] for key in sorted(bucket.values))
            return bucket.listed

    def index_values(self, index: str) -> set[str]:
        """Return the values under which an index has objects."""
        with self._lock:
            return {value for name, value in self._buckets if name == index}

    def put(self, key: str, entry: Entry[T]) -> Entry[T] | None:
        """Set the entry of a key and return the one it had."""
        with self._lock:
            old = self._entries.get(key)
            self._unlist(key, old)
            self._entries[key] = entry
            if entry.value is not None:
                for place in _places(key, entry):
                    self._fill(place, key, entry.value)
            return old

    def remove(self, key: str) -> Entry[T] | None:
        """Remove a key and return the entry it had."""
        with self._lock:
            old = self._entries.pop(key, None)
            self._unlist(key, old)
            return old

    def _fill(self, place: tuple[str, str], key: str, value: T) -> None:
        bucket = self._buckets.setdefault(place, _IndexEntry())
        bucket.values[key] = value
        bucket.listed = None

    def _unlist(self, key: str, old: Entry[T] | None) -> None:
        if old is None or old.value is None:
            return
        for place in _places(key, old):
            bucket = self._buckets[place]
            bucket.values.pop(key, None)
            bucket.listed = None
            if not bucket.values:
                del self._buckets[place]


def _places(key: str, entry: Entry[T]) -> Iterable[tuple[str, str]]:
    places = {(BY_NAMESPACE, split_key(key)[0])}
    if not entry.indexed:
        return places
    return places | {(index, value) for index, values in entry.indexed.items() for value in values}
