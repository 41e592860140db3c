"""Make several calls at the same time, and end at once with the keyboard.

The threads of `concurrent.futures` are waited for when the interpreter ends, and so is a call
without answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_LOOK_SECONDS: Final = 0.2


def in_parallel(
    call: Callable[[_Item], _Result], items: Sequence[_Item], *, workers: int, name: str
) -> list[_Result]:
    """Call `call` for every item, for so many at the same time; return the results in order.

    After an exception, or a keyboard interrupt while this waits, no further call begins. The
    interrupt waits for no call: what is under way then may still come to its end.

    Args:
        call: Called on other threads.
        items: What for.
        workers: For how many at the same time.
        name: How the threads are called.

    Raises:
        Exception: The first in the order of the items, when the calls that had begun have ended.
    """
    running = _Workers(call, items)
    threads = [
        # daemons: a process that ends does not wait for them
        threading.Thread(target=running.work, name=f"{name}-{index}", daemon=True)
        for index in range(min(workers, len(items)))
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in threads:
            running.wait_for_one()
    finally:
        running.stop()
    return running.results()


class _Workers(Generic[_Item, _Result]):
    """Calls of several threads, and their results."""

    def __init__(self, call: Callable[[_Item], _Result], items: Sequence[_Item]) -> None:
        self._call = call
        self._waiting = iter(enumerate(items))
        self._lock = threading.Lock()
        self._results: dict[int, _Result] = {}
        self._faults: dict[int, Exception] = {}
        self._is_over = False
        self._ends = threading.Semaphore(0)

    def work(self) -> None:
        """Make one call after another: the outermost frame of a thread."""
        try:
            while (taken := self._take()) is not None:
                self._do(*taken)
        finally:
            self._ends.release()

    def wait_for_one(self) -> None:
        """Wait until one more thread has nothing left to do."""
        while not self._ends.acquire(timeout=_LOOK_SECONDS):
            pass  # by turns: a wait does not see a signal that came just before it began

    def stop(self) -> None:
        """Let no further call begin."""
        self._is_over = True

    def results(self) -> list[_Result]:
        """Return what the calls returned, in the order of the items.

        Raises:
            Exception: What the first of them raised.
        """
        if self._faults:
            raise self._faults[min(self._faults)]
        return [self._results[index] for index in sorted(self._results)]

    def _take(self) -> tuple[int, _Item] | None:
        with self._lock:
            return None if self._is_over else next(self._waiting, None)

    def _do(self, index: int, item: _Item) -> None:
        try:
            self._results[index] = self._call(item)
        except Exception as err:  # noqa: BLE001 - raised where the work was asked for
            self._faults[index] = err
            self.stop()
