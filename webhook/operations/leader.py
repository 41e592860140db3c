"""The leader of the controllers, as it is seen from outside.

No clock is compared with the leader's: a Lease that is held changes while it is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from webhook.jsonfields.reader import FieldReader

_USUAL_SECONDS: Final = 15


@dataclass(frozen=True, slots=True)
class Holding:
    """Holder of a Lease."""

    holder: str = ""
    """Its identity; empty where none does."""
    renewed: str = ""
    """When, by the holder's own clock; only good to see whether it changes."""
    seconds: int = _USUAL_SECONDS
    """For how long the holder leads after each renewal."""

    @property
    def host(self) -> str:
        """The pod or the host where the holder runs: its name is HOST-PROCESS-RANDOM."""
        return self.holder.rsplit("-", 2)[0]


def holding_of(lease: FieldReader) -> Holding:
    """Read a Lease.

    Raises:
        InvalidFieldError: It cannot be read.
    """
    spec = lease.child("spec")
    return Holding(
        spec.text("holderIdentity"),
        spec.text("renewTime"),
        spec.integer("leaseDurationSeconds") or _USUAL_SECONDS,
    )


def changed(
    look: Callable[[], Holding | None],
    before: Holding,
    seconds: float,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Holding | None:
    """Look until a Lease says something else, and return that; None when it does not in time.

    Args:
        look: Reads the Lease; None where there is none.
        before: What it said at first.
        seconds: How long to look.
        clock: The monotonic clock.
        sleep: Waits.
    """
    give_up = clock() + seconds
    while clock() < give_up:
        sleep(min(0.5, seconds))
        found = look()
        if found is not None and found != before:
            return found
    return None
