"""Values by key and by namespace, for many readers and the one thread that writes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from webhook.kube.kinds import split_key

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """Entry of a cache for one object: its value, or the error that reading it gave."""

    uid: str
    resource_version: int
    value: T | None = None
    error: Exception | None = None


@dataclass(slots=True)
class _NamespaceValues(Generic[T]):
    """The values of one namespace, and their tuple once it was asked for."""

    values: dict[str, T] = field(default_factory=dict)
    listed: tuple[T, ...] | None = None


class NamespacedCache(Generic[T]):
    """Entries by key, their values also by namespace. Safe to use from several threads.

    Reading a namespace again costs one lookup until something in it changes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, Entry[T]] = {}
        self._namespaces: dict[str, _NamespaceValues[T]] = {}
        self._errors: dict[str, dict[str, Entry[T]]] = {}
        """Namespace → its entries that have an error, by key."""

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

    def in_namespace(self, namespace: str) -> tuple[T, ...]:
        """Return the values of a namespace, sorted by key."""
        with self._lock:
            found = self._namespaces.get(namespace)
            if found is None:
                return ()
            if found.listed is None:
                found.listed = tuple(found.values[key] for key in sorted(found.values))
            return found.listed

    def errors_in(self, namespace: str) -> dict[str, Entry[T]]:
        """Return the entries of a namespace that could not be read, by key."""
        with self._lock:
            return dict(self._errors.get(namespace, {}))

    def namespaces(self) -> set[str]:
        """Return the namespaces that have values."""
        with self._lock:
            return set(self._namespaces)

    def put(self, key: str, entry: Entry[T]) -> Entry[T] | None:
        """Set the entry of a key and return the one it had."""
        with self._lock:
            old = self._entries.get(key)
            self._unlist(key, old)
            self._entries[key] = entry
            if entry.error is not None:
                self._errors.setdefault(split_key(key)[0], {})[key] = entry
            if entry.value is not None:
                found = self._namespaces.setdefault(split_key(key)[0], _NamespaceValues())
                found.values[key] = entry.value
                found.listed = None
            return old

    def remove(self, key: str) -> Entry[T] | None:
        """Remove a key and return the entry it had."""
        with self._lock:
            old = self._entries.pop(key, None)
            self._unlist(key, old)
            return old

    def _unlist(self, key: str, old: Entry[T] | None) -> None:
        if old is None:
            return
        namespace = split_key(key)[0]
        if old.error is not None:
            del self._errors[namespace][key]
            if not self._errors[namespace]:
                del self._errors[namespace]
        if old.value is None:
            return
        found = self._namespaces[namespace]
        del found.values[key]
        found.listed = None
        if not found.values:
            del self._namespaces[namespace]
