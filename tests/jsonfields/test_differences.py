"""At which paths an object of a cluster differs from the wanted one."""

from __future__ import annotations

import pytest

from webhook.jsonfields.fields import additions, differences

CASES: dict[str, tuple[object, object, list[str]]] = {
    "the same": ({"a": [{"b": "1"}]}, {"a": [{"b": "1"}]}, []),
    "what the API server fills in": ({"a": {"b": "1"}}, {"a": {"b": "1", "c": "2"}, "d": 3}, []),
    "another value": ({"a": {"b": "1"}}, {"a": {"b": "2"}}, ["a.b"]),
    "an item of a list": ({"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 1}, {"b": 3}]}, ["a[1].b"]),
    "an item more": ({"a": ["1"]}, {"a": ["1", "2"]}, ["a"]),
    "a field that is not there": ({"a": {"b": "1"}}, {}, ["a"]),
    "nothing is there": ({"a": "1"}, None, [""]),
    "what is empty is not stored": ({"a": {}, "b": [], "c": ""}, {}, []),
    "another order": ({"a": ["1", "2"]}, {"a": ["2", "1"]}, ["a[0]", "a[1]"]),
}  # fmt: skip


@pytest.mark.parametrize(("wanted", "found", "paths"), CASES.values(), ids=CASES.keys())
def test_paths_of_differences(wanted: object, found: object, paths: list[str]) -> None:
    assert list(differences(wanted, found)) == paths


ADDED: dict[str, tuple[object, object, list[str]]] = {
    "the same": ({"a": [{"b": "1"}]}, {"a": [{"b": "1"}]}, []),
    "another field": ({"a": {"b": "1"}}, {"a": {"b": "2", "c": 1}, "d": [3]}, ["a.c", "d"]),
    "what is filled in": ({"a": {}}, {"a": {"scope": "*"}, "scope": "*", "c": {}}, []),
    "another value than that": ({"a": {}}, {"a": {"scope": "x"}}, ["a.scope"]),
    "in an item of a list": ({"a": [{}, {}]}, {"a": [{}, {"c": 1}]}, ["a[1].c"]),
    "nothing is there": ({"a": "1"}, None, []),
}


@pytest.mark.parametrize(("wanted", "found", "paths"), ADDED.values(), ids=ADDED.keys())
def test_paths_of_what_was_added(wanted: object, found: object, paths: list[str]) -> None:
    assert list(additions(wanted, found, {"scope": "*"})) == paths
