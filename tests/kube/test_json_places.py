"""Places in JSON texts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.files.documents import SnapshotError, read_documents
from webhook.kube.files.json_places import line_and_column, place_of
from webhook.kube.files.positions import located

TEXT = """{
  "kind": "List",
  "items": [
    {"a": "}]\\"", "b": [1, {"c": 2e3}]},
    {"a":1,
     "spec": {"x.y": null, "z": [ ]}}
  ]
}"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ([], (1, 1)),
        (["kind"], (2, 3)),
        (["items", 0, "b", 1, "c"], (4, 29)),
        (["items", 1], (5, 5)),
        (["items", 1, "spec", "x.y"], (6, 15)),
        (["items", 1, "spec", "missing", 3], (6, 6)),
        (["items", 7], (3, 3)),
        (["kind", "deeper"], (2, 3)),
    ],
)
def test_a_path_has_its_place_or_that_of_what_it_would_lie_in(
    path: list[str | int], expected: tuple[int, int]
) -> None:
    assert line_and_column(TEXT, place_of(TEXT, 0, path)) == expected


REPEATED = {
    "at the top": ('{"a": 1,\n "a": 2}', (2, 2)),
    "deep": ('{"a": [1,\n {"b": {"c": 1, "d": 2, "c": 3}}]}', (2, 25)),
    "behind another document": ('{"a": 1}\n{"a": {"b": 1,\n"b": 1}}', (3, 1)),
    "by an escape": ('{"a": 1,\n  "\\u0061": 2}', (2, 3)),
}


@pytest.mark.parametrize(("text", "expected"), REPEATED.values(), ids=REPEATED.keys())
def test_a_repeated_key_is_refused_with_its_place(text: str, expected: tuple[int, int]) -> None:
    with pytest.raises(SnapshotError, match="appears twice") as refused:
        read_documents("x.json", text.encode())
    assert (refused.value.place.line, refused.value.place.column) == expected


def test_a_number_that_is_too_long_is_refused_with_its_place() -> None:
    with pytest.raises(SnapshotError, match="too long") as refused:
        read_documents("x.json", b'{"a": [1,\n   ' + b"7" * 5000 + b"]}")
    assert (refused.value.place.line, refused.value.place.column) == (2, 4)


@pytest.mark.parametrize("text", ['{"a": 1}\n\n  {"b": {"c": 1}}', "a: 1\n---\n\nb:\n  c: 1\n"])
def test_an_error_about_a_field_gets_line_and_column(text: str) -> None:
    data = text.encode()
    document = read_documents("x", data)[1]
    found = located(document.error("is wrong", field="b.c"), data)
    column = text.split("\n")[found.place.line - 1].index("c") + 1 if found.place.line else 0
    is_json = text.startswith("{")
    assert (found.place.line, found.place.column) == ((3, column - 1) if is_json else (5, column))
    assert (found.file, found.place.document, found.field, found.detail) == (
        "x",
        2,
        "b.c",
        "is wrong",
    )


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(value=st.lists(_JSON, min_size=1), indent=st.none() | st.integers(0, 3))
def test_every_item_begins_at_its_place(value: list[object], indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    decoder = json.JSONDecoder()
    found = [decoder.raw_decode(text, place_of(text, 0, [at]))[0] for at in range(len(value))]
    assert found == value
