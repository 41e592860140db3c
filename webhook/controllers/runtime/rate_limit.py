"""Rate limits: pauses after failures, after work and between lists, and a token bucket."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from webhook.kube.api import UnavailableError

_BURST_SECONDS: Final = 1.0
_MAX_DOUBLINGS: Final = 16
_REST_FACTOR: Final = 9.0
"""A rest in proportion to what the work took: others wait for it."""
MAX_REST_SECONDS: Final = 5.0
_LIST_SECONDS: Final = 5.0
"""Least pause between two lists, where no work waits for the next one."""


def rest_seconds(took: float) -> float:
    """Return how long a key rests after work that others had to wait for.

    However often it is wanted, most of the time is for the others; and what waits for the key
    itself does not wait for long.
    """
    return min(_REST_FACTOR * took, MAX_REST_SECONDS)


@dataclass(frozen=True, slots=True)
class ExponentialBackoff:
    """Pauses that double with each failure in a row."""

    first_seconds: float
    max_seconds: float
    jitter: float = 0.0
    """By what share a pause may be shorter, so that keys that failed together are tried apart."""

    def seconds(self, failures: int) -> float:
        """Return the pause after a number of failures in a row; 0 without any."""
        if failures <= 0:
            return 0.0
        grown = math.ldexp(self.first_seconds, min(failures - 1, _MAX_DOUBLINGS))
        pause = min(self.max_seconds, grown)
        if self.jitter and failures > 1:
            pause *= random.uniform(1 - self.jitter, 1)  # noqa: S311 - jitter
        return pause


_SLOW_BACKOFF: Final = ExponentialBackoff(20.0, 600.0)


@dataclass(slots=True)
class _SlowNamespace:
    timeouts: int = 0
    """How many, each not long after the pause that the one before brought; those within that
    pause, of requests that were sent together, are one with it."""
    retry_at: float = 0.0

    def is_over(self, now: float) -> bool:
        """Return whether nothing of it matters any more."""
        return now > self.retry_at + _SLOW_BACKOFF.max_seconds


class SlowNamespaces:
    """Namespaces with requests about pods that were not answered in time. The caller locks.

    A timeout takes seconds of the threads that all namespaces share, and what makes a pod slow to
    write (ten thousand gates, or tolerations) is its creator's to choose. So is how soon the pod is
    gone: what is remembered outlasts it.
    """

    def __init__(self) -> None:
        self._known: dict[str, _SlowNamespace] = {}

    def __iter__(self) -> Iterator[str]:
        """Yield the namespaces that are remembered."""
        return iter(self._known)

    def note_timeout(self, namespace: str, now: float) -> None:
        """Let the pods of a namespace rest from now on, which is after the timeout."""
        self._known = {name: one for name, one in self._known.items() if not one.is_over(now)}
        one = self._known.setdefault(namespace, _SlowNamespace())
        one.timeouts += now >= one.retry_at
        one.retry_at = now + _SLOW_BACKOFF.seconds(one.timeouts)

    def retry_at(self, namespace: str) -> float:
        """Return until when the pods of a namespace rest, or have to do with less; 0 without."""
        one = self._known.get(namespace)
        return 0.0 if one is None else one.retry_at

    def rests(self, namespace: str, now: float) -> bool:
        """Return whether the pods of a namespace rest, or have to do with less, at a time."""
        return now < self.retry_at(namespace)

    def clear(self) -> None:
        """Forget all."""
        self._known.clear()


class TokenBucket:
    """Limit of how much is done per second. Not safe to use from several threads.

    More than is there may be taken; it is then missing later.

    Args:
        per_second: The rate, read whenever it matters; with 0 nothing is allowed.
        burst: How much may be done at once after a rest; None for as much as in a second.
    """

    def __init__(
        self,
        per_second: Callable[[], float],
        clock: Callable[[], float],
        *,
        burst: float | None = None,
    ) -> None:
        self._per_second = per_second
        self._clock = clock
        self._fixed_burst = burst
        self._refilled_at = clock()
        self._tokens = self._burst

    def delay(self) -> float:
        """Return the seconds until something may be done; 0 for now, infinity for never."""
        self._refill()
        if self._tokens >= 1:
            return 0.0
        rate = self._per_second()
        return (1 - self._tokens) / rate if rate > 0 else math.inf

    def take(self) -> None:
        """Record that one thing is done."""
        self._refill()
        self._tokens -= 1

    def _refill(self) -> None:
        now = self._clock()
        gained = max(0.0, now - self._refilled_at) * self._per_second()
        self._refilled_at = now
        self._tokens = min(self._burst, self._tokens + gained)

    @property
    def _burst(self) -> float:
        if self._fixed_burst is not None:
            return self._fixed_burst
        rate = self._per_second()
        return max(1.0, rate * _BURST_SECONDS) if rate > 0 else 0.0


class ListPauses:
    """Pauses after lists, and after counts for which others waited; each has a key.

    One that is over is forgotten. Safe to use from several threads.

    Args:
        factor: How many times as long as the list a pause lasts.
        at_least_seconds: How long each lasts, however short the list was.
        at_most_seconds: How long each lasts at most.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        factor: float = _REST_FACTOR,
        at_least_seconds: float = _LIST_SECONDS,
        at_most_seconds: float = math.inf,
    ) -> None:
        self._clock = clock
        self._factor = factor
        self._at_least = at_least_seconds
        self._at_most = at_most_seconds
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}

    def seconds_left(self, key: str = "") -> float:
        """Return how long the next list has to wait; 0 where it may be made."""
        return max(0.0, self._until.get(key, 0.0) - self._clock())

    @contextmanager
    def measured(self, key: str = "") -> Iterator[None]:
        """Make a list, and begin the pause after it, also when it fails.

        The time until it was found that the API server is away is no reason for a longer one.
        """
        began, is_answered = self._clock(), True
        try:
            yield
        except UnavailableError:
            is_answered = False
            raise
        finally:
            ended = self._clock()
            took = ended - began if is_answered else 0.0
            pause = max(self._at_least, min(self._factor * took, self._at_most))
            with self._lock:
                self._until = {one: at for one, at in self._until.items() if at > ended}
                self._until[key] = ended + pause

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._until = {}
