"""Leadership epochs: which one is current, and when one begins or ends."""

from __future__ import annotations

import threading
from collections.abc import Callable


class NotLeadingError(Exception):
    """The leadership under which something was to be written is over."""


def always_leader() -> int:
    """Lead from the beginning to the end."""
    return 1


class Leadership:
    """Leadership under which a controller works. Safe to use from several threads.

    Args:
        leader_epoch: 0 for no, else a number that is another one in every leadership.
        on_started: Called when one begins, to look at everything anew; while it fails, none has
            begun.
        on_change: Told of each that has begun, and 0 when one is over.
    """

    def __init__(
        self,
        leader_epoch: Callable[[], int],
        on_started: Callable[[], None],
        on_change: Callable[[int], None] = lambda _term: None,
    ) -> None:
        self._leader_epoch = leader_epoch
        self._on_started = on_started
        self._on_change = on_change
        self._lock = threading.Lock()
        self._epoch = 0
        self._is_stopped = False

    def current_epoch(self) -> int:
        """Return the leadership to work under, 0 for none; one that is new is begun first."""
        epoch = int(self._leader_epoch())
        if epoch != self._epoch:
            with self._lock:
                epoch = int(self._leader_epoch())  # another thread may have begun it meanwhile
                if epoch != self._epoch:
                    if epoch:
                        self._on_started()
                    self._epoch = epoch
                    self._on_change(epoch)
        return epoch

    def is_leader(self) -> bool:
        """Return whether the leadership that was noticed last still lasts."""
        return self._epoch != 0 and self.is_current(self._epoch)

    def is_current(self, epoch: int) -> bool:
        """Return whether this leadership is the present one, and not stopped."""
        return not self._is_stopped and int(self._leader_epoch()) == epoch

    def require(self, epoch: int) -> None:
        """Make sure that something may be written under a leadership.

        Raises:
            NotLeadingError: The leadership is over.
        """
        if not self.is_current(epoch):
            raise NotLeadingError

    def stop(self) -> None:
        """Let nothing be written any more, although this process may still lead."""
        self._is_stopped = True
