"""Random pods, as API objects, and random JSON to damage them with.

Strategies that pods are drawn from are made once: to make them again for every container of every
pod takes longer than to draw from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import TypeAlias

from hypothesis import strategies as st

from tests.builders import Object, a_pod
from webhook.jsonfields.encoding import NumberText

Path: TypeAlias = tuple[str | int, ...]

NAMES = (
    "cpu",
    "memory",
    "ephemeral-storage",
    "hugepages-2Mi",
    "nvidia.com/gpu",
    "deviceclass.resource.kubernetes.io/fast",
    "example.kubernetes.io/ignored",
)
SUFFIXES = ("", "m", "u", "k", "Ki", "Mi", "e2")


@cache
def amounts() -> st.SearchStrategy[str]:
    """Texts of amounts that are not negative."""
    return st.builds("{}{}".format, st.integers(0, 5000), st.sampled_from(SUFFIXES))


@cache
def resource_maps() -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(NAMES), amounts(), max_size=4)


@cache
def resources() -> st.SearchStrategy[Object]:
    return st.fixed_dictionaries(
        {}, optional={"requests": resource_maps(), "limits": resource_maps()}
    ).map(dict)


@st.composite
def pods(draw: st.DrawFn) -> Object:
    """Pods with containers, init containers, sidecars, overhead, pod-level maps, a resize."""
    containers = [_container(draw, f"c{i}") for i in range(draw(st.integers(1, 4)))]
    init = [_init_container(draw, f"i{i}") for i in range(draw(st.integers(0, 4)))]
    pod_level: Object = draw(_pod_level())
    spec = {"containers": containers, "initContainers": init, **pod_level}
    return {**a_pod(), "spec": spec, "status": _status(draw, containers, init)}


@cache
def json_values(*, of_yaml: bool = True) -> st.SearchStrategy[object]:
    """What a JSON document may hold, or a YAML document: that has keys of other types, too."""
    leaves: st.SearchStrategy[object] = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-(10**30), 10**30),
        st.sampled_from(["", "1", "1Gi", "-1", "1e999999999", "2026-06-01T00:00:00Z", "Always"]),
        st.text(max_size=5),
        st.sampled_from(["0.5", "1E3", "1e400", "-0.0"]).map(NumberText),
    )
    odd_keys = [1, None, True] if of_yaml else []
    keys: st.SearchStrategy[object] = st.text(max_size=5) | st.sampled_from(
        ["requests", "limits", "name", "resources", *odd_keys]
    )
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | _objects(keys, inner),
        max_leaves=6,
    )


def places(value: object, path: Path = ()) -> Iterator[Path]:
    """Every place inside a JSON value, the value itself included."""
    yield path
    members = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else ()
    for step, inner in (*members, *items):
        yield from places(inner, (*path, step))


def damaged(whole: object, path: Path, value: object) -> object:
    """The same JSON value with another one at a place."""
    if not path:
        return value
    copy = deepcopy(whole)
    inner = copy
    for step in path[:-1]:
        inner = inner[step]  # type: ignore[index]
    inner[path[-1]] = value  # type: ignore[index]
    return copy


def _objects(
    keys: st.SearchStrategy[object], values: st.SearchStrategy[object]
) -> st.SearchStrategy[dict[object, object]]:
    return st.lists(st.tuples(keys, values), max_size=3).map(dict)


@cache
def _pod_level() -> st.SearchStrategy[Object]:
    optional = {"overhead": resource_maps(), "resources": resources()}
    return st.fixed_dictionaries({}, optional=optional)


@cache
def _reported() -> st.SearchStrategy[Object | None]:
    return st.none() | resources()


def _container(draw: st.DrawFn, name: str) -> Object:
    return {"name": name, "resources": draw(resources())}


def _init_container(draw: st.DrawFn, name: str) -> Object:
    restart: Object = draw(st.sampled_from([{}, {"restartPolicy": "Always"}]))
    return {**_container(draw, name), **restart}


def _status(draw: st.DrawFn, containers: list[Object], init: list[Object]) -> Object:
    if not draw(st.booleans()):
        return {"phase": "Pending"}
    return {
        "phase": "Running",
        "containerStatuses": [_container_status(draw, each) for each in containers],
        "initContainerStatuses": [_container_status(draw, each) for each in init],
        "conditions": [
            {
                "type": "PodResizePending",
                "reason": draw(st.sampled_from(["Infeasible", "Deferred"])),
            }
        ],
    }


def _container_status(draw: st.DrawFn, container: Object) -> Object:
    return {
        "name": container["name"],
        "resources": draw(_reported()),
        "allocatedResources": draw(resource_maps()),
    }
