"""Time for an answer: what the API server says in the URL, less a margin.

The API server sends the time it will wait as `?timeout=5s`, rounded up to a whole second when
little is left of its own request. An answer that comes later is thrown away, and whatever it
reserved has to expire; so answers are given a margin earlier.

Source: kubernetes v1.36, apiserver/pkg/admission/plugin/webhook/validating/dispatcher.go callHook.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import parse_qsl

DEFAULT_TIMEOUT_SECONDS: Final = 10.0
"""What the API server waits when a webhook's registration does not say."""

MAX_TIMEOUT_SECONDS: Final = 30.0
"""The most a registration may ask for; a larger value in the URL was not sent by an API server."""

MAX_QUERY_CHARACTERS: Final = 1024
"""Longest query that is read: more, and fields by the thousand, were not sent by an API server."""

MAX_MARGIN_SECONDS: Final = 0.5
"""Kept back for the way to the API server and for one that rounded its timeout up."""

MARGIN_SHARE: Final = 0.2
"""Share of the timeout that is kept back when it is short."""

_UNIT_SECONDS: Final = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0,
}  # fmt: skip
_NUMBER: Final = r"(\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})"
_PART: Final = re.compile(rf"{_NUMBER}(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_DURATION: Final = re.compile(rf"(?:{_NUMBER}(?:ns|us|µs|μs|ms|s|m|h)){{1,8}}", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Deadline:
    """A moment on the monotonic clock by which an answer has to be on its way."""

    at: float
    """Seconds, as `time.monotonic()` counts them."""

    def remaining(self) -> float:
        """Return the seconds that are left, 0 when there are none."""
        return max(0.0, self.at - time.monotonic())

    @property
    def expired(self) -> bool:
        """Return whether the time is over."""
        return time.monotonic() >= self.at


def deadline_of(query: str, *, received: float) -> Deadline:
    """Return the deadline of a review that arrived at `received` with this query in its URL."""
    seconds = timeout_seconds(query if len(query) <= MAX_QUERY_CHARACTERS else "")
    margin = min(MAX_MARGIN_SECONDS, seconds * MARGIN_SHARE)
    return Deadline(received + seconds - margin)


@lru_cache(maxsize=64)
def timeout_seconds(query: str) -> float:
    """Read `timeout` from the query of a URL; absent or unreadable means the default."""
    seconds = parse_duration(dict(parse_qsl(query)).get("timeout", ""))
    if seconds is None or seconds <= 0:
        return DEFAULT_TIMEOUT_SECONDS
    return min(seconds, MAX_TIMEOUT_SECONDS)


def parse_duration(text: str) -> float | None:
    """Read a duration as Go prints it (`5s`, `300ms`, `1m30s`) into seconds; None if it is not one.

    A sign is not read: the API server sends none.
    """
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(text))
