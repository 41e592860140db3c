"""Rate-limited work queue: keys with due times, for several workers.

As client-go's `util/workqueue`, in one class:

1. A key is processed by one worker at a time. Added meanwhile, it is processed again afterwards.
2. Of several times that a key was added for, the earliest counts; keys are taken in the order of
   these times, so that none waits behind one that is added again and again.
3. Each failure of a key in a row doubles its pause (`add_rate_limited`, `forget`).
4. A key rests as long as `rest` says, whatever is added for it.

Adding and taking cost the logarithm of the number of keys.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from webhook.controllers.runtime.rate_limit import ExponentialBackoff

K = TypeVar("K", bound=Hashable)

DEFAULT_BACKOFF: Final = ExponentialBackoff(1.0, 30.0, jitter=0.3)


class WorkQueue(Generic[K]):
    """Keys that are to be processed. Safe to use from several threads.

    Args:
        backoff: Pauses of a key that fails.
        rests_after_failure: Whether a key that failed rests for that pause, also where it is added
            meanwhile.
    """

    def __init__(
        self,
        backoff: ExponentialBackoff = DEFAULT_BACKOFF,
        *,
        rests_after_failure: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backoff = backoff
        self._rests_after_failure = rests_after_failure
        self._clock = clock
        self._condition = threading.Condition()
        self._heap: list[tuple[float, int, K]] = []
        self._due_at: dict[K, float] = {}
        self._processing: dict[K, float] = {}
        """Keys that workers have, and when each is due again by what was added meanwhile."""
        self._rests_until: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._order = itertools.count()
        self._is_shut_down = False

    def __len__(self) -> int:
        """Return how many keys wait to be processed, now or later."""
        return len(self._due_at)

    def add(self, key: K) -> None:
        """Add a key that is due at once."""
        self.add_after(key, 0.0)

    def add_after(self, key: K, seconds: float) -> None:
        """Add a key that is due after some seconds."""
        with self._condition:
            due_at = self._clock() + seconds
            if key in self._processing:
                self._processing[key] = min(self._processing[key], due_at)
            else:
                self._schedule(key, due_at)

    def add_rate_limited(self, key: K) -> None:
        """Add a key that failed, after a pause that doubles with each failure in a row."""
        with self._condition:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause = self._backoff.seconds(failures)
        if self._rests_after_failure:
            self.rest(key, pause)
        self.add_after(key, pause)

    def failures(self, key: K) -> int:
        """Return how often in a row a key failed."""
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """Forget the failures of a key."""
        self._failures.pop(key, None)

    def rest(self, key: K, seconds: float) -> None:
        """Let a key rest from now on; 0 ends a rest. What is due already stays due."""
        with self._condition:
            if seconds > 0:
                self._rests_until[key] = self._clock() + seconds
            else:
                self._rests_until.pop(key, None)

    def get(self, timeout_seconds: float = 0.0) -> K | None:
        """Return the next key that is due; None when the time is over or the queue shut down.

        The key has to be given back by `done`.
        """
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

    def done(self, key: K) -> None:
        """Mark a key as processed; it is due again if it was added meanwhile."""
        with self._condition:
            due_at = self._processing.pop(key)
            if due_at < math.inf:
                self._schedule(key, due_at)

    def remove(self, key: K) -> None:
        """Remove a key with all that is known of it, also what was added while it is processed."""
        with self._condition:
            for times in (self._due_at, self._rests_until, self._failures):
                times.pop(key, None)
            if key in self._processing:
                self._processing[key] = math.inf

    def clear(self) -> None:
        """Remove all keys that no worker has, as `remove` does."""
        with self._condition:
            for times in (self._due_at, self._rests_until, self._failures):
                times.clear()
            self._heap.clear()

    def seconds_to_next(self) -> float:
        """Return the seconds until the next key is due; infinity without any."""
        with self._condition:
            return max(0.0, self._seconds_to_next())

    def ready_count(self) -> int:
        """Count the keys that are due now; this looks at all of them."""
        now = self._clock()
        with self._condition:
            return sum(due_at <= now for due_at in self._due_at.values())

    def processing_count(self) -> int:
        """Count the keys that workers have."""
        return len(self._processing)

    def shut_down(self) -> None:
        """End all waits in `get`; no key is returned any more."""
        with self._condition:
            self._is_shut_down = True
            self._condition.notify_all()

    def _schedule(self, key: K, due_at: float) -> None:
        due_at = max(due_at, self._rests_until.get(key, due_at))
        known = self._due_at.get(key)
        if known is not None and known <= due_at:
            return
        self._due_at[key] = due_at
        heapq.heappush(self._heap, (due_at, next(self._order), key))
        if self._heap[0][2] == key:
            self._condition.notify()

    def _pop(self) -> K:
        due_at, _, key = heapq.heappop(self._heap)
        del self._due_at[key]
        self._rests_until.pop(key, None)
        self._processing[key] = math.inf
        # one `notify` per added key may have reached a worker that is busy by now: pass it on
        if self._heap and self._heap[0][0] <= max(due_at, self._clock()):
            self._condition.notify()
        return key

    def _seconds_to_next(self) -> float:
        # an entry whose time is not the key's any more was replaced by an earlier one, or removed
        while self._heap and self._due_at.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] - self._clock() if self._heap else math.inf
