"""Reads of the API server in which requests that wait for the same answer join.

As many requests come at a time as there are threads. What is read for a small one may be large.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar
from weakref import WeakValueDictionary

from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.errors import ApiError, UnavailableError

_T = TypeVar("_T")

_WAIT_SECONDS: Final = 5.0
_SLOW_SECONDS: Final = 0.5
_MOST_SLOW: Final = 1000
_MOST_WAITING: Final = 24
"""Threads that may wait for a key whose reads take long: the others are for other requests."""
_MOST_OF_ONE: Final = 4
"""The same for one namespace, whose clients decide how many wait, where all ask for the key."""


@dataclass(slots=True, weakref_slot=True)
class _Reads(Generic[_T]):
    """Reads of one key."""

    changed: threading.Condition
    is_reading: bool = False
    waiting: Counter[str] = field(default_factory=Counter)
    """Threads that wait, by the namespace that they ask for."""
    begun: int = 0
    done: int = 0
    """Number of the last that was answered."""
    answer: Future[_T] = field(default_factory=Future)
    """Its answer, or why it has none."""


class JointReads(Generic[_T]):
    """Reads, of each key one at a time. Safe to use from several threads.

    Args:
        at_once: Reads of different keys that may be under way at a time; others wait some seconds.
            None for what is small: all may be, and those that wait for one do so until it ends.
        condition: What threads wait for one another by.
    """

    def __init__(
        self,
        *,
        at_once: int | None,
        condition: Callable[[], threading.Condition] = threading.Condition,
    ) -> None:
        self._turns = None if at_once is None else threading.BoundedSemaphore(at_once)
        self._condition = condition
        self._slow_turn = threading.BoundedSemaphore(1)
        self._slow: dict[str, None] = {}
        """Keys whose last read took long, the longest known first."""
        self._lock = threading.Lock()
        # of keys that come and go nothing is left: an entry stays while a thread holds it
        self._reads: WeakValueDictionary[str, _Reads[_T]] = WeakValueDictionary()

    def read(self, key: str, call: Callable[[], _T], *, namespace: str = "") -> _T:
        """Return what `call` reads, or what it has read for another thread since this call.

        Args:
            key: Key of what is read.
            call: Reads it.
            namespace: The namespace that asks for it, where others do too.

        Raises:
            UnavailableError: Others read it, or something else, and that takes too long.
            ApiError: The API server does not answer.
            InvalidFieldError: What it answers cannot be read.
        """
        return self._answer(key, call, namespace).result()

    def _answer(self, key: str, call: Callable[[], _T], namespace: str) -> Future[_T]:
        with self._lock:
            reads = self._reads.setdefault(key, _Reads(self._condition()))
        with reads.changed:
            begun = reads.begun  # what was begun before this call may be older than it
            if reads.is_reading:
                self._wait(key, reads, begun, namespace)
            if reads.done > begun:
                return reads.answer
            reads.is_reading = True
            reads.begun = number = reads.begun + 1
        answer: Future[_T] = Future()
        try:
            answer.set_result(self._in_turn(key, call))
        except (ApiError, InvalidFieldError) as err:
            answer.set_exception(err.with_traceback(None))  # which has this answer in a frame
        finally:
            with reads.changed:
                reads.is_reading = False
                if answer.done():  # one that breaks off is made again by those that wait
                    reads.answer, reads.done = answer, number
                reads.changed.notify_all()
        return answer

    def _wait(self, key: str, reads: _Reads[_T], begun: int, namespace: str) -> None:
        """Wait until nothing is being read any more, or there is an answer."""
        waiting = reads.waiting
        is_full = waiting.total() >= _MOST_WAITING or waiting[namespace] >= _MOST_OF_ONE
        if is_full and key in self._slow:
            raise UnavailableError("others wait for the same")
        waiting[namespace] += 1
        try:
            if not reads.changed.wait_for(
                lambda: reads.done > begun or not reads.is_reading,
                None if self._turns is None else _WAIT_SECONDS,
            ):
                raise UnavailableError("other reads take too long")
        finally:
            waiting[namespace] -= 1
            if not waiting[namespace]:
                del waiting[namespace]

    def _in_turn(self, key: str, call: Callable[[], _T]) -> _T:
        if self._turns is None:
            return call()
        turns = [self._turns]
        if key in self._slow:  # one of those at a time leaves turns to all others
            turns.insert(0, self._slow_turn)
        with ExitStack() as stack:
            for one in turns:
                if not one.acquire(timeout=_WAIT_SECONDS):
                    raise UnavailableError("other reads take too long")
                stack.callback(one.release)
            began = time.monotonic()
            found = call()
            self._note_seconds(key, time.monotonic() - began)
            return found

    def _note_seconds(self, key: str, seconds: float) -> None:
        with self._lock:
            self._slow.pop(key, None)
            if seconds > _SLOW_SECONDS:
                self._slow[key] = None
            if len(self._slow) > _MOST_SLOW:
                del self._slow[next(iter(self._slow))]
