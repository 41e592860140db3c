"""Thread that repeats one step of a controller."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

_log = logging.getLogger(__name__)


class PeriodicThread:
    """One round of work after the other, from `start` to `stop`.

    Args:
        name: The thread's.
        work: Does one round; returns how many seconds to rest before the next.
        retry_seconds: How long to rest after a round that has failed. That is logged.
        pauses_first: Whether to rest before the first round as well.
        on_stop: Done once on the thread, when the rounds are over.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], float],
        *,
        retry_seconds: float,
        pauses_first: bool = False,
        on_stop: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._work = work
        self._retry_seconds = retry_seconds
        self._first_pause = retry_seconds if pauses_first else 0.0
        self._on_stop = on_stop
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_stopping(self) -> bool:
        """Whether no round begins any more."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """End the rest before the next round, or leave out the one that is to come."""
        self._woken.set()

    def request_stop(self) -> None:
        """Begin no further round; one that has begun goes on."""
        self._stopping.set()
        self.wake()

    def stop(self, timeout_seconds: float) -> None:
        """End, and wait for the round that has begun; one that stops itself waits for nothing."""
        self.request_stop()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        pause = self._first_pause
        while not self._rest(pause):
            pause = self._try(self._work)
        self._try(self._on_stop)

    def _rest(self, seconds: float) -> bool:
        """Rest until it is time or there is news; return whether it is to end."""
        if not self._stopping.is_set():
            self._woken.wait(seconds)
            self._woken.clear()
        return self._stopping.is_set()

    def _try(self, work: Callable[[], float]) -> float:
        try:
            return work()
        except Exception:  # noqa: BLE001 - outermost frame: logged, and the next round comes
            _log.exception("a round failed", extra={"rounds": self._thread.name})
            return self._retry_seconds


class Stoppable(Protocol):
    """One or several threads."""

    def request_stop(self) -> None:
        """Begin no further round."""

    def stop(self, timeout_seconds: float) -> None:
        """Wait for what was begun."""


def stop_all(threads: Iterable[Stoppable], timeout_seconds: float) -> None:
    """Stop threads, all of them within one time limit."""
    threads = list(threads)
    for thread in threads:
        thread.request_stop()
    give_up = time.monotonic() + timeout_seconds
    for thread in threads:
        thread.stop(max(0.0, give_up - time.monotonic()))
