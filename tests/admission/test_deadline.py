"""How long an answer may take."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.admission.deadline import Deadline, deadline_of, parse_duration, timeout_seconds

DURATIONS: dict[str, tuple[str, float | None]] = {
    "seconds": ("5s", 5.0),
    "milliseconds": ("300ms", 0.3),
    "two units": ("1m30s", 90.0),
    "a fraction": ("1.5s", 1.5),
    "a fraction without its zero": (".5s", 0.5),
    "microseconds": ("250µs", 0.00025),
    "zero": ("0s", 0.0),
    "nothing": ("", None),
    "no unit": ("5", None),
    "no number": ("s", None),
    "negative": ("-5s", None),
    "blank": ("5 s", None),
    "unknown unit": ("5d", None),
    "exponent": ("1e3s", None),
    "other digits": ("\N{ARABIC-INDIC DIGIT FIVE}s", None),
    "too many digits": ("1" * 30 + "s", None),
    "text behind": ("5sx", None),
    "newline": ("5s\n", None),
}


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.values(), ids=DURATIONS.keys())
def test_durations_are_read_as_go_writes_them(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@given(text=st.text(max_size=12))
def test_any_other_text_is_no_duration(text: str) -> None:
    seconds = parse_duration(text)
    assert seconds is None or seconds >= 0


QUERIES: dict[str, tuple[str, float]] = {
    "as the API server sends it": ("timeout=5s", 5.0),
    "escaped": ("timeout=5%73", 5.0),
    "among others": ("a=b&timeout=2s", 2.0),
    "the last one of two": ("timeout=1s&timeout=2s", 2.0),
    "absent": ("", 10.0),
    "empty": ("timeout=", 10.0),
    "nonsense": ("timeout=soon", 10.0),
    "zero": ("timeout=0s", 10.0),
    "negative": ("timeout=-1s", 10.0),
    "longer than any registration may ask for": ("timeout=1h", 30.0),
    "another name": ("notimeout=1s", 10.0),
}


@pytest.mark.parametrize(("query", "seconds"), QUERIES.values(), ids=QUERIES.keys())
def test_the_timeout_comes_from_the_url(query: str, seconds: float) -> None:
    assert timeout_seconds(query) == seconds


MARGINS: dict[str, tuple[str, float]] = {
    "half a second is kept back": ("timeout=5s", 104.5),
    "a fifth of a short time": ("timeout=300ms", 100.24),
    "where both are the same": ("timeout=2.5s", 102.0),
    "a query longer than an API server's": ("timeout=5s&" + "a=b&" * 300, 109.5),
}


@pytest.mark.parametrize(("query", "at"), MARGINS.values(), ids=MARGINS.keys())
def test_a_margin_is_kept_back(query: str, at: float) -> None:
    assert deadline_of(query, received=100.0).at == pytest.approx(at)


def test_a_deadline_counts_down_to_nothing() -> None:
    now = time.monotonic()
    assert not Deadline(now + 60).expired
    assert 59 < Deadline(now + 60).remaining() <= 60
    assert Deadline(now - 1).expired
    assert Deadline(now - 1).remaining() == 0


def test_a_query_of_many_fields_is_not_taken_apart() -> None:
    """It is read where all connections wait."""
    started = time.thread_time()
    for number in range(20):
        deadline_of(f"{number}" + "&%41=%41" * 8000, received=0.0)
    assert time.thread_time() - started < 0.1
