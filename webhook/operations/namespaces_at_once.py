"""Do the same in several namespaces at once.

Most of the time of opting in and out goes by with waiting, for caches of the API server and for the
controller. So several namespaces wait side by side; how many is bounded, because each also asks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from webhook.kube.api import ApiError, RequestTimeoutError, UnavailableError
from webhook.operations.retry import CancelToken, HaltedError, Report, RetryPolicy

_T = TypeVar("_T")

AT_ONCE: Final = 8
"""Namespaces that are worked on at the same time."""

NO_ANSWER: Final = (UnavailableError, RequestTimeoutError)
"""Errors after which no other namespace would do better."""

_LOOK_SECONDS: Final = 0.2
_NOT_BEGUN: Final = "not begun"
_INTERRUPTED: Final = "interrupted"


@dataclass(frozen=True, slots=True)
class Ended(Generic[_T]):
    """Outcome of one namespace."""

    name: str
    value: _T | None = None
    """What the work returned; None if it did not come to its end."""
    error: ApiError | None = None
    """What the API server answered instead."""
    why: str = ""
    """Why the work did not come to its end; empty if it did."""


@dataclass(frozen=True, slots=True)
class Together(Generic[_T]):
    """Outcomes of all of them."""

    each: tuple[Ended[_T], ...]
    """In the order in which they were named."""
    no_answer: ApiError | None = None
    """The error by which the API server did not answer at all, if there was one: nothing more was
    begun then."""
    is_interrupted: bool = False
    """The keyboard ended it."""

    def check_ended(self) -> None:
        """Raise what ended it early.

        Raises:
            KeyboardInterrupt: The keyboard did.
            ApiError: The API server did not answer.
        """
        if self.is_interrupted:
            raise KeyboardInterrupt
        if self.no_answer is not None:
            raise self.no_answer


def in_each(
    names: Sequence[str],
    work: Callable[[str, RetryPolicy], _T],
    *,
    patience: RetryPolicy,
    report: Report,
    no_answer: tuple[type[ApiError], ...] = NO_ANSWER,
) -> Together[_T]:
    """Do work in namespaces, in at most `AT_ONCE` at the same time.

    An `ApiError` of one concerns no other, except those of `no_answer`. A keyboard interrupt stops
    what is under way at its next call or pause; a second one is raised at once.

    Args:
        work: Gets the name and the patience to have; called on other threads.
        patience: How long to wait in each of them.
        report: Receives progress.
        no_answer: Errors after which nothing more is begun.

    Raises:
        Exception: What `work` raised that is no `ApiError`, when the others have ended.
    """
    return _Workers(tuple(names), work, patience, report, no_answer).run()


class _Workers(Generic[_T]):
    """Some threads that take one namespace after another."""

    def __init__(
        self,
        names: Sequence[str],
        work: Callable[[str, RetryPolicy], _T],
        patience: RetryPolicy,
        report: Report,
        no_answer: tuple[type[ApiError], ...],
    ) -> None:
        self._names = tuple(names)
        self._work = work
        self._halt = CancelToken()
        self._patience = replace(patience, halt=self._halt)
        self._report = report
        self._no_answer = no_answer
        self._lock = threading.Lock()
        self._waiting = iter(self._names)
        self._ended: dict[str, Ended[_T]] = {}
        self._faults: list[Exception] = []
        self._takes_more = True
        # daemons: what is under way keeps no process that the keyboard ends a second time
        self._threads = [
            threading.Thread(target=self._take, name=f"together-{index}", daemon=True)
            for index in range(min(AT_ONCE, len(self._names)))
        ]
        self._ends = threading.Semaphore(0)

    def run(self) -> Together[_T]:
        is_interrupted = False
        try:
            self._begin()
            self._wait()
        except KeyboardInterrupt:
            is_interrupted = True
            self._halt.ask()
            self._report("interrupted: stopping what is under way; once more leaves at once")
            self._wait()
        if self._faults:
            raise self._faults[0]
        each = tuple(self._ended.get(name, Ended(name, why=_NOT_BEGUN)) for name in self._names)
        errors = [one.error for one in each if isinstance(one.error, self._no_answer)]
        return Together(each, errors[0] if errors else None, is_interrupted)

    def _begin(self) -> None:
        for thread in self._threads:
            thread.start()

    def _wait(self) -> None:
        """Wait until no call is under way, however many the keyboard has let begin."""
        while any(thread.is_alive() for thread in self._threads):
            # by turns: a wait does not see a signal that came just before it began
            self._ends.acquire(timeout=_LOOK_SECONDS)

    def _take(self) -> None:
        """Work on one namespace after another: the outermost frame of a thread."""
        try:
            while (name := self._next()) is not None:
                self._note(self._one(name))
        except Exception as err:  # noqa: BLE001 - raised where the work was asked for
            self._faults.append(err)
            self._takes_more = False
        finally:
            self._ends.release()

    def _next(self) -> str | None:
        with self._lock:
            is_over = self._halt.is_wanted or not self._takes_more
            return None if is_over else next(self._waiting, None)

    def _one(self, name: str) -> Ended[_T]:
        try:
            return Ended(name, self._work(name, self._patience))
        except HaltedError:
            return Ended(name, why=_INTERRUPTED)
        except ApiError as err:
            if isinstance(err, self._no_answer):
                self._takes_more = False
            return Ended(name, error=err, why=err.message)

    def _note(self, ended: Ended[_T]) -> None:
        with self._lock:
            self._ended[ended.name] = ended
            done = len(self._ended)
        if len(self._names) > 1:
            self._report(f"{ended.name}: {ended.why or 'done'} ({done} of {len(self._names)})")
