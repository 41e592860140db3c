"""Delaying workqueue: keys with due times, for several threads.

Rules:

1. A key is given to one thread at a time. What is put for it meanwhile waits until it is done.
2. Keys are given in the order of their moments, so that none waits behind one that comes up again
   and again.
3. Putting and taking cost the logarithm of the number of keys, whatever else is planned.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class DelayingQueue(Generic[K]):
    """Keys and when each is due. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._condition = threading.Condition()
        self._heap: list[tuple[float, int, K]] = []
        self._due_at: dict[K, float] = {}
        self._in_progress: dict[K, float] = {}
        """Keys that were taken, and for when they were put meanwhile."""
        self._order = itertools.count()
        self._is_shut_down = False

    def __len__(self) -> int:
        """Return how many keys wait."""
        return len(self._due_at)

    def now(self) -> float:
        """Return the time on the clock that moments are of."""
        return self._clock()

    @property
    def is_shut_down(self) -> bool:
        """Whether nothing is given any more."""
        return self._is_shut_down

    def add_at(self, key: K, due_at: float) -> None:
        """Plan a key; of several moments the earliest counts."""
        with self._condition:
            if key in self._in_progress:
                self._in_progress[key] = min(self._in_progress[key], due_at)
            else:
                self._plan(key, due_at)

    def get(self, timeout_seconds: float) -> K | None:
        """Wait for a key that is due; None when the time is over or the workqueue is shut down."""
        give_up = time.monotonic() + timeout_seconds
        with self._condition:
            while not self._is_shut_down:
                wait = self._seconds_to_next()
                if wait <= 0:
                    return self._pop()
                left = give_up - time.monotonic()
                if left <= 0:
                    return None
                self._condition.wait(min(wait, left))
        return None

    def done(
        self, key: K, *, requeue_at: float | None = None, not_before: float = -math.inf
    ) -> None:
        """Give a key back.

        Args:
            key: What was taken.
            requeue_at: When it is due if nothing is put; None for never.
            not_before: Nothing is due earlier, whatever was put meanwhile.
        """
        with self._condition:
            moment = min(self._in_progress.pop(key), math.inf if requeue_at is None else requeue_at)
            if moment < math.inf:
                self._plan(key, max(moment, not_before))

    def forget(self, key: K) -> None:
        """Forget a key, also what was put while it is taken."""
        with self._condition:
            self._due_at.pop(key, None)
            if key in self._in_progress:
                self._in_progress[key] = math.inf

    def next_at(self) -> float:
        """Return when the next key is due; infinity when none is planned."""
        with self._condition:
            self._drop_stale()
            return self._heap[0][0] if self._heap else math.inf

    def ready_count(self) -> int:
        """Count the keys that are due now; this looks at all of them."""
        now = self._clock()
        with self._condition:
            return sum(moment <= now for moment in self._due_at.values())

    def shut_down(self) -> None:
        """Release all threads that wait in `get`; nothing is returned any more."""
        with self._condition:
            self._is_shut_down = True
            self._condition.notify_all()

    def _plan(self, key: K, due_at: float) -> None:
        known = self._due_at.get(key)
        if known is not None and known <= due_at:
            return
        self._due_at[key] = due_at
        heapq.heappush(self._heap, (due_at, next(self._order), key))
        if self._heap[0][2] == key:
            self._condition.notify()

    def _pop(self) -> K:
        moment, _, key = heapq.heappop(self._heap)
        del self._due_at[key]
        self._in_progress[key] = math.inf
        if self._heap and self._heap[0][0] <= max(moment, self._clock()):
            self._condition.notify()  # there is more; one who waits for later may sleep
        return key

    def _seconds_to_next(self) -> float:
        self._drop_stale()
        return self._heap[0][0] - self._clock() if self._heap else math.inf

    def _drop_stale(self) -> None:
        while self._heap and self._due_at.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
