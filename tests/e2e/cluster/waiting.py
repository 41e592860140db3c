"""Waits for something to be so, never for time to pass.

Bounds are generous: they are there so that a test ends, not so that it is quick. Whoever waits long
looks less often: each look costs the API server what the product could use.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

PATIENCE_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.03
_LONGEST_PAUSE_SECONDS: Final = 0.2
_GROWTH: Final = 1.15


def eventually(
    look: Callable[[], T],
    what: str,
    seconds: float = PATIENCE_SECONDS,
    *,
    growth: float = _GROWTH,
) -> T:
    """Wait until a look gives something that is true, and return it.

    With a `growth` of 1 it is looked as often at the end as in the beginning: where each look is a
    try that must not succeed.
    """
    give_up, pauses = time.monotonic() + seconds, _pauses(growth)
    while not (found := look()):
        assert time.monotonic() < give_up, f"not so after {seconds:.0f} s: {what} (found {found!r})"
        time.sleep(next(pauses))
    return found


def becomes(look: Callable[[], T], wanted: T, what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until a look gives just this."""
    give_up, pauses = time.monotonic() + seconds, _pauses(_GROWTH)
    while (found := look()) != wanted:
        assert time.monotonic() < give_up, (
            f"{what}: {found!r} after {seconds:.0f} s, not {wanted!r}"
        )
        time.sleep(next(pauses))


def stays(look: Callable[[], T], wanted: T, what: str, until: Callable[[], object]) -> None:
    """Check that a look gives just this from now until something else is so."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not until():
        assert (found := look()) == wanted, f"{what}: {found!r}, not {wanted!r}"
        assert time.monotonic() < give_up, f"what was waited for did not come, while {what}"
        time.sleep(_POLL_SECONDS)


def _pauses(growth: float) -> Iterator[float]:
    pause = _POLL_SECONDS
    while True:
        yield pause
        pause = min(pause * growth, _LONGEST_PAUSE_SECONDS)
