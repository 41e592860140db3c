"""A local copy of the objects of one kind that follows the cluster.

Rules:

1. The copy only moves forward: `resource_version` never decreases, and everything up to it has
   been taken in and handed to the handlers.
2. Whatever happens to the connection, the copy stays readable and the informer tries again, with
   growing, jittered pauses. When the server has forgotten where it was (410), or ends the watch
   there again without an event, it lists anew and hands on the differences.
3. One object that cannot be read stops nothing: its value goes, its error is kept and handed on.
4. A list is taken in page by page, decoded one object at a time. Single objects may then be newer
   than `resource_version`; what the list does not show goes when all of it has been seen.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from webhook.kube.api import (
    ALL,
    ApiError,
    ClusterApi,
    ExpiredError,
    Kind,
    ListOptions,
    NotFoundError,
    Object,
    Revision,
    WatchEvent,
    WatchStream,
)
from webhook.kube.cache import Entry, NamespacedCache
from webhook.kube.codec import decode_object
from webhook.kube.informer_types import STALE_SECONDS, Change, Handler, InformerTimings
from webhook.kube.pager import list_pages

__all__ = ["Change", "Entry", "Handler", "Informer", "InformerTimings", "ListOptions"]

T = TypeVar("T")

log = logging.getLogger(__name__)

_SILENT_WATCHES: Final = 2
"""In a row, before a list: an event that the server cannot write ends each watch that meets it.

