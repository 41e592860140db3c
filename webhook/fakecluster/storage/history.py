"""Changes of one kind, newest last, bounded in number and in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from itertools import islice

from webhook.fakecluster.storage.stored_object import StoredObject
from webhook.kube.api import EventType


@dataclass(frozen=True, slots=True)
class StoreChange:
    """One write: what the object is now (for DELETED: last was) and what it was before."""

    type: EventType
    current: StoredObject
    previous: StoredObject | None


class History:
    """The changes of one kind in the order of their versions. Guarded by its store's lock.

    `floor` is the newest version that has been forgotten: what happened after it is known.
    """

    __slots__ = ("_changes", "_forgotten", "_limit", "_limit_bytes", "_size_bytes", "floor")

    def __init__(self, *, floor: int, limit: int, limit_bytes: int) -> None:
        self._changes: deque[StoreChange] = deque()
        self._forgotten = 0
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self.floor = floor

    @property
    def end(self) -> int:
        """Return the position after the newest change."""
        return self._forgotten + len(self._changes)

    def append(self, change: StoreChange) -> None:
        """Record a change, and forget the oldest ones beyond the bounds."""
        self._changes.append(change)
        self._size_bytes += change.current.size_bytes
        while len(self._changes) > self._limit or (
            self._size_bytes > self._limit_bytes and len(self._changes) > 1
        ):
            self._forget_oldest()

    def forget_all(self, version: int) -> None:
        """Forget everything, up to `version`."""
        while self._changes:
            self._forget_oldest()
        self.floor = version

    def position_after(self, version: int) -> int | None:
        """Return the position of the first change after a version; None if it is forgotten."""
        if version < self.floor:
            return None
        later = bisect_right(self._changes, version, key=lambda change: change.current.version)
        return self._forgotten + later

    def since(self, position: int) -> list[StoreChange] | None:
        """Return the changes from a position on; None if some of them are forgotten."""
        start = position - self._forgotten
        return None if start < 0 else list(islice(self._changes, start, None))

    def _forget_oldest(self) -> None:
        oldest = self._changes.popleft()
        self._forgotten += 1
        self._size_bytes -= oldest.current.size_bytes
        self.floor = oldest.current.version
