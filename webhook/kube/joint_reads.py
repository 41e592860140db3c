"""Reads of the API server in which requests that wait for the same answer join.

As many requests come at a time as there are threads. What is read for a small one may be large.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar
from weakref import WeakValueDictionary

from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.errors import ApiError, UnavailableError

_T = TypeVar("_T")

_WAIT_SECONDS: Final = 5.0


@dataclass(slots=True, weakref_slot=True)
class _Reads(Generic[_T]):
    """Reads of one key."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    begun: int = 0
    done: int = 0
    """Number of the last that was answered."""
    found: list[_T] = field(default_factory=list)
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
                    found, error = [self._in_turn(call)], None
                except (ApiError, InvalidFieldError) as err:
                    found, error = [], err
                reads.found, reads.error, reads.done = found, error, number
            if reads.error is not None:
                raise reads.error
            return reads.found[0]

    def _in_turn(self, call: Callable[[], _T]) -> _T:
        if not self._turns.acquire(timeout=_WAIT_SECONDS):
            raise UnavailableError("other reads take too long")
        try:
            return call()
        finally:
            self._turns.release()
