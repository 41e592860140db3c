"""Work that a controller does over and over, on a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Rounds:
    """One round of work after the other, from `start` to `stop`.

    Args:
        name: The thread's.
        work: Does one round; returns how many seconds to rest before the next.
        rest_seconds: How long to rest after a round that has failed. That is logged.
        rests_first: Whether to rest before the first round as well.
        last: Done once on the thread, when the rounds are over.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], float],
        *,
        rest_seconds: float,
        rests_first: bool = False,
        last: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._work = work
        self._rest_seconds = rest_seconds
        self._first_rest = rest_seconds if rests_first else 0.0
        self._last = last
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def are_over(self) -> bool:
        """Whether no round begins any more."""
        return self._is_over.is_set()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Begin no round any more; one that has begun goes on."""
        self._is_over.set()

    def stop(self, longest_wait: float) -> None:
        """End, and wait for the round that has begun; one that stops itself waits for nothing."""
        self.end()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(longest_wait)

    def _run(self) -> None:
        rest = self._first_rest
        while not self._is_over.wait(rest):
            rest = self._try(self._work)
        self._try(self._last)

    def _try(self, work: Callable[[], float]) -> float:
        try:
            return work()
        except Exception:  # noqa: BLE001 - outermost frame: logged, and the next round comes
            _log.exception("a round failed", extra={"rounds": self._thread.name})
            return self._rest_seconds
