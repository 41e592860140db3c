"""The twin's store: objects by kind, one version counter, compare-and-swap, watches.

Rules:

1. One lock guards everything. Nothing is encoded, decoded or called out to while it is held.
2. A revision never changes, so readers get references and need no lock.
3. `commit` is the only way to write: it replaces the very revision that the caller has seen, or
   tells that another write came first.
4. Every commit takes the next version, for all kinds from one counter, and appends its change
   to the history of its kind in the same step.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from webhook.fakecluster.storage.history import History, StoreChange
from webhook.fakecluster.storage.stored_object import StoredObject
from webhook.kube.api import AlreadyExistsError, ApiError, EventType
from webhook.kube.kinds import KNOWN_KINDS, Kind


@dataclass(slots=True)
class ObjectTable:
    """The objects of one kind and what happened to them. Guarded by the store's lock."""

    kind: Kind
    history: History
    changed: threading.Condition
    namespaces: dict[str, dict[str, StoredObject]] = field(default_factory=dict)

    def select(self, namespace: str | None) -> list[StoredObject]:
        """Return the objects of one namespace, or of all."""
        if namespace:
            return list(self.namespaces.get(namespace, {}).values())
        return [stored for objects in self.namespaces.values() for stored in objects.values()]


@dataclass(slots=True)
class WatchSignals:
    """Requests to running watches. Guarded by the store's lock."""

    cuts: int = 0
    """How often they were cut; each watch compares with what it saw at its start."""
    cut_error: ApiError | None = None
    """How the last cut looks from outside: None as an end."""
    bookmarks: int = 0
    """How often they were asked for a bookmark."""


class Store:
    """All objects of one cluster. Safe to use from several threads."""

    def __init__(self, *, start_version: int, history_limit: int, history_bytes: int) -> None:
        self.lock: Final = threading.Lock()
        self.signals: Final = WatchSignals()
        self._start_version = start_version
        self._version = start_version
        self._history_limit = history_limit
        self._history_bytes = history_bytes
        self._tables: dict[tuple[str, str], ObjectTable] = {}

    @property
    def version(self) -> int:
        """Return the newest version of all."""
        return self._version

    def kinds(self) -> tuple[Kind, ...]:
        """Return the kinds that are served: the known ones and those that were ever asked for."""
        with self.lock:
            seen = {key: table.kind for key, table in self._tables.items()}
        return tuple({**{(kind.group, kind.plural): kind for kind in KNOWN_KINDS}, **seen}.values())

    def table(self, kind: Kind) -> ObjectTable:
        """Return the table of a kind, made at its first use."""
        found = self._tables.get((kind.group, kind.plural))
        return found or self._new_table(kind)

    def _new_table(self, kind: Kind) -> ObjectTable:
        with self.lock:
            history = History(
                floor=self._start_version,
                limit=self._history_limit,
                limit_bytes=self._history_bytes,
            )
            table = ObjectTable(kind, history, threading.Condition(self.lock))
            return self._tables.setdefault((kind.group, kind.plural), table)

    def get(self, kind: Kind, namespace: str, name: str) -> StoredObject | None:
        """Return an object as it is now; None if there is none."""
        return self.table(kind).namespaces.get(namespace, {}).get(name)

    def select(self, kind: Kind, namespace: str | None) -> tuple[list[StoredObject], int]:
        """Return the objects of a kind at one moment, and the version of that moment."""
        table = self.table(kind)
        with self.lock:
            return table.select(namespace), self._version

    def commit(self, new: StoredObject, *, over: StoredObject | None) -> StoredObject | None:
        """Write an object in the place of `over` (None: it must not be there).

        Returns:
            The object with its version; None if something else is in that place by now.
        """
        return self._swap(new, over, "ADDED" if over is None else "MODIFIED")

    def remove(self, final: StoredObject, *, over: StoredObject) -> StoredObject | None:
        """Delete the object `over`, whose last state is `final`; outcome as in `commit`."""
        return self._swap(final, over, "DELETED")

    def _swap(
        self, new: StoredObject, over: StoredObject | None, event_type: EventType
    ) -> StoredObject | None:
        table = self.table(new.kind)
        with self.lock:
            if self.get(new.kind, new.meta.namespace, new.meta.name) is not over:
                return None
            return self._place(table, new, over, event_type)

    def _place(
        self,
        table: ObjectTable,
        new: StoredObject,
        over: StoredObject | None,
        event_type: EventType,
    ) -> StoredObject:
        self._version += 1
        written = new.at(self._version)
        objects = table.namespaces.setdefault(new.meta.namespace, {})
        if event_type == "DELETED":
            del objects[new.meta.name]
        else:
            objects[new.meta.name] = written
        table.history.append(StoreChange(event_type, written, over))
        table.changed.notify_all()
        return written

    def load(self, objects: Iterable[StoredObject]) -> tuple[StoredObject, ...]:
        """Put objects into the store, all or none.

        They get new versions, above every version that any of them carries.

        Raises:
            AlreadyExistsError: One is there already, or twice among them.
            BadRequestError: One carries a version that is not a number.
        """
        loaded = [(self.table(stored.kind), stored) for stored in objects]
        highest = max((stored.meta.version for _, stored in loaded), default=0)
        with self.lock:
            self._check_absent(loaded)
            self._version = max(self._version, highest)
            return tuple(self._place(table, stored, None, "ADDED") for table, stored in loaded)

    @staticmethod
    def _check_absent(loaded: Iterable[tuple[ObjectTable, StoredObject]]) -> None:
        seen: set[tuple[int, str]] = set()
        for table, stored in loaded:
            place = (id(table), stored.key)
            there = table.namespaces.get(stored.meta.namespace, {})
            if place in seen or stored.meta.name in there:
                raise AlreadyExistsError.of(stored.kind, stored.meta.name)
            seen.add(place)

    def compact(self) -> None:
        """Forget all history: a watch that has not seen it all gets 410."""
        with self.lock:
            for table in self._tables.values():
                table.history.forget_all(self._version)
            self._wake_all()

    def cut_watches(self, error: ApiError | None) -> None:
        """End every running watch, by its end or by an error."""
        with self.lock:
            self.signals.cuts += 1
            self.signals.cut_error = error
            self._wake_all()

    def send_bookmarks(self) -> None:
        """Ask every running watch for a bookmark."""
        with self.lock:
            self.signals.bookmarks += 1
            self._wake_all()

    def _wake_all(self) -> None:
        for table in self._tables.values():
            table.changed.notify_all()
