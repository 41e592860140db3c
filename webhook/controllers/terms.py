"""Notice that a leadership has begun or ended, for controllers with threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable


class NotLeadingError(Exception):
    """The leadership under which something was to be written is over."""


def always() -> int:
    """Lead from the beginning to the end."""
    return 1


class Terms:
    """Which leadership a controller works under. Safe to use from several threads.

    Args:
        is_leader: 0 for no, else a number that is another one in every leadership.
        begin: Called when one begins, to look at everything anew; while it fails, none has begun.
        tell: Told of each that has begun, and 0 when one is over.
    """

    def __init__(
        self,
        is_leader: Callable[[], int],
        begin: Callable[[], None],
        tell: Callable[[int], None] = lambda _term: None,
    ) -> None:
        self._is_leader = is_leader
        self._begin = begin
        self._tell = tell
        self._changing = threading.Lock()
        self._term = 0

    def notice(self) -> int:
        """Return the leadership to work under, 0 for none; one that is new is begun first."""
        term = int(self._is_leader())
        if term != self._term:
            with self._changing:
                term = int(self._is_leader())  # another thread may have begun it meanwhile
                if term != self._term:
                    if term:
                        self._begin()
                    self._term = term
                    self._tell(term)
        return term

    def leads(self) -> bool:
        """Tell whether the leadership that was noticed last still lasts."""
        return self._term != 0 and self.lasts(self._term)

    def lasts(self, term: int) -> bool:
        """Tell whether this leadership is the present one."""
        return int(self._is_leader()) == term
