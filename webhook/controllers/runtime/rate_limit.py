"""Token bucket: limits how much is done per second."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

_BURST_SECONDS: Final = 1.0


class TokenBucket:
    """Lets so many things be done per second, and as many of a second at once after a rest.

    More than is there may be spent; it is then missing later. Not safe to use from several
    threads.

    Args:
        per_second: How many; asked whenever it matters. None at all where it is 0.
        clock: The monotonic clock.
    """

    def __init__(self, per_second: Callable[[], float], clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._refilled_at = clock()
        self._tokens = self._burst

    def delay(self) -> float:
        """Return how long until something may be done; 0 for now, infinity for never."""
        self._refill()
        if self._tokens >= 1:
            return 0.0
        rate = self._per_second()
        return (1 - self._tokens) / rate if rate > 0 else math.inf

    def take(self) -> None:
        """Note that one thing is done."""
        self._refill()
        self._tokens -= 1

    def _refill(self) -> None:
        now = self._clock()
        gained = max(0.0, now - self._refilled_at) * self._per_second()
        self._refilled_at = now
        self._tokens = min(self._burst, self._tokens + gained)

    @property
    def _burst(self) -> float:
        rate = self._per_second()
        return max(1.0, rate * _BURST_SECONDS) if rate > 0 else 0.0
