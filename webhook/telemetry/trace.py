"""Trace of the request that a thread works for: out of its `traceparent`, into what it does.

There are no spans of our own: the header is passed on unchanged, and its trace's id stands in log
lines and exemplars. A batch is written by the thread of one of its requests, under its trace.

Source: W3C Trace Context, level 1, section 3.2 and 4.3 (pass through unchanged).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

_HEADER: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(-[!-~]*)?"
)
_LONGEST: Final = 256
_SAMPLED: Final = 0x01


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace that a request belongs to."""

    header: str
    """`traceparent` as it came."""
    id: str
    """32 hexadecimal digits."""
    is_sampled: bool
    """Whether the caller records it."""


_current: ContextVar[Trace | None] = ContextVar("trace", default=None)


def read_trace(header: str) -> Trace | None:
    """Return the trace of a `traceparent`; None where it is none, which is no error."""
    if not header or len(header) > _LONGEST:
        return None
    found = _HEADER.fullmatch(header)
    if found is None or (found[3] and header.startswith("00")):
        return None
    return Trace(header, found[1], bool(int(found[2], 16) & _SAMPLED))


@contextmanager
def under(trace: Trace | None) -> Iterator[None]:
    """Work for a trace on this thread, until the block is left."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)


def current_trace() -> Trace | None:
    """Return the trace that this thread works for."""
    return _current.get()


def exemplar() -> dict[str, str] | None:
    """Return the labels of an exemplar for what is measured now: of a trace that is recorded."""
    trace = _current.get()
    return {"trace_id": trace.id} if trace is not None and trace.is_sampled else None
