"""A question that another process answers, while this one goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LARGE_BYTES: Final = 1 << 20
"""From which a file is worth a second process."""

_YES: Final = b"y"
_NO: Final = b"n"


@contextmanager
def answered_aside(ask: Callable[[], bool], *, size: int) -> Iterator[Callable[[], bool]]:
    """Give a function that returns what `ask` returns, which a forked process finds out meanwhile.

    Where there is no second processor, or that process ends without an answer, `ask` is called
    here. It must change nothing, and this process have one thread. The other process is gone
    when the block is left.

    Args:
        ask: Finds the answer.
        size: Of what is read for it, in bytes; for less than `LARGE_BYTES` nothing is forked.
    """
    if size < LARGE_BYTES or not can_fork():
        yield ask
        return
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(writer, ask)
    os.close(writer)
    try:
        yield lambda: _received(reader, ask)
    finally:
        os.close(reader)
        _end(child)


def can_fork() -> bool:
    """Return whether a forked process can work beside this one."""
    return sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1


def _answer(writer: int, ask: Callable[[], bool]) -> None:
    """Send the answer and end this process, whatever happens."""
    try:
        os.write(writer, _YES if ask() else _NO)
    finally:
        os._exit(0)


def _received(reader: int, ask: Callable[[], bool]) -> bool:
    answer = os.read(reader, 1)
    return answer == _YES if answer else ask()


def _end(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
