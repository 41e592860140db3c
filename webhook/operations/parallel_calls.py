"""Several calls at the same time, which an interrupt by the keyboard ends at once.

Not by `concurrent.futures`: the interpreter waits for its threads when it ends, even for a call
that gets no answer.
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
    calls = CallThreads(call, items, workers=workers, name=name)
    try:
        calls.begin()
        calls.wait()
    finally:
        calls.stop()
    return calls.results()


class CallThreads(Generic[_Item, _Result]):
    """Threads that make one call after another, and the results; see `in_parallel`."""

    def __init__(
        self, call: Callable[[_Item], _Result], items: Sequence[_Item], *, workers: int, name: str
    ) -> None:
        self._call = call
        self._waiting = iter(enumerate(items))
        self._lock = threading.Lock()
        self._results: dict[int, _Result] = {}
        self._faults: dict[int, Exception] = {}
        self._is_over = False
        self._threads = [
            # daemons: a process that ends does not wait for them
            threading.Thread(target=self._work, name=f"{name}-{index}", daemon=True)
            for index in range(min(workers, len(items)))
        ]
        self._idle: set[threading.Thread] = set()
        self._ends = threading.Semaphore(0)

    def begin(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        """Wait until no call is under way, however many the keyboard has let begin."""
        while any(each.is_alive() and each not in self._idle for each in self._threads):
            # by turns: a wait does not see a signal that came just before it began
            self._ends.acquire(timeout=_LOOK_SECONDS)

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

    def _work(self) -> None:
        """Make one call after another: the outermost frame of a thread."""
        try:
            while (taken := self._take()) is not None:
                self._do(*taken)
        finally:
            self._idle.add(threading.current_thread())
            self._ends.release()

    def _take(self) -> tuple[int, _Item] | None:
        with self._lock:
            return None if self._is_over else next(self._waiting, None)

    def _do(self, index: int, item: _Item) -> None:
        try:
            self._results[index] = self._call(item)
        except Exception as err:  # noqa: BLE001 - raised where the work was asked for
            self._faults[index] = err
            self.stop()
