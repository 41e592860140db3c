"""Waits for something to be so, never for time to pass.

Bounds are generous: they are there so that a test ends, not so that it is quick.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

PATIENCE_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.03


def eventually(look: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS) -> T:
    """Wait until a look gives something that is true, and return it."""
    give_up = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < give_up, f"not so after {seconds:.0f} s: {what} (found {found!r})"
        time.sleep(_POLL_SECONDS)
    return found


def becomes(look: Callable[[], T], wanted: T, what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until a look gives just this."""
    give_up = time.monotonic() + seconds
    while (found := look()) != wanted:
        assert time.monotonic() < give_up, (
            f"{what}: {found!r} after {seconds:.0f} s, not {wanted!r}"
        )
        time.sleep(_POLL_SECONDS)


def stays(look: Callable[[], T], wanted: T, what: str, until: Callable[[], object]) -> None:
    """Check that a look gives just this from now until something else is so."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not until():
        assert (found := look()) == wanted, f"{what}: {found!r}, not {wanted!r}"
        assert time.monotonic() < give_up, f"what was waited for did not come, while {what}"
        time.sleep(_POLL_SECONDS)
