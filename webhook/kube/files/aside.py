"""Work that another process does, while this one goes on."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

_T = TypeVar("_T")

LARGE_BYTES: Final = 1 << 20
"""From which a file is worth a second process."""


@contextmanager
def done_aside(work: Callable[[], _T], *, is_large: bool) -> Iterator[Callable[[], _T]]:
    """Give a function that returns what `work` returns, which a forked process does meanwhile.

    Where there is no second processor, or that process ends without a result, `work` is done here.
    It must change nothing that counts here, and this process have one thread. The other process
    is gone when the block is left.

    Args:
        work: Returns what can be pickled.
        is_large: Whether it is worth a process.
    """
    if not is_large or not can_fork():
        yield work
        return
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _do(writer, work)
    os.close(writer)
    try:
        yield lambda: _received(reader, work)
    finally:
        os.close(reader)
        _end(child)


def can_fork() -> bool:
    """Return whether a forked process can work beside this one."""
    return sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1


def _do(writer: int, work: Callable[[], object]) -> None:
    """Send the result and end this process, whatever happens."""
    try:
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(work(), pipe)
    finally:
        os._exit(0)


def _received(reader: int, work: Callable[[], _T]) -> _T:
    with os.fdopen(os.dup(reader), "rb") as pipe:
        sent = pipe.read()
    try:
        result: _T = pickle.loads(sent)  # noqa: S301 - what this program wrote
    except (EOFError, pickle.UnpicklingError):
        return work()
    return result


def _end(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
