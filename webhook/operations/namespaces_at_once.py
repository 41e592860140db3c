"""One operation in several namespaces at once.

Opting in and out mostly waits, for caches of the API server and for the controller. So several
namespaces wait at the same time; their number is bounded, because each sends requests as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from webhook.kube.api import ApiError, RequestTimeoutError, UnavailableError
from webhook.operations.parallel_calls import CallThreads
from webhook.operations.retry import CancelToken, HaltedError, Report, RetryPolicy

_T = TypeVar("_T")

AT_ONCE: Final = 8
"""Namespaces that are worked on at the same time."""

NO_ANSWER: Final = (UnavailableError, RequestTimeoutError)
"""Errors after which no other namespace would do better."""

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
    halt = CancelToken()
    halted = replace(patience, halt=halt)
    ended: dict[str, Ended[_T]] = {}
    lock = threading.Lock()

    def one(name: str) -> None:
        found = _ended(name, work, halted)
        if isinstance(found.error, no_answer):
            calls.stop()
        with lock:
            ended[name] = found
            done = len(ended)
        if len(names) > 1:
            report(f"{name}: {found.why or 'done'} ({done} of {len(names)})")

    calls = CallThreads(one, names, workers=AT_ONCE, name="together")
    is_interrupted = False
    try:
        calls.begin()
        calls.wait()
    except KeyboardInterrupt:
        is_interrupted = True
        calls.stop()
        halt.ask()
        report("interrupted: stopping what is under way; once more leaves at once")
        calls.wait()
    calls.results()
    each = tuple(ended.get(name, Ended(name, why=_NOT_BEGUN)) for name in names)
    errors = [some.error for some in each if isinstance(some.error, no_answer)]
    return Together(each, errors[0] if errors else None, is_interrupted)


def _ended(name: str, work: Callable[[str, RetryPolicy], _T], patience: RetryPolicy) -> Ended[_T]:
    try:
        return Ended(name, work(name, patience))
    except HaltedError:
        return Ended(name, why=_INTERRUPTED)
    except ApiError as err:
        return Ended(name, error=err, why=err.message)