Source: kubernetes v1.36, apiserver/pkg/endpoints/handlers/watch.go HandleHTTP. JSON of more than
10,000 levels is such an event, while a list, and so what comes after it, can be had.
"""
_REST: Final = 4
"""For how many times as long as a list took there is no further one for that reason."""


class Informer(Generic[T]):
    """Follows one kind on a thread of its own. Reading it is safe from any thread."""

    def __init__(
        self,
        api: ClusterApi,
        kind: Kind,
        *,
        transform: Callable[[Object], T],
        options: ListOptions = ALL,
        timings: InformerTimings | None = None,
        decode: Callable[[bytes], Object] = decode_object,
    ) -> None:
        """Prepare to follow a kind; nothing happens before `start`.

        Args:
            api: Where to list and watch.
            kind: What to follow.
            transform: Makes of each object what the copy shall hold; called once per version.
                What it raises is kept as the object's error.
            options: Which objects of the kind.
            timings: The clock and the pauses; by default real ones.
            decode: Makes plain values of an object's JSON; by default of all of it. What it
                raises is kept as the object's error too.
        """
        self._api = api
        self._kind = kind
        self._transform = transform
        self._options = options
        self._timings = timings or InformerTimings()
        self._decode = decode
        self._cache: NamespacedCache[T] = NamespacedCache()
        self.entry: Final = self._cache.entry
        self.in_namespace: Final = self._cache.in_namespace
        self.errors_in: Final = self._cache.errors_in
        self._handlers: list[Handler[T]] = []
        self._moved = threading.Condition()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._stream: WatchStream | None = None
        self.resource_version = 0
        """Up to which version everything has been taken in; 0 before the first list."""
        self._listed_version = 0
        self._last_event: float | None = None
        self._must_list = True
        self.has_synced = False
        """Whether a whole list has been taken in since the start."""
        self.relists = 0
        """How many lists have been taken in, the first one included."""
        self.last_error: ApiError | None = None
        """What the last attempt to list or watch ended with; None when it went well."""
        self._fails_again = False  # nothing was heard since the last error
        self._silent_watches = 0
        self._rests_until = -math.inf
        self._changes = 0  # that were handed on

    def add_handler(self, handler: Handler[T]) -> None:
        """Call `handler` for every change, in order, on the informer's thread.

        Raises:
            RuntimeError: The informer runs already, so that changes may have been missed.
        """
        if self._thread is not None:
            raise RuntimeError("handlers must be added before the informer starts")
        self._handlers.append(handler)

    def start(self) -> None:
        """Begin to follow, on a thread of its own.

        Raises:
            RuntimeError: It was started before.
        """
        if self._thread is not None:
            raise RuntimeError("an informer starts once")
        name = f"informer-{self._kind.plural}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self, *, timeout_seconds: float = 5.0) -> None:
        """End following and wait for the thread; the copy stays as it is."""
        self._stopping.set()
        with self._moved:
            stream = self._stream
            self._moved.notify_all()
        if stream is not None:
            stream.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)

    @property
    def is_following(self) -> bool:
        """Return whether a watch stands, so that changes are shown as they happen."""
        return self._stream is not None

    @property
    def last_event_age_seconds(self) -> float:
        """Return how long ago the server was last heard of; infinite before the first list."""
        return math.inf if self._last_event is None else self._timings.clock() - self._last_event

    @property
    def is_current(self) -> bool:
        """Return whether the copy was filled, and goes on following.

        A watch need not stand: where each ends before its first event, lists lead on (`_is_stuck`),
        and the creators of such objects do not decide whether others may rely on the copy.
        """
        is_fresh = self.last_event_age_seconds <= STALE_SECONDS
        return self.has_synced and self.last_error is None and is_fresh

    @property
    def is_absent(self) -> bool:
        """Return whether the kind is not served, by the last answer."""
        return isinstance(self.last_error, NotFoundError)

    def wait_for_sync(self, timeout_seconds: float) -> bool:
        """Wait until `has_synced`; False if the time is up or the informer stops first."""
        return self._wait(lambda: self.has_synced, timeout_seconds)

    def wait_for_version(self, resource_version: int, timeout_seconds: float) -> bool:
        """Wait until everything up to a version has been taken in; False as above."""
        return self._wait(lambda: self.resource_version >= resource_version, timeout_seconds)

    def _wait(self, is_so: Callable[[], bool], timeout_seconds: float) -> bool:
        with self._moved:
            self._moved.wait_for(lambda: is_so() or self._stopping.is_set(), timeout_seconds)
            return is_so()

    def __len__(self) -> int:
        """Return how many objects are known."""
        return len(self._cache)

    def get(self, key: str) -> T | None:
        """Return the value of an object; None if it is not there or cannot be read."""
        entry = self.entry(key)
        return None if entry is None else entry.value

    def items(self) -> dict[str, T]:
        """Return all readable values by key, at one moment."""
        entries = self._cache.entries().items()
        return {key: entry.value for key, entry in entries if entry.value is not None}

    def _run(self) -> None:
        attempt = 0
        while not self._stopping.is_set():
            began, changes, relists = self._timings.clock(), self._changes, self.relists
            went_well = self._attempt()
            # a list that shows nothing new costs as much, and may follow each watch
            led_on = self._changes > changes and self.relists > relists and not self._must_list
            lasted = self._timings.clock() - began
            if went_well or led_on or lasted >= self._timings.healthy_after:
                attempt = 0
            if not went_well and not self._stopping.is_set():
                self._pause(self._timings.pause(attempt))
                attempt += 1

    def _pause(self, seconds: float) -> None:
        if self._timings.sleep is None:
            self._stopping.wait(seconds)
        else:
            self._timings.sleep(seconds)

    def _attempt(self) -> bool:
        """List if that is needed, then follow until the watch ends; return whether it went well."""
        try:
            is_stuck = not self._must_list and self._is_stuck()
            if is_stuck:
                log.warning("watch makes no progress", extra={"kind": self._kind.plural})
            if (self._must_list or is_stuck) and not self._list():
                return False
            went_well = self._follow()
        except ApiError as err:
            # a watch ends now and then on a quiet API server, whose bookmarks are late: it is
            # opened again at once, and only what fails then is worth a look
            is_first = self.has_synced and not self._fails_again
            self.last_error, self._fails_again = err, True
            # a kind that is not served any more took its objects with it
            self._must_list = self._must_list or isinstance(err, (ExpiredError, NotFoundError))
            log.log(
                logging.INFO if is_first else logging.WARNING,
                "watch failed",
                extra={"kind": self._kind.plural, "code": err.code, "error": str(err)},
            )
        except Exception:  # the thread's outermost frame: start over from a list
            self._must_list = True
            log.exception("informer failed", extra={"kind": self._kind.plural})
        else:
            self.last_error = None
            return went_well
        return False

    def _is_stuck(self) -> bool:
        """Return whether only a list leads on, and it is time for one."""
        has_rested = self._timings.clock() >= self._rests_until
        return self._silent_watches >= _SILENT_WATCHES and has_rested

    def _list(self) -> bool:
        """Take in a whole list page by page; False if the informer is stopped meanwhile."""
        keys: set[str] = set()
        newest = max(self.resource_version, self._listed_version)
        began, self._silent_watches = self._timings.clock(), 0
        for page in list_pages(self._api, self._kind, self._options, newest=newest):
            self._must_list = True  # a watch from before would take back what the list shows
            self._listed_version = page.resource_version
            for one in page.items:
                self._take_in(one)
            keys.update(one.key for one in page.items)
            if self._stopping.is_set():
                return False
        for key, entry in self._cache.entries().items():
            if key not in keys:
                self._forget(key, entry.uid, self._listed_version)
        self._must_list = False
        now = self._timings.clock()
        self._rests_until = now + _REST * (now - began)
        self.relists += 1
        self._advance(self._listed_version, synced=True)
        return True

    def _follow(self) -> bool:
        """Follow one watch to its end; tell whether the server was heard of in it."""
        heard = False
        with self._api.watch(
            self._kind,
            self._options,
            resource_version=self.resource_version,
            timeout_seconds=self._timings.watch_seconds(),
        ) as stream:
            self._publish(stream)
            self.last_error = None  # the server takes the watch: what went wrong is over
            try:
                for event in stream:
                    if self._stopping.is_set():
                        break
                    self._take_event(event)
                    heard = True
            finally:
                self._publish(None)
                self._silent_watches = 0 if heard else self._silent_watches + 1
        return heard

    def _publish(self, stream: WatchStream | None) -> None:
        """Let `stop` know which watch to close."""
        with self._moved:
            self._stream = stream
        if stream is not None and self._stopping.is_set():
            stream.close()

    def _take_event(self, event: WatchEvent) -> None:
        if event.type == "ERROR":
            raise event.error()
        if event.type == "DELETED":
            self._forget(event.key, event.uid, event.resource_version)
        elif event.type != "BOOKMARK":
            self._take_in(event)
        self._advance(event.resource_version)

    def _advance(self, version: int, *, synced: bool = False) -> None:
        with self._moved:
            self.resource_version = max(self.resource_version, version)
            self._last_event = self._timings.clock()
            self.last_error, self._fails_again = None, False
            self.has_synced = self.has_synced or synced
            self._moved.notify_all()

    def _take_in(self, revision: Revision) -> None:
        key, uid, version = revision.key, revision.uid, revision.resource_version
        known = self._cache.entry(key)
        if known is not None and known.uid == uid and known.resource_version >= version:
            return
        if known is not None and known.uid != uid:
            self._forget(key, known.uid, version)
        entry = self._read(revision)
        if entry.error is not None:
            log.error("object cannot be read", extra={"key": key, "error": str(entry.error)})
        old = self._cache.put(key, entry)
        self._dispatch(
            Change(
                type="ADDED" if old is None else "UPDATED",
                key=key,
                uid=uid,
                resource_version=version,
                old=None if old is None else old.value,
                new=entry.value,
                error=entry.error,
            )
        )

    def _read(self, revision: Revision) -> Entry[T]:
        uid, version = revision.uid, revision.resource_version
        try:
            value = self._transform(self._decode(revision.data))
        except Exception as err:  # noqa: BLE001 - whatever reading one object raises is its own
            return Entry(uid, version, error=err)
        return Entry(uid, version, value)

    def _forget(self, key: str, uid: str, version: int) -> None:
        known = self._cache.remove(key)
        if known is not None:
            self._dispatch(Change("DELETED", key, uid, version, old=known.value))

    def _dispatch(self, change: Change[T]) -> None:
        self._changes += 1
        for handler in self._handlers:
            try:
                handler(change)
            except Exception:  # a handler's failure must not keep the copy from moving on
                log.exception("handler failed", extra={"key": change.key})
