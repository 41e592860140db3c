"""Controller: workers that take keys from a work queue and reconcile each of them.

A reconciler brings one object to the state that it should have, from what caches and the API
server show then, and says when to come again. Everything else, threads, pauses, failures, is here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from webhook.controllers.runtime.periodic import PeriodicThread, stop_all
from webhook.controllers.runtime.workqueue import WorkQueue

_log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

_NOT_READY_SECONDS: Final = 0.05
_MAX_WAIT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do until the key is added again."""


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """The key is to be reconciled again, at the latest after some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Postponed:
    """Nothing was tried, as others go first: the key comes again, and its failures still count."""

    seconds: float


@dataclass(frozen=True, slots=True)
class RateLimited:
    """Reconciling failed; it is tried again after a pause that doubles each time."""


Result: TypeAlias = Done | RequeueAfter | Postponed | RateLimited

DONE: Final = Done()
RATE_LIMITED: Final = RateLimited()


class Controller(Generic[K]):
    """Workers of one queue.

    Args:
        name: Name of the threads.
        queue: The keys to reconcile.
        reconcile: Reconciles a key. Called by all workers, never twice at a time for one key.
        workers: Number of threads.
        poll: Called before each key; while it returns False none is taken.
        poll_seconds: How long a worker waits for a key until `poll` is called again.
    """

    def __init__(
        self,
        name: str,
        queue: WorkQueue[K],
        reconcile: Callable[[K], Result],
        *,
        workers: int = 1,
        poll: Callable[[], bool] = lambda: True,
        poll_seconds: float = _MAX_WAIT_SECONDS,
    ) -> None:
        self.queue: Final = queue
        self._name = name
        self._reconcile = reconcile
        self._poll = poll
        self._poll_seconds = poll_seconds
        self._threads = [
            PeriodicThread(f"{name}-{number}", self._work, retry_seconds=_NOT_READY_SECONDS)
            for number in range(workers)
        ]

    def start(self) -> None:
        """Start the workers."""
        for thread in self._threads:
            thread.start()

    def request_stop(self) -> None:
        """Take no further key; reconciliations that have begun go on."""
        for thread in self._threads:
            thread.request_stop()
        self.queue.shut_down()

    def stop(self, timeout_seconds: float) -> None:
        """Stop the workers, and wait for what they are reconciling."""
        self.request_stop()
        stop_all(self._threads, timeout_seconds)

    def step(self) -> bool:
        """Reconcile the next key that is due now; return whether there was one.

        What reconciling raises is raised, after the key was requeued.
        """
        key = self.queue.get()
        if key is not None:
            self.process(key)
        return key is not None

    def drain(self) -> None:
        """Reconcile the keys that are due now, each once."""
        for _ in range(self.queue.ready_count()):
            self.step()

    def _work(self) -> float:
        if not self._poll():
            return _NOT_READY_SECONDS
        key = self.queue.get(self._poll_seconds)
        if key is not None:
            try:
                self.process(key)
            except Exception:  # noqa: BLE001 - outermost frame: logged, and it is tried again
                _log.exception("reconciling failed", extra={"controller": self._name, "key": key})
        return 0.0

    def process(self, key: K) -> None:
        """Reconcile a key that was taken from the queue, and give it back."""
        result: Result = RATE_LIMITED
        try:
            result = self._reconcile(key)
        finally:
            match result:
                case Done():
                    self.queue.forget(key)
                case RequeueAfter(seconds):
                    self.queue.forget(key)
                    self.queue.add_after(key, seconds)
                case Postponed(seconds):
                    self.queue.add_after(key, seconds)
                case RateLimited():
                    self.queue.add_rate_limited(key)
            self.queue.done(key)
