"""Reads of the API server in which requests that wait for the same answer join.

As many requests come at a time as there are threads. What is read for a small one may be large.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar
from weakref import WeakValueDictionary

from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.errors import ApiError, UnavailableError

_T = TypeVar("_T")

_WAIT_SECONDS: Final = 5.0
_SLOW_SECONDS: Final = 0.5
_MOST_SLOW: Final = 1000


@dataclass(slots=True, weakref_slot=True)
class _Reads(Generic[_T]):
    """Reads of one key."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    begun: int = 0
    done: int = 0
    """Number of the last that was answered."""
    answer: list[_T] = field(default_factory=list)
    """Its answer, if it has one."""
    error: ApiError | InvalidFieldError | None = None
    """Why it has none."""


class JointReads(Generic[_T]):
    """Reads, of each key one at a time. Safe to use from several threads.

    Args:
        at_once: Reads of different keys that may be under way at a time; others wait some seconds.
        alone: Keeps other threads from reading a key meanwhile; by default a lock of this object.
    """

    def __init__(
        self,
        *,
        at_once: int = 64,
        alone: Callable[[str], AbstractContextManager[object]] | None = None,
    ) -> None:
        self._turns = threading.BoundedSemaphore(at_once)
        self._slow_turn = threading.BoundedSemaphore(1)
        self._slow: dict[str, None] = {}
        """Keys whose last read took long, the longest known first."""
        self._alone = alone
        self._lock = threading.Lock()
        # of keys that come and go nothing is left: an entry stays while a thread holds it
        self._reads: WeakValueDictionary[str, _Reads[_T]] = WeakValueDictionary()

    def read(self, key: str, call: Callable[[], _T]) -> _T:
        """Return what `call` reads, or what it has read for another thread since this call.

        Raises:
            ApiError: The API server does not answer.
            InvalidFieldError: What it answers cannot be read.
        """
        with self._lock:
            reads = self._reads.setdefault(key, _Reads())
            begun = reads.begun
        with reads.lock if self._alone is None else self._alone(key):
            if reads.done <= begun:  # what was begun before this call may be older than it
                reads.begun = number = reads.begun + 1
                try:
                    answer, error = [self._in_turn(key, call)], None
                except (ApiError, InvalidFieldError) as err:
                    answer, error = [], err
                reads.answer, reads.error, reads.done = answer, error, number
            if reads.error is not None:
                raise reads.error
            return reads.answer[0]

    def _in_turn(self, key: str, call: Callable[[], _T]) -> _T:
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
