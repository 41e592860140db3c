"""Strategic merge patches."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.fakecluster.rest.strategic_merge import apply_strategic
from webhook.kube.api import BadRequestError

CONTAINERS = [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]
POD: dict[str, object] = {"containers": CONTAINERS}

CASES: dict[str, tuple[dict[str, object], dict[str, object], dict[str, object]]] = {
    "fields are merged": ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
    "null removes": ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
    "containers are merged by name": (
        POD,
        {"containers": [{"name": "b", "image": "z"}]},
        {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "z"}]},
    ),
    "a new container is added": (
        POD,
        {"containers": [{"name": "c"}]},
        {"containers": [*CONTAINERS, {"name": "c"}]},
    ),
    "a container is deleted": (
        POD,
        {"containers": [{"name": "a", "$patch": "delete"}]},
        {"containers": [{"name": "b", "image": "y"}]},
    ),
    "deleting what is not there": (
        POD,
        {"containers": [{"name": "z", "$patch": "delete"}]},
        POD,
    ),
    "a list is replaced on demand": (
        POD,
        {"containers": [{"name": "z"}, {"$patch": "replace"}]},
        {"containers": [{"name": "z"}]},
    ),
    "ports are merged by what they have": (
        {"ports": [{"port": 80, "name": "a"}]},
        {"ports": [{"port": 80, "name": "b"}, {"port": 81}]},
        {"ports": [{"port": 80, "name": "b"}, {"port": 81}]},
    ),
    "lists without a key are replaced": (
        {"args": ["a", "b"], "tolerations": [{"key": "a"}]},
        {"args": ["c"], "tolerations": [{"key": "b"}]},
        {"args": ["c"], "tolerations": [{"key": "b"}]},
    ),
    "finalizers are a set": (
        {"finalizers": ["a"]},
        {"finalizers": ["b", "a"]},
        {"finalizers": ["a", "b"]},
    ),
    "values of a set are removed": (
        {"finalizers": ["a", "b"]},
        {"$deleteFromPrimitiveList/finalizers": ["a"]},
        {"finalizers": ["b"]},
    ),
    "orders are left alone": (
        {"containers": [{"name": "a"}]},
        {"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "a", "x": 1}]},
        {"containers": [{"name": "a", "x": 1}]},
    ),
    "only some keys are kept": (
        {"strategy": {"type": "A", "rolling": 1}},
        {"strategy": {"$retainKeys": ["type"], "type": "B"}},
        {"strategy": {"type": "B"}},
    ),
    "a map is replaced on demand": (
        {"a": {"b": 1}},
        {"a": {"$patch": "replace", "c": 2}},
        {"a": {"c": 2}},
    ),
    "a map is deleted on demand": ({"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {"a": {}}),
    "a scalar becomes a map": ({"a": 1}, {"a": {"b": 2}}, {"a": {"b": 2}}),
}


@pytest.mark.parametrize(("document", "patch", "outcome"), CASES.values(), ids=CASES.keys())
def test_a_patch_merges(
    document: dict[str, object], patch: dict[str, object], outcome: dict[str, object]
) -> None:
    before = copy.deepcopy(document)
    assert apply_strategic(document, patch) == outcome
    assert document == before


@pytest.mark.parametrize(
    "patch",
    [{"$patch": "frob"}, {"$patch": 5}, {"containers": [{"image": "x"}]}],
    ids=["an unknown directive", "a directive of a number", "an entry without its key"],
)
def test_what_is_no_patch_is_refused(patch: dict[str, object]) -> None:
    with pytest.raises(BadRequestError):
        apply_strategic(POD, patch)


KEYS = st.sampled_from(
    ["a", "containers", "name", "$patch", "$retainKeys", "$deleteFromPrimitiveList/a", "finalizers"]
)
VALUES = st.recursive(
    st.none() | st.integers() | st.sampled_from(["delete", "replace", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)


@given(document=st.dictionaries(KEYS, VALUES), patch=st.dictionaries(KEYS, VALUES))
def test_any_patch_applies_or_is_refused(
    document: dict[str, object], patch: dict[str, object]
) -> None:
    try:
        assert isinstance(apply_strategic(document, patch), dict)
    except BadRequestError:
        return
