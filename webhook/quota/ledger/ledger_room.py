"""Room of a ledger: one object holds only so many reservations, and the last of it is for binds.

A scheduler may have evicted others by the time it binds a pod, and does so again for each bind that
is undecided for want of room. So binds alone take the last quarter. What they reserve is counted
within seconds of the bind; all else may stay for minutes, and a tenant decides how much of it there
is. A pod that was released has its place already: its bind needs no other. Beyond half new pods are
gated, so that few without a place are about when three quarters are full.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from webhook.quota.ledger.ledger import Ledger
from webhook.quota.ledger.ledger_codec import encode_status

MAX_LEDGER_BYTES: Final = 1_280 * 1024
"""Of a ledger's status as JSON. etcd takes 1.5 MiB by default, metadata included."""

_BESIDE_BINDS: Final = (3, 4)
_CROWDED: Final = (1, 2)
_STILL_CROWDED: Final = (3, 8)
"""Less than what makes it crowded, so that pods are not gated in turns."""


def release_room(ledger: Ledger | None, max_reservations: int) -> int:
    """Return for how many more pods something may be reserved that no bind asks for."""
    if ledger is None:
        return 0
    return max(0, max_reservations - max_reservations // 4 - len(ledger.reservations))


def is_large_for_releases(ledger: Ledger, max_bytes: int = MAX_LEDGER_BYTES) -> bool:
    """Return whether reservations take more bytes than binds leave to others."""
    return _takes_more(ledger, _BESIDE_BINDS, max_bytes)


def is_for_binds_only(
    ledger: Ledger, max_reservations: int, max_bytes: int = MAX_LEDGER_BYTES
) -> bool:
    """Return whether only binds may still reserve."""
    return not release_room(ledger, max_reservations) or is_large_for_releases(ledger, max_bytes)


def is_crowded(ledger: Ledger, max_reservations: int, *, was_crowded: bool = False) -> bool:
    """Return whether so much is reserved that new pods are gated."""
    most, of = part = _STILL_CROWDED if was_crowded else _CROWDED
    if len(ledger.reservations) * of > max_reservations * most:
        return True
    return bool(ledger.reservations) and _takes_more(ledger, part, MAX_LEDGER_BYTES)


def _takes_more(ledger: Ledger, part: tuple[int, int], max_bytes: int) -> bool:
    """Return whether reservations take more than a part of the bytes that their quotas leave."""
    most, of = part
    beside = len(encode_status(replace(ledger, reservations={})))
    taken = len(encode_status(ledger)) - beside
    return taken * of > max(0, max_bytes - beside) * most
