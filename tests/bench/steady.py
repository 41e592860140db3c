"""A load at an even rate, whatever the answers take: what comes late is counted from its time.

Each client has a kept connection of its own, or a new one for each request, and the requests of
all follow each other at even intervals.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

CLIENTS = 16
_POLL_SECONDS = 0.05
_TRIAL_SECONDS = 3.0
_TRIALS = 3
_AT_ONCE = 1e9


@dataclass(frozen=True)
class Answer:
    """One request: when it was due on the monotonic clock, and when the answer came after that."""

    due: float
    seconds: float
    problem: str = ""
    """The answer, or the error, where it is not the one that was wanted."""


@dataclass(frozen=True)
class Span:
    """What was answered between two moments."""

    answers: Sequence[Answer]

    def __add__(self, other: Span) -> Span:
        return Span((*self.answers, *other.answers))

    @property
    def failed(self) -> list[str]:
        return [one.problem for one in self.answers if one.problem]

    def percentile(self, share: float) -> float:
        """Return the seconds in which such a share was answered."""
        ordered = sorted(one.seconds for one in self.answers)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@dataclass
class Steady:
    """A load that lasts as long as the block.

    Args:
        connect: Makes a connection.
        request: Makes method, path and body of a request of that number.
        expected: What every answer has to contain.
        rate: Requests a second, of all clients together.
        keeps: Whether connections are kept.
    """

    connect: Callable[[], http.client.HTTPConnection]
    request: Callable[[int], tuple[str, str, bytes]]
    expected: bytes
    rate: float
    keeps: bool = True
    clients: int = CLIENTS
    answers: list[Answer] = field(default_factory=list)
    _last_due: dict[int, float] = field(default_factory=dict)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        began = time.monotonic()
        self._threads = [
            threading.Thread(target=self._run, args=(began, number), daemon=True)
            for number in range(self.clients)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def span(self, began: float, ended: float) -> Span:
        """Return what was due between two moments, when all of it is answered."""
        while len(self._last_due) < self.clients or min(self._last_due.values()) < ended:
            time.sleep(_POLL_SECONDS)
        return Span([one for one in tuple(self.answers) if began <= one.due < ended])

    def _run(self, began: float, first: int) -> None:
        connection, number = None, first
        while not self._stopping.is_set():
            due = began + number / self.rate
            time.sleep(max(0.0, due - time.monotonic()))
            if connection is None:
                connection = self.connect()
            problem = self._ask(connection, number)
            self.answers.append(Answer(due, time.monotonic() - due, problem))
            self._last_due[first] = due
            if not self.keeps or problem:
                connection.close()
                connection = None
            number += self.clients
        if connection is not None:
            connection.close()

    def _ask(self, connection: http.client.HTTPConnection, number: int) -> str:
        method, path, body = self.request(number)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            received = response.read()
        except (OSError, http.client.HTTPException) as err:
            return repr(err)
        is_wanted = self.expected in b"%d %s" % (response.status, received)
        return "" if is_wanted else f"{response.status} {received.decode(errors='replace')}"


def reachable(
    connect: Callable[[], http.client.HTTPConnection],
    request: Callable[[int], tuple[str, str, bytes]],
    expected: bytes,
    *,
    keeps: bool = True,
) -> float:
    """Return how many requests a second are answered when no client waits for its turn.

    The most of some trials: in the first one, what is called has yet to fill its caches.
    """

    def trial() -> float:
        with Steady(connect, request, expected, rate=_AT_ONCE, keeps=keeps) as load:
            time.sleep(_TRIAL_SECONDS)
            return len(load.answers) / _TRIAL_SECONDS

    return max(trial() for _ in range(_TRIALS))
