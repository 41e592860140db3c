"""Watch on the fake API server: a position in the history of one kind, read at its own speed."""

from __future__ import annotations

import time
from collections import deque
from typing import Final, Self

from webhook.fakecluster.storage.history import StoreChange
from webhook.fakecluster.storage.pod_strategy import selectable_field
from webhook.fakecluster.storage.store import Store
from webhook.fakecluster.storage.stored_object import StoredObject
from webhook.kube.api import ApiError, EventType, ExpiredError, Kind, ListOptions, WatchEvent
from webhook.kube.codec import encode
from webhook.kube.errors import RequestTimeoutError
from webhook.kube.selectors import parse_selector

BOOKMARK_SECONDS: Final = 60.0
DEFAULT_TIMEOUT_SECONDS: Final = 1800.0


class FakeWatch:
    """The changes of one kind after a version. May be closed from any thread.

    Waits on the store's own signal, in real time.
    """

    def __init__(
        self,
        store: Store,
        kind: Kind,
        options: ListOptions,
        *,
        version: int,
        timeout_seconds: float | None,
        bookmarks: bool,
    ) -> None:
        now = time.monotonic()
        self._store = store
        self._table = store.table(kind)
        self._namespace = options.namespace
        self._selector = parse_selector(kind, options.label_selector, options.field_selector)
        self._bookmarks = bookmarks
        self._deadline = now + (
            DEFAULT_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
        )
        self._next_bookmark = now + BOOKMARK_SECONDS
        self._pending: deque[StoreChange] = deque()
        self._last: ApiError | None = None
        self._closed = False
        self._version = version
        with store.lock:
            self._cuts = store.signals.cuts
            self._bookmarks_asked = store.signals.bookmarks
            self._position = self._start(version)

    def _start(self, version: int) -> int:
        if version > self._store.version:
            self._last = too_new(version, self._store.version)
            return self._table.history.end
        position = self._table.history.position_after(version)
        if position is None:
            self._last = too_old(version, self._table.history.floor)
            return self._table.history.end
        return position

    def __iter__(self) -> Self:
        """Return the watch itself."""
        return self

    def __next__(self) -> WatchEvent:
        """Wait for the next event; see `WatchStream`."""
        while not self._closed:
            if self._last is not None:
                return self._fail(self._last)
            while self._pending:
                event = self._seen(self._pending.popleft())
                if event is not None:
                    return event
            bookmark = self._wait()
            if bookmark is not None:
                return _bookmark(self._table.kind, bookmark)
        raise StopIteration

    def close(self) -> None:
        """End the watch and wake the thread that waits in it."""
        with self._store.lock:
            self._closed = True
            self._table.changed.notify_all()

    def __enter__(self) -> Self:
        """Return the watch; leaving the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the watch."""
        self.close()

    def _wait(self) -> int | None:
        """Wait until there is something to send; return a version if that is a bookmark."""
        with self._store.lock:
            while not self._closed:
                if self._is_cut() or self._take():
                    return None
                now = time.monotonic()
                if now >= self._deadline:
                    self._closed = True
                    return self._store.version if self._bookmarks else None
                if self._bookmark_is_due(now):
                    return self._store.version
                self._table.changed.wait(min(self._deadline, self._next_bookmark) - now)
        return None

    def _take(self) -> bool:
        changes = self._table.history.since(self._position)
        if changes is None:
            self._last = too_old(self._version, self._table.history.floor)
            return True
        if changes:
            self._position += len(changes)
            self._version = changes[-1].current.version
            self._pending.extend(changes)
        return bool(changes)

    def _is_cut(self) -> bool:
        signals = self._store.signals
        if self._cuts == signals.cuts:
            return False
        self._closed = True
        if signals.cut_error is not None:
            raise signals.cut_error
        return True

    def _bookmark_is_due(self, now: float) -> bool:
        asked = self._store.signals.bookmarks
        if now < self._next_bookmark and asked == self._bookmarks_asked:
            return False
        self._next_bookmark = now + BOOKMARK_SECONDS
        self._bookmarks_asked = asked
        return self._bookmarks

    def _fail(self, error: ApiError) -> WatchEvent:
        self._closed = True
        data = encode(error.to_status())
        return WatchEvent(type="ERROR", key="", uid="", resource_version=0, data=data)

    def _seen(self, change: StoreChange) -> WatchEvent | None:
        """Return a change as this watch sees it; None if it does not concern it."""
        if self._namespace and change.current.meta.namespace != self._namespace:
            return None
        if self._selector.is_empty:
            return change.current.event(change.type)
        return self._selected(change)

    def _selected(self, change: StoreChange) -> WatchEvent | None:
        was = change.previous is not None and self._matches(change.previous)
        is_now = change.type != "DELETED" and self._matches(change.current)
        if not was and not is_now:
            return None
        event_type: EventType = "MODIFIED"
        if not was:
            event_type = "ADDED"
        elif not is_now:
            event_type = "DELETED"
        return _as_last_matched(change, event_type).event(event_type)

    def _matches(self, stored: StoredObject) -> bool:
        return self._selector.matches(
            stored.meta.labels, lambda field: selectable_field(stored, field)
        )


def _as_last_matched(change: StoreChange, event_type: EventType) -> StoredObject:
    if event_type != "DELETED" or change.previous is None:
        return change.current
    # an object that ceases to match is sent as it was when it did, at the new version
    return change.previous.at(change.current.version)


def _bookmark(kind: Kind, version: int) -> WatchEvent:
    data = encode(
        {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"resourceVersion": str(version), "creationTimestamp": None},
        }
    )
    return WatchEvent(type="BOOKMARK", key="", uid="", resource_version=version, data=data)


def too_old(version: int, floor: int) -> ExpiredError:
    """Return the error of a version that is too old to watch from, in the API server's words."""
    return ExpiredError(f"too old resource version: {version} ({floor})")


def too_new(version: int, newest: int) -> RequestTimeoutError:
    """Return the error of a version that is not reached yet, in the API server's words."""
    return RequestTimeoutError(
        f"Timeout: Too large resource version: {version}, current: {newest}",
        details={
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ],
            "retryAfterSeconds": 1,
        },
    )
