"""Headers of traces: what is one, and what is read as none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.telemetry.trace import current_trace, exemplar, read_trace, under

ID = "4bf92f3577b34da6a3ce929d0e0e4736"
GOOD = f"00-{ID}-00f067aa0ba902b7-01"

NONE = {
    "nothing": "",
    "words": "trace",
    "a version that is none": f"ff{GOOD[2:]}",
    "upper case": GOOD.upper(),
    "a trace of zeros": f"00-{'0' * 32}-00f067aa0ba902b7-01",
    "a parent of zeros": f"00-{ID}-{'0' * 16}-01",
    "more than its version has": f"{GOOD}-more",
    "a line break": f"{GOOD}\r\nX: y",
    "a line break of a later version": f"cc{GOOD[2:]}-more\r\nX: y",
    "too long": f"cc{GOOD[2:]}-{'x' * 300}",
}


def test_a_header_names_its_trace() -> None:
    trace = read_trace(GOOD)
    assert trace is not None
    assert (trace.header, trace.id, trace.is_sampled) == (GOOD, ID, True)


@pytest.mark.parametrize(("flags", "is_sampled"), [("00", False), ("01", True), ("02", False)])
def test_the_caller_says_whether_it_is_recorded(flags: str, is_sampled: bool) -> None:
    trace = read_trace(f"{GOOD[:-2]}{flags}")
    assert trace is not None
    assert trace.is_sampled is is_sampled


def test_a_later_version_may_say_more() -> None:
    trace = read_trace(f"cc{GOOD[2:]}-what.it.will.be")
    assert trace is not None
    assert trace.id == ID


@pytest.mark.parametrize("header", NONE.values(), ids=NONE.keys())
def test_what_is_no_header_is_no_trace(header: str) -> None:
    assert read_trace(header) is None


@given(st.text(max_size=80))
def test_what_is_passed_on_fits_into_a_header(text: str) -> None:
    trace = read_trace(text)
    assert trace is None or (trace.header.isascii() and trace.header.isprintable())


def test_a_trace_ends_with_its_block() -> None:
    with under(read_trace(GOOD)):
        assert exemplar() == {"trace_id": ID}
        with under(None):
            assert (current_trace(), exemplar()) == (None, None)
        assert current_trace() == read_trace(GOOD)
    assert current_trace() is None
