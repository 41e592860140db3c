"""Threads that do something over and over while a test looks at something else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Self


class OverAndOver:
    """Does each task again and again, on a thread of its own, until the block is left.

    Attributes:
        problems: What should not have happened; a task that raises something ends there.
    """

    def __init__(self, tasks: Iterable[Callable[[], object]]) -> None:
        self.problems: list[str] = []
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(task,)) for task in tasks]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    @property
    def is_over(self) -> bool:
        """Whether the block is left, and nothing is begun any more."""
        return self._stopping.is_set()

    def rest(self, seconds: float) -> None:
        """Pause a task, at most until the block is left."""
        self._stopping.wait(seconds)

    def _run(self, task: Callable[[], object]) -> None:
        try:
            while not self.is_over:
                task()
        except Exception as err:
            self.problems.append(repr(err))
            raise
