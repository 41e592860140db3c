"""Notice that a leadership has begun or ended, for controllers with a loop of their own."""

from __future__ import annotations

from collections.abc import Callable


class NotLeadingError(Exception):
    """The leadership under which something was to be written is over."""


def always() -> int:
    """Lead from the beginning to the end."""
    return 1


class Terms:
    """Which leadership a controller works under. For use by one thread.

    Args:
        is_leader: 0 for no, else a number that is another one in every leadership.
        begin: Called when one begins, to look at everything anew.
    """

    def __init__(self, is_leader: Callable[[], int], begin: Callable[[], None]) -> None:
        self._is_leader = is_leader
        self._begin = begin
        self._term = 0

    def notice(self) -> bool:
        """Tell whether this process leads; a leadership that is new is begun first."""
        term = int(self._is_leader())
        if term and term != self._term:
            self._begin()
        self._term = term
        return term != 0

    def leads(self) -> bool:
        """Tell whether the leadership that was noticed last still lasts."""
        return self._term != 0 and int(self._is_leader()) == self._term
