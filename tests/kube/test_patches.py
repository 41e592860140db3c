"""Patches as documents meet them."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.api import ApiError, BadRequestError, InvalidError, TooLargeError
from webhook.kube.patches import MAX_OPERATIONS, PatchError, apply_operations, apply_patch

KEYS = st.sampled_from(["a", "b", "0", "-", "~", "/"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=3)
SEGMENTS = st.sampled_from(["a", "b", "0", "1", "-", "~0", "~1", "~2", "", "-1", "01", "\u0663"])
PATHS = st.lists(SEGMENTS, max_size=4).map(lambda parts: "".join(f"/{part}" for part in parts))
OPERATIONS = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["add", "remove", "replace", "test", "move", "copy"]),
        "path": PATHS,
        "from": PATHS,
        "value": VALUES,
    }
)


@given(document=DOCUMENTS, patch=st.lists(OPERATIONS, max_size=4))
def test_any_patch_applies_or_is_refused(
    document: dict[str, object], patch: list[dict[str, object]]
) -> None:
    try:
        outcome = apply_patch(document, patch)
    except (InvalidError, BadRequestError):
        return
    assert isinstance(outcome, dict)


@given(
    document=DOCUMENTS,
    patch=st.lists(
        st.dictionaries(st.sampled_from(["op", "path", "from", "value", "x"]), VALUES), max_size=3
    )
    | VALUES,
)
def test_what_is_no_patch_is_refused(document: dict[str, object], patch: object) -> None:
    try:
        apply_operations(document, patch)  # type: ignore[arg-type] # that is the point
    except (ApiError, PatchError):
        return
    assert patch == [] or isinstance(patch, list)


def test_operations_apply_in_order() -> None:
    patch: list[dict[str, object]] = [
        {"op": "add", "path": "/list", "value": []},
        {"op": "add", "path": "/list/-", "value": 1},
        {"op": "add", "path": "/list/0", "value": 0},
        {"op": "copy", "from": "/list", "path": "/copy"},
        {"op": "remove", "path": "/list/1"},
        {"op": "move", "from": "/list", "path": "/moved"},
        {"op": "test", "path": "/moved", "value": [0]},
    ]
    assert apply_operations({}, patch) == {"copy": [0, 1], "moved": [0]}


def test_a_patch_cannot_make_something_else_of_an_object() -> None:
    with pytest.raises(BadRequestError, match="not an object"):
        apply_patch({"a": 1}, [{"op": "replace", "path": "", "value": [1]}])


def test_there_are_only_so_many_operations() -> None:
    patch = [{"op": "add", "path": "/a", "value": 1}] * (MAX_OPERATIONS + 1)
    with pytest.raises(TooLargeError, match="is 10000, got 10001"):
        apply_patch({}, patch)


MERGES: dict[str, tuple[dict[str, object], dict[str, object], dict[str, object]]] = {
    "replaces": ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    "adds": ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    "removes": ({"a": "b", "c": "d"}, {"a": None}, {"c": "d"}),
    "goes deeper": ({"a": {"b": "c", "d": "e"}}, {"a": {"d": None}}, {"a": {"b": "c"}}),
    "replaces lists": ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
    "makes objects of scalars": ({"a": "c"}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
}


@pytest.mark.parametrize(("target", "patch", "outcome"), MERGES.values(), ids=MERGES.keys())
def test_a_merge_patch(
    target: dict[str, object], patch: dict[str, object], outcome: dict[str, object]
) -> None:
    assert apply_patch(target, patch) == outcome


@given(document=DOCUMENTS, patch=DOCUMENTS)
def test_a_merge_patch_applied_twice_is_applied_once(
    document: dict[str, object], patch: dict[str, object]
) -> None:
    once = apply_patch(copy.deepcopy(document), patch)
    assert apply_patch(copy.deepcopy(once), patch) == once
    for key, value in patch.items():
        if value is None:
            assert key not in once
        elif not isinstance(value, Mapping):
            assert once[key] == value
