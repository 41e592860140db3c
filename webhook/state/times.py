"""Moments as the objects that we write have them."""

from __future__ import annotations

from datetime import UTC, datetime


def time_text(moment: datetime) -> str:
    """Write an aware moment as a Time: RFC 3339 in UTC, in whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def utc_now() -> str:
    """Return the time of day as a Time."""
    return time_text(datetime.now(UTC))
