"""JSON Patch builders: what they write does what it says when somebody else applies it."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.admission.patch_builder import (
    PatchOperation,
    PatchTargetError,
    add,
    append,
    encode_patch,
    pointer,
    remove,
    remove_keys,
    replace,
    set_keys,
)
from webhook.jsonfields.encoding import NumberText

KEYS = st.text(max_size=6)
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=6)


def applied(document: Any, operations: tuple[PatchOperation, ...]) -> Any:
    patch = jsonpatch.JsonPatch(json.loads(encode_patch(operations)))
    return patch.apply(copy.deepcopy(document))


POINTERS: dict[str, tuple[tuple[str | int, ...], str]] = {
    "the whole document": ((), ""),
    "keys": (("metadata", "name"), "/metadata/name"),
    "a slash": (("deferredquota.io/guarded",), "/deferredquota.io~1guarded"),
    "a tilde": (("a~b",), "/a~0b"),
    "both, in an order that must not be mixed up": (("~1", "/0"), "/~01/~10"),
    "an index": (("spec", "containers", 0), "/spec/containers/0"),
    "an empty key": (("", "x"), "//x"),
}


@pytest.mark.parametrize(("tokens", "text"), POINTERS.values(), ids=POINTERS.keys())
def test_pointers_are_escaped(tokens: tuple[str | int, ...], text: str) -> None:
    assert pointer(*tokens) == text


def test_single_operations_are_written_as_the_rfc_names_them() -> None:
    operations = (
        add(("a",), None),
        replace(("b",), 1),
        remove(("c",)),
    )
    assert json.loads(encode_patch(operations)) == [
        {"op": "add", "path": "/a", "value": None},
        {"op": "replace", "path": "/b", "value": 1},
        {"op": "remove", "path": "/c"},
    ]


def test_numbers_are_written_as_they_came() -> None:
    assert encode_patch((add(("a",), [NumberText("0.10"), 2]),)) == (
        b'[{"op":"add","path":"/a","value":[0.10,2]}]'
    )


SET: dict[str, tuple[Any, dict[str, Any]]] = {
    "the map is there": ({"m": {"annotations": {"x": "1"}}}, {"x": "1", "a/b": "2"}),
    "the map is missing": ({"m": {}}, {"a/b": "2"}),
    "the map is null": ({"m": {"annotations": None}}, {"a/b": "2"}),
    "the parent is missing": ({}, {"a/b": "2"}),
}


@pytest.mark.parametrize(("document", "expected"), SET.values(), ids=SET.keys())
def test_keys_are_set_in_a_map_that_may_be_missing(document: Any, expected: Any) -> None:
    operations = set_keys(document, ("m", "annotations"), {"a/b": "2"})
    assert applied(document, operations)["m"]["annotations"] == expected


@given(
    document=st.dictionaries(KEYS, st.dictionaries(KEYS, SCALARS) | st.none()),
    path=KEYS,
    entries=st.dictionaries(KEYS, SCALARS),
)
def test_setting_keys_twice_changes_nothing_more(
    document: dict[str, Any], path: str, entries: dict[str, Any]
) -> None:
    once = applied(document, set_keys(document, (path,), entries))
    assert once == {
        **document,
        **({path: {**(document.get(path) or {}), **entries}} if entries else {}),
    }
    assert set_keys(once, (path,), entries) == ()


LISTS: dict[str, tuple[Any, list[Any]]] = {
    "the list is there": ({"spec": {"gates": [1]}}, [1, {"name": "q"}]),
    "the list is empty": ({"spec": {"gates": []}}, [{"name": "q"}]),
    "the list is missing": ({"spec": {}}, [{"name": "q"}]),
    "the list is null": ({"spec": {"gates": None}}, [{"name": "q"}]),
    "the parent is missing": ({}, [{"name": "q"}]),
}


@pytest.mark.parametrize(("document", "expected"), LISTS.values(), ids=LISTS.keys())
def test_a_list_that_may_be_missing_is_appended_to(document: Any, expected: Any) -> None:
    operations = append(document, ("spec", "gates"), {"name": "q"})
    assert applied(document, operations)["spec"]["gates"] == expected


@given(document=st.dictionaries(KEYS, SCALARS), keys=st.lists(KEYS, unique=True))
def test_only_keys_that_are_there_are_removed(document: dict[str, Any], keys: list[str]) -> None:
    result = applied({"hard": document}, remove_keys({"hard": document}, ("hard",), keys))
    assert result["hard"] == {key: document[key] for key in document if key not in keys}


def test_a_patch_that_removes_very_many_keys_is_no_larger_than_the_map() -> None:
    document = {"labels": {f"example.com/label-{number}": "" for number in range(2000)}}
    keys = [*document["labels"]][1:]
    operations = remove_keys(document, ("labels",), keys)
    assert applied(document, operations) == {"labels": {"example.com/label-0": ""}}
    assert len(encode_patch(operations)) < 200


def test_nothing_is_removed_from_a_map_that_is_missing() -> None:
    assert remove_keys({"status": None}, ("status", "hard"), ("cpu",)) == ()


IN_THE_WAY: dict[str, tuple[Any, str]] = {
    "a list for the map": ({"m": {"a": []}}, "m.a: must be a map"),
    "text for the parent": ({"m": "x"}, "m: must be a map"),
}


@pytest.mark.parametrize(("document", "message"), IN_THE_WAY.values(), ids=IN_THE_WAY.keys())
def test_what_is_in_the_way_is_named(document: Any, message: str) -> None:
    with pytest.raises(PatchTargetError) as caught:
        set_keys(document, ("m", "a"), {"k": "v"})
    assert str(caught.value) == message
    assert caught.value.field == message.partition(":")[0]
    with pytest.raises(PatchTargetError):
        remove_keys(document, ("m", "a"), ("k",))


def test_a_map_for_the_list_is_named() -> None:
    with pytest.raises(PatchTargetError, match=r"spec\.gates: must be a list"):
        append({"spec": {"gates": {}}}, ("spec", "gates"), 1)
