"""Timings and changes of an informer."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeAlias, TypeVar

T = TypeVar("T")

STALE_SECONDS: Final = 90.0
"""An API server sends a bookmark on every watch about once a minute, if nothing happens.

Source: kubernetes v1.36, apiserver/pkg/storage/cacher/cacher.go defaultBookmarkFrequency.
"""


@dataclass(frozen=True, slots=True)
class InformerTimings:
    """The clock, the randomness and the pauses of an informer; all times are seconds."""

    clock: Callable[[], float] = time.monotonic
    """A monotonic clock."""
    rand: Callable[[], float] = random.random
    """Uniform numbers in [0, 1)."""
    sleep: Callable[[float], None] | None = None
    """Waits between attempts; None waits in real time and ends early on `stop`."""
    first_pause: float = 0.5
    """Before attempt n the pause is a random part of `first_pause * 2**n`."""
    longest_pause: float = 30.0
    """Of these pauses."""
    healthy_after: float = 60.0
    """A connection that lived this long makes the next pause short again."""
    shortest_watch: float = 240.0
    """Each watch is asked to last at least so long."""
    longest_watch: float = 480.0
    """At most so long."""

    def pause(self, attempt: int) -> float:
        """Return how long to wait before an attempt: 0 for the first one after a failure."""
        return self.rand() * min(self.longest_pause, math.ldexp(self.first_pause, min(attempt, 16)))

    def watch_seconds(self) -> float:
        """Return how long the next watch shall last."""
        return self.shortest_watch + self.rand() * (self.longest_watch - self.shortest_watch)


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One change of the copy, as handlers see it."""

    type: Literal["ADDED", "UPDATED", "DELETED"]
    """What happened to the object."""
    key: str
    """"namespace/name", or the name."""
    uid: str
    """Of the new object, on DELETED of the old one."""
    resource_version: int
    """The version at which it happened; for what a list no longer shows, the version of the
    list."""
    old: T | None = None
    """The value before; None if there was none, or it could not be read."""
    new: T | None = None
    """The value now; None on DELETED, or if it cannot be read."""
    error: Exception | None = None
    """Why it cannot be read."""


Handler: TypeAlias = Callable[[Change[T]], None]
