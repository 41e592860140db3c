"""All binders together."""

from __future__ import annotations

import random
import ssl
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.torture.load.binder import Binder
from tests.torture.load.books import Books
from tests.torture.load.shapes import Space
from tests.torture.load.tally import Tally
from tests.torture.load.wire import Wire

_AHEAD_SECONDS: Final = 0.05


class Load:
    """All binders, until `stop`.

    Args:
        url: The API server.
        context: How to speak to it, as one who may do everything.
        spaces: The namespaces.
        nodes: Names of nodes.
        binders: How many threads.
        seed: Of all chance.
        binds_per_second: How many binds all together try at most; 0 for as many as can be.
        unpaced_seconds: For how long from the start as many as can be are tried whatever the rate.
        templates: How many kinds of pods there are; 0 for as many as there are pods.
    """

    def __init__(
        self,
        url: str,
        context: ssl.SSLContext,
        spaces: Sequence[Space],
        nodes: Sequence[str],
        *,
        binders: int,
        seed: int,
        binds_per_second: float = 0.0,
        unpaced_seconds: float = 0.0,
        templates: int = 0,
    ) -> None:
        self.tally = Tally()
        self._pace = Pace(binds_per_second, unpaced_seconds)
        self._began = 0.0
        self.books = [Books(space) for space in spaces]
        self.errors: list[str] = []
        self._stopping = threading.Event()
        shares = [books for books in self.books for _ in range(_share(books.space))]
        self._threads = [
            threading.Thread(
                target=self._run,
                args=(
                    Binder(
                        Wire(url, context),
                        shares[number % len(shares)],
                        nodes,
                        self.tally,
                        random.Random(f"{seed}/{number}"),  # noqa: S311 - repeatable, not secret
                        templates=templates,
                    ),
                ),
                daemon=True,
            )
            for number in range(binders)
        ]

    def start(self) -> None:
        """Let all begin."""
        self._began = time.monotonic()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let all end what they are at."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
            if thread.is_alive():
                self.errors.append("a binder hangs")

    def _run(self, binder: Binder) -> None:
        while not self._stopping.is_set():
            if self._pace.is_ahead(self.tally.tried, time.monotonic() - self._began):
                self._stopping.wait(_AHEAD_SECONDS)
                continue
            try:
                binder.step()
            except Exception as err:  # noqa: BLE001 - outermost frame of a thread: the run tells
                self.errors.append(repr(err))
                time.sleep(1)


@dataclass
class Pace:
    """How quickly binds are tried. Threads share it: what they note meanwhile differs by little.

    Args:
        rate: Binds a second, 0 for as many as can be.
        unpaced_seconds: How long from the start the rate does not count.
    """

    rate: float
    unpaced_seconds: float = 0.0
    _tried_unpaced: int = 0

    def is_ahead(self, tried: int, seconds: float) -> bool:
        """Return whether more was tried, so many seconds after the start, than the rate allows."""
        paced_seconds = seconds - self.unpaced_seconds
        if paced_seconds < 0:
            self._tried_unpaced = tried
            return False
        return self.rate > 0 and tried - self._tried_unpaced >= self.rate * paced_seconds


def _share(space: Space) -> int:
    return 1 if space.is_scheduled else 3
