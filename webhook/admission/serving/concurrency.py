"""Limits of requests: their number, their order, and the memory of those under way.

A request that would be answered after its deadline takes a thread's time from one that would not.
It is turned away at once instead, so that the API server can say so early.

A body takes up to forty times its size when it is decoded, if it is made of many small values. What
it takes is estimated before, from above, and all bodies that are decoded at a time share a budget.
Small bodies need none: as many as there are threads take 160 MiB at most, and a crowd of large ones
must not keep a bind out.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from typing import Final, Generic, TypeVar

from webhook.jsonfields.encoding import decoded_bytes

BUDGET_BYTES: Final = 256 * 1024 * 1024
"""What the bodies under way may take decoded, and thereby the most of a single one.

Two objects of the API server's own limit, made of the smallest values that pods have, take less.
"""
SMALL_BYTES: Final = 64 * 1024
"""Up to this size a body is not weighed."""

T = TypeVar("T")

SMOOTHING: Final = 0.1
"""Weight of the newest request in the average time of service, once there were enough."""


def body_weight(body: bytes) -> int:
    """Return what a body takes at most when it is decoded and read; 0 for a small one."""
    return 0 if len(body) <= SMALL_BYTES else decoded_bytes(body)


class MemoryBudget:
    """Counts what the bodies under way take; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0

    def could_hold(self, size: int) -> bool:
        """Return whether that much may ever be taken."""
        return size <= BUDGET_BYTES

    def enter(self, size: int) -> bool:
        """Take that much, unless it is too much beside what is taken."""
        with self._lock:
            if size and self._taken + size > BUDGET_BYTES:
                return False
            self._taken += size
            return True

    def leave(self, size: int) -> None:
        """Release a place."""
        with self._lock:
            self._taken -= size


class DeadlineQueue(Generic[T]):
    """Items that wait for a thread, the one with the earliest deadline first; safe for threads."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._serial = itertools.count()
        """Keeps the order of arrival between equal deadlines, and items from being compared."""
        self._lock = threading.Lock()

    def push(self, item: T, deadline: float) -> None:
        """Add an item."""
        with self._lock:
            heapq.heappush(self._heap, (deadline, next(self._serial), item))

    def pop(self) -> T:
        """Take the next item; for each item there is one call, after it was pushed."""
        with self._lock:
            return heapq.heappop(self._heap)[2]


class ConcurrencyLimiter:
    """Counts requests from their last byte to their answer; safe for threads.

    While a thread is free a request always gets in, however slow the ones before it were: the
    average comes down again only by requests that are served.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._inside = 0
        self._served = 0
        self._service_seconds = 0.0

    @property
    def inside(self) -> int:
        """Return how many requests are being answered or wait for a thread."""
        return self._inside

    def enter(self, remaining: float) -> bool:
        """Let a request in unless it would wait longer than `remaining` seconds for its answer."""
        with self._lock:
            if self._expected_seconds() > remaining:
                return False
            self._inside += 1
            return True

    def leave(self, service_seconds: float) -> None:
        """Count out a request whose answer took `service_seconds` of a thread."""
        with self._lock:
            self._inside -= 1
            self._served += 1
            weight = max(SMOOTHING, 1 / self._served)
            self._service_seconds += weight * (service_seconds - self._service_seconds)

    def _expected_seconds(self) -> float:
        ahead = self._inside - self._threads
        if ahead < 0:
            return 0.0
        return (ahead // self._threads + 2) * self._service_seconds
