"""Waits of operations, and repetitions of what failed for now."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from webhook.kube.api import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    InternalError,
    RequestTimeoutError,
    TooManyRequestsError,
    UnavailableError,
)

_T = TypeVar("_T")

Report: TypeAlias = Callable[[str], None]
"""Receives progress, in words for a person; may be called from several threads."""

PASSING: Final = (UnavailableError, RequestTimeoutError, TooManyRequestsError, InternalError)
"""Errors that can go away by themselves. A webhook that does not answer is an internal error."""


CONFLICTS: Final = (ConflictError, AlreadyExistsError)
"""Errors of a write that another client was quicker with. One that would be the same whatever
stands there can be repeated."""


def silent(_: str) -> None:
    """Drop a report."""


class HaltedError(Exception):
    """Work is to stop. What it has done stays done."""


class CancelToken:
    """Lets one thread stop what others do at their next call or pause."""

    def __init__(self) -> None:
        self._wanted = threading.Event()

    def ask(self) -> None:
        """Stop the work."""
        self._wanted.set()

    def check(self) -> None:
        """Go on, or not.

        Raises:
            HaltedError: Work is to stop.
        """
        if self._wanted.is_set():
            raise HaltedError

    def sleep(self, seconds: float) -> None:
        """Wait, at most until work is to stop.

        Raises:
            HaltedError: Work is to stop.
        """
        self._wanted.wait(seconds)
        self.check()


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Policy of waiting and repeating."""

    seconds: float = 120.0
    """For the whole of it."""
    pause_seconds: float = 0.5
    """Between two looks."""
    settle_seconds: float = 2.0
    """Between two looks that have to agree before something counts as finished: caches inside the
    API server (namespace labels, quota statuses) are behind for less."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    halt: CancelToken | None = None
    """By which work is stopped before its time, if it can be: it then waits by this."""
    report: Report = silent
    """Receives the first failure of each call that is repeated as the cluster does not answer."""

    def rest(self, seconds: float) -> None:
        """Wait.

        Raises:
            HaltedError: Work is to stop.
        """
        if self.halt is None:
            self.sleep(seconds)
        else:
            self.halt.sleep(seconds)

    def begin(self) -> RetryTimer:
        """Start to wait."""
        return RetryTimer(self, self.clock() + self.seconds)


@dataclass(frozen=True, slots=True)
class RetryTimer:
    """A wait that has begun; `until` is when it ends."""

    patience: RetryPolicy
    until: float

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.patience.clock() >= self.until

    def pause(self, seconds: float | None = None) -> bool:
        """Wait a little; return whether there is time left."""
        wanted = self.patience.pause_seconds if seconds is None else seconds
        left = self.until - self.patience.clock()
        if left > 0:
            self.patience.rest(min(wanted, left))
        return not self.is_over

    def wait_for_caches(self) -> None:
        """Wait as long as caches may be behind, even when the time is up."""
        self.patience.rest(self.patience.settle_seconds)

    def retry(self, call: Callable[[], _T], *, passing: tuple[type[ApiError], ...] = PASSING) -> _T:
        """Call until it succeeds, fails with an error that does not pass, or the time is up.

        Raises:
            ApiError: The last failure.
            HaltedError: Work is to stop.
        """
        is_first = True
        while True:
            if self.patience.halt is not None:
                self.patience.halt.check()
            try:
                return call()
            except passing as err:
                left = self.until - self.patience.clock()
                if is_first and left > 0 and isinstance(err, UnavailableError):
                    self.patience.report(f"retrying for up to {left:.0f} s: {err}")
                is_first = False
                if not self.pause(_seconds_after(err)):
                    raise


def _seconds_after(err: ApiError) -> float | None:
    return None if err.retry_after is None else float(err.retry_after)
