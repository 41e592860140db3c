"""How many requests may wait: those that can still be answered in time, and no more.

A request that would be answered after its deadline takes a thread's time from one that would not.
It is turned away at once instead, so that the API server can say so early.
"""

from __future__ import annotations

import threading
from typing import Final

SMOOTHING: Final = 0.1
"""Weight of the newest request in the average time of service, once there were enough."""


class ConcurrencyGate:
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
        """Give how many requests are being answered or wait for a thread."""
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
