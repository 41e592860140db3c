"""Readers of typed fields, and errors that name the field."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import MappingProxyType
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.jsonfields import fields
from webhook.jsonfields.encoding import NumberText
from webhook.jsonfields.fields import FieldError, FieldErrorType, InvalidFieldError

Reader = Callable[[object, str], object]

READ: dict[str, tuple[Reader, object, object]] = {
    "object": (fields.mapping, {"a": 1}, {"a": 1}),
    "read-only object": (fields.mapping, MappingProxyType({"a": 1}), {"a": 1}),
    "no object": (fields.mapping, None, {}),
    "list": (fields.sequence, [1], [1]),
    "tuple": (fields.sequence, (1,), (1,)),
    "no list": (fields.sequence, None, ()),
    "string": (fields.text, "x", "x"),
    "no string": (fields.text, None, ""),
    "integer": (fields.integer, 0, 0),
    "largest integer": (fields.integer, 2**63 - 1, 2**63 - 1),
    "least integer": (fields.integer, -(2**63), -(2**63)),
    "no integer": (fields.integer, None, None),
    "boolean": (fields.boolean, True, True),
    "no boolean": (fields.boolean, None, False),
    "string map": (fields.string_map, {"a": "b", "c": None}, {"a": "b", "c": ""}),
    "no string map": (fields.string_map, None, {}),
    "time": (fields.timestamp, "2026-06-01T12:00:00Z", datetime(2026, 6, 1, 12, tzinfo=UTC)),
    "time of a zone": (
        fields.timestamp,
        "2026-06-01T12:00:00+02:00",
        datetime(2026, 6, 1, 10, tzinfo=UTC),
    ),
    "time with a fraction": (
        fields.timestamp,
        "2026-06-01T12:00:00.5Z",
        datetime(2026, 6, 1, 12, 0, 0, 500_000, tzinfo=UTC),
    ),
    "time with nanoseconds": (
        fields.timestamp,
        "2026-06-01T12:00:00.123456789Z",
        datetime(2026, 6, 1, 12, 0, 0, 123_456, tzinfo=UTC),
    ),
    "no time": (fields.timestamp, None, None),
}


@pytest.mark.parametrize(("reader", "value", "expected"), READ.values(), ids=READ.keys())
def test_reads_a_value(reader: Reader, value: object, expected: object) -> None:
    assert reader(value, "spec.x") == expected


REFUSED: dict[str, tuple[Reader, object, str]] = {
    "list for object": (fields.mapping, [], "must be an object, not a list"),
    "string for object": (fields.mapping, "", "must be an object, not a string"),
    "key that is a number": (fields.mapping, {1: 2}, "keys must be strings, not a number"),
    "key that is null": (fields.mapping, {None: 2}, "keys must be strings, not null"),
    "object for list": (fields.sequence, {}, "must be a list, not an object"),
    "string for list": (fields.sequence, "ab", "must be a list, not a string"),
    "number for string": (fields.text, 1, "must be a string, not a number"),
    "number with a fraction for string": (
        fields.text,
        NumberText("1.5"),
        "must be a string, not a number",
    ),
    "boolean for string": (fields.text, False, "must be a string, not a boolean"),
    "bytes for string": (fields.text, b"x", "must be a string, not a Python bytes"),
    "string for integer": (fields.integer, "1", "must be an integer, not a string"),
    "boolean for integer": (fields.integer, True, "must be an integer, not a boolean"),
    "fraction for integer": (
        fields.integer,
        NumberText("1.0"),
        "must be an integer, not a number with a fraction or an exponent",
    ),
    "float for integer": (fields.integer, 1.0, "must be an integer, not a Python float"),
    "integer beyond 64 bits": (fields.integer, 2**63, "must be an integer of 64 bits"),
    "integer far beyond": (fields.integer, -(10**5000), "must be an integer of 64 bits"),
    "string for boolean": (fields.boolean, "true", "must be a boolean, not a string"),
    "number for boolean": (fields.boolean, 0, "must be a boolean, not a number"),
    "number for time": (fields.timestamp, 5, "must be a string, not a number"),
    "no zone": (
        fields.timestamp,
        "2026-06-01T12:00:00",
        "must be a time such as 2006-01-02T15:04:05Z",
    ),
    "only a date": (fields.timestamp, "2026-06-01", "must be a time such as 2006-01-02T15:04:05Z"),
    "empty time": (fields.timestamp, "", "must be a time such as 2006-01-02T15:04:05Z"),
    "no such day": (fields.timestamp, "2026-02-30T12:00:00Z", "is not a time of the calendar"),
    "year zero": (fields.timestamp, "0000-01-01T00:00:00Z", "is not a time of the calendar"),
    "before all time": (
        fields.timestamp,
        "0001-01-01T00:00:00+14:00",
        "is not a time of the calendar",
    ),
}


@pytest.mark.parametrize(("reader", "value", "detail"), REFUSED.values(), ids=REFUSED.keys())
def test_refuses_a_value_with_its_path(reader: Reader, value: object, detail: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        reader(value, "spec.x")

    assert caught.value.field == "spec.x"
    assert caught.value.detail == detail
    assert str(caught.value) == f"spec.x: {detail}"


def test_a_bad_member_of_a_string_map_is_named_by_its_key() -> None:
    with pytest.raises(InvalidFieldError) as caught:
        fields.string_map({"app": "a", "x.io/n": 1}, "metadata.labels")

    assert str(caught.value) == "metadata.labels[x.io/n]: must be a string, not a number"


def test_without_a_path_an_error_is_its_detail() -> None:
    assert str(InvalidFieldError("", "must be a list")) == "must be a list"


READERS: list[Reader] = [
    fields.mapping,
    fields.sequence,
    fields.text,
    fields.integer,
    fields.boolean,
    fields.timestamp,
    fields.string_map,
]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=6,
)


@given(reader=st.sampled_from(READERS), value=ANYTHING)
def test_any_value_is_read_or_refused(reader: Reader, value: object) -> None:
    assert outcome(reader, value) in {"read", "refused"}


@given(text=st.from_regex(r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,12})?(Z|[+-]\d\d:\d\d)\Z"))
def test_any_time_is_read_or_refused(text: str) -> None:
    assert outcome(fields.timestamp, text) in {"read", "refused"}


def test_objects_with_equal_times_share_one() -> None:
    written = "2026-01-01T00:00:00Z"
    assert fields.timestamp(written, "a") is fields.timestamp(str(written.encode(), "ascii"), "b")
    long = "2026-01-01T00:00:00." + "0" * 40 + "Z"
    assert fields.timestamp(long, "a") == fields.timestamp(written, "b")


def outcome(reader: Reader, value: object) -> str:
    try:
        reader(value, "spec.x")
    except InvalidFieldError as err:
        return "refused" if err.field.startswith("spec.x") else err.field
    return "read"


PATHS = {
    "member": (fields.child("spec", "cpu"), "spec.cpu"),
    "member of the whole": (fields.child("", "spec"), "spec"),
    "plain key": (fields.key("spec.hard", "pods"), "spec.hard.pods"),
    "key with a dot": (fields.key("spec.hard", "limits.cpu"), "spec.hard[limits.cpu]"),
    "key with a slash": (fields.key("labels", "a/b"), "labels[a/b]"),
}


@pytest.mark.parametrize(("path", "expected"), PATHS.values(), ids=PATHS.keys())
def test_paths_are_put_together(path: str, expected: str) -> None:
    assert path == expected


MESSAGES: dict[str, tuple[FieldError, str]] = {
    "invalid": (
        FieldError("FieldValueInvalid", "x", "must be an integer", '"500m"'),
        'Invalid value: "500m": must be an integer',
    ),
    "invalid without its value": (
        FieldError("FieldValueInvalid", "x", "field is immutable"),
        "field is immutable",
    ),
    "required": (FieldError("FieldValueRequired", "x", ""), "Required value"),
    "required why": (FieldError("FieldValueRequired", "x", "why"), "Required value: why"),
    "forbidden": (FieldError("FieldValueForbidden", "x", "why", '"v"'), "Forbidden: why"),
    "not found": (FieldError("FieldValueNotFound", "x", "why", '"v"'), 'Not found: "v": why'),
    "duplicate": (FieldError("FieldValueDuplicate", "x", "", '"v"'), 'Duplicate value: "v"'),
    "duplicate without its value": (FieldError("FieldValueDuplicate", "x", ""), "Duplicate value"),
    "not supported": (
        FieldError("FieldValueNotSupported", "x", "supported values: a", '"v"'),
        'Unsupported value: "v": supported values: a',
    ),
}


@pytest.mark.parametrize(("error", "message"), MESSAGES.values(), ids=MESSAGES.keys())
def test_an_error_has_the_message_of_the_api_server(error: FieldError, message: str) -> None:
    assert error.message == message
    assert str(error) == f"x: {message}"


def test_every_type_of_error_has_words() -> None:
    for type_ in get_args(FieldErrorType):
        assert FieldError(type_, "x", "", '"v"').message


def test_errors_are_equal_whatever_the_value() -> None:
    error = FieldError("FieldValueInvalid", "x", "why", '"v"')

    assert error == FieldError("FieldValueInvalid", "x", "why")
    assert error != FieldError("FieldValueInvalid", "y", "why")
