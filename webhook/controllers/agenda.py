"""What is to be done when: keys with moments, for several threads.

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


class Agenda(Generic[K]):
    """Keys and when each is due. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, K]] = []
        self._moments: dict[K, float] = {}
        self._busy: dict[K, float] = {}
        """Keys that were taken, and for when they were put meanwhile."""
        self._order = itertools.count()
        self._is_closed = False

    def __len__(self) -> int:
        """Return how many keys wait."""
        return len(self._moments)

    def now(self) -> float:
        """Return the time on the clock that moments are of."""
        return self._clock()

    @property
    def is_closed(self) -> bool:
        """Whether nothing is given any more."""
        return self._is_closed

    def put(self, key: K, moment: float) -> None:
        """Plan a key; of several moments the earliest counts."""
        with self._changed:
            if key in self._busy:
                self._busy[key] = min(self._busy[key], moment)
            else:
                self._plan(key, moment)

    def take(self, longest_wait: float) -> K | None:
        """Wait for a key that is due; None when there is none in time, or the agenda is closed."""
        give_up = time.monotonic() + longest_wait
        with self._changed:
            while not self._is_closed:
                wait = self._seconds_to_next()
                if wait <= 0:
                    return self._give()
                left = give_up - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(min(wait, left))
        return None

    def done(self, key: K, *, again: float | None = None, not_before: float = -math.inf) -> None:
        """Give a key back.

        Args:
            key: What was taken.
            again: When it is due if nothing is put; None for never.
            not_before: Nothing is due earlier, whatever was put meanwhile.
        """
        with self._changed:
            moment = min(self._busy.pop(key), math.inf if again is None else again)
            if moment < math.inf:
                self._plan(key, max(moment, not_before))

    def remove(self, key: K) -> None:
        """Forget a key, also what was put while it is taken."""
        with self._changed:
            self._moments.pop(key, None)
            if key in self._busy:
                self._busy[key] = math.inf

    def next_moment(self) -> float:
        """Return when the next key is due; infinity when none is planned."""
        with self._changed:
            self._drop_stale()
            return self._heap[0][0] if self._heap else math.inf

    def due(self) -> int:
        """Count the keys that are due now; this looks at all of them."""
        now = self._clock()
        with self._changed:
            return sum(moment <= now for moment in self._moments.values())

    def close(self) -> None:
        """Wake all who wait; nothing is given any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _plan(self, key: K, moment: float) -> None:
        known = self._moments.get(key)
        if known is not None and known <= moment:
            return
        self._moments[key] = moment
        heapq.heappush(self._heap, (moment, next(self._order), key))
        if self._heap[0][2] == key:
            self._changed.notify()

    def _give(self) -> K:
        moment, _, key = heapq.heappop(self._heap)
        del self._moments[key]
        self._busy[key] = math.inf
        if self._heap and self._heap[0][0] <= max(moment, self._clock()):
            self._changed.notify()  # there is more; one who waits for later may sleep
        return key

    def _seconds_to_next(self) -> float:
        self._drop_stale()
        return self._heap[0][0] - self._clock() if self._heap else math.inf

    def _drop_stale(self) -> None:
        while self._heap and self._moments.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
