from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import (
    Object,
    a_container,
    a_container_status,
    a_pod,
    a_quota,
    an_expression,
)
from tests.quota.pod_strategies import Path, damaged, json_values, places, pods
from webhook.jsonfields.encoding import NumberText
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.amounts.quantity import InvalidQuantityError
from webhook.quota.charging.pod_usage import pod_usage
from webhook.quota.objects.defaults import default_pod, default_quota
from webhook.quota.objects.model import Pod, ResourceQuota, ScopeExpression


def a_term() -> Object:
    return {"namespaces": ["a"], "namespaceSelector": {}}


POD = a_pod(
    a_container("c0", requests={"cpu": "1"}, limits={"nvidia.com/gpu": "1"}),
    a_container("c1", requests={"cpu": "1"}),
    init=[a_container("i0", requests={"cpu": "1"}, restartPolicy="Always")],
    node="node-1",
    metadata={
        "generateName": "web-",
        "resourceVersion": "1",
        "creationTimestamp": "2026-06-01T00:00:00Z",
        "deletionTimestamp": "2026-06-01T00:00:00Z",
        "deletionGracePeriodSeconds": 30,
        "labels": {"app": "web", "tier": "front"},
        "annotations": {"a.io/b": "c"},
    },
    priority=1,
    priorityClassName="high",
    activeDeadlineSeconds=5,
    overhead={"cpu": "1"},
    resources={"requests": {"cpu": "1"}, "limits": {"cpu": "1"}},
    schedulingGates=[{"name": "a.io/gate"}],
    affinity={
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [a_term()]},
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": a_term()}]
        },
    },
    status={
        "qosClass": "Burstable",
        "conditions": [{"type": "PodResizePending", "reason": "Deferred"}],
        "containerStatuses": [
            a_container_status("c0", requests={"cpu": "1"}, allocated={"cpu": "1"})
        ],
        "initContainerStatuses": [a_container_status("i0", limits={"cpu": "1"})],
    },
)
QUOTA = a_quota(
    hard={"requests.nvidia.com/gpu": "1"},
    used={"requests.nvidia.com/gpu": "1"},
    scopes=["Terminating"],
    expressions=[an_expression("PriorityClass", "In", "high")],
    metadata={"annotations": {"a.io/b": "c"}, "resourceVersion": "1"},
)

UNREAD = {("apiVersion",), ("kind",)}
"""Places of the objects above that quota does not look at; so are images."""

MAPS = {
    "annotations", "labels", "overhead", "requests", "limits", "allocatedResources", "hard", "used"
}  # fmt: skip
"""Members that map names, whose keys may hold dots and slashes."""


def yaml_path(place: Path) -> str:
    """The path, with brackets around the keys of maps in which a dot would mislead."""
    text = ""
    for before, step in zip(("", *place), place, strict=False):
        is_hard_key = before in MAPS and ("." in str(step) or "/" in str(step))
        text += f"[{step}]" if isinstance(step, int) or is_hard_key else f".{step}"
    return text.removeprefix(".")


def read_places(raw: Object) -> list[Path]:
    """Every place that is read, the inside of selectors and images left out."""
    return [
        place
        for place in places(raw)
        if place not in UNREAD and "image" not in place and "namespaceSelector" not in place[:-1]
    ]


POD_PLACES = read_places(POD)
QUOTA_PLACES = read_places(QUOTA)


def value_at(raw: object, place: Path) -> object:
    for step in place:
        raw = raw[step]  # type: ignore[index]
    return raw


def wrong_values(right: object) -> list[object]:
    """Values of every JSON type but the right one; a text may be meant as an amount."""
    values: list[object] = [True, {"x": 1}, [1], "x", 7, NumberText("1.5")]
    if isinstance(right, str):
        return [True, {"x": 1}, [1]]
    return [each for each in values if type(each) is not type(right)]


@pytest.mark.parametrize("place", POD_PLACES, ids=yaml_path)
def test_a_pod_names_the_field_of_the_wrong_type(place: Path) -> None:
    for wrong in wrong_values(value_at(POD, place)):
        with pytest.raises(InvalidFieldError) as caught:
            Pod.from_object(cast("Object", damaged(POD, place, wrong)))
        assert caught.value.field == yaml_path(place)


@pytest.mark.parametrize("place", QUOTA_PLACES, ids=yaml_path)
def test_a_quota_names_the_field_of_the_wrong_type(place: Path) -> None:
    for wrong in wrong_values(value_at(QUOTA, place)):
        with pytest.raises(InvalidFieldError) as caught:
            ResourceQuota.from_object(cast("Object", damaged(QUOTA, place, wrong)))
        assert caught.value.field == yaml_path(place)


def test_the_path_of_the_object_stands_before_that_of_the_field() -> None:
    cases: dict[str, Object] = {
        "object.spec.containers[1].resources.requests.cpu": a_pod(
            a_container(), a_container(requests={"cpu": "1x"})
        ),
        "object.spec.containers[0].resources.requests[nvidia.com/gpu]": a_pod(
            requests={"nvidia.com/gpu": []}
        ),
        "object.metadata.labels.app": a_pod(metadata={"labels": {"app": 1}}),
        "object.metadata": {"metadata": "x"},
    }
    for path, raw in cases.items():
        with pytest.raises(InvalidFieldError) as caught:
            Pod.from_object(raw, field="object")
        assert caught.value.field == path

    with pytest.raises(InvalidQuantityError) as wrong:
        ResourceQuota.from_object(a_quota(hard={"cpu": "1x"}), field="old")
    assert wrong.value.field == "old.spec.hard.cpu"
    with pytest.raises(InvalidFieldError) as scope:
        ScopeExpression.from_object({"values": ["a", 1]}, field="matchScopes[2]")
    assert scope.value.field == "matchScopes[2].values[1]"


def test_the_message_says_what_is_wrong() -> None:
    with pytest.raises(InvalidFieldError, match=r"^spec\.nodeName: must be a string"):
        Pod.from_object(a_pod(nodeName=5))
    with pytest.raises(InvalidQuantityError, match=r"^spec\.overhead\.cpu: '2x'"):
        Pod.from_object(a_pod(overhead={"cpu": "2x"}))


TIMES = [
    "",
    "now",
    "2026-06-01",
    "2026-06-01T00:00:00",
    "2026-13-01T00:00:00Z",
    "0000-01-01T00:00:00Z",
]


@pytest.mark.parametrize("time", TIMES)
def test_a_time_that_is_none_is_refused(time: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        Pod.from_object(a_pod(metadata={"deletionTimestamp": time}))
    assert caught.value.field == "metadata.deletionTimestamp"


def refused_at(read: Callable[[], object]) -> str | None:
    """The path that reading refuses; None if it does not refuse."""
    try:
        read()
    except InvalidFieldError as err:
        return err.field
    return None


@given(st.sampled_from(list(places(POD))), json_values())
def test_a_damaged_pod_is_read_or_refused_at_the_damage(place: Path, value: object) -> None:
    pod = cast("Object", damaged(POD, place, value))

    where = refused_at(lambda: pod_usage(pod, "2026-06-01T00:00:00Z"))

    assert where is None or where.startswith(yaml_path(place))


@given(st.sampled_from(list(places(QUOTA))), json_values())
def test_a_damaged_quota_is_read_or_refused_at_the_damage(place: Path, value: object) -> None:
    quota = cast("Object", damaged(QUOTA, place, value))

    where = refused_at(lambda: ResourceQuota.from_object(default_quota(quota)).spec_hash)

    assert where is None or where.startswith(yaml_path(place))


@given(pods(), st.data(), json_values())
def test_a_damaged_manifest_is_defaulted_or_refused(
    pod: Object, data: st.DataObject, value: object
) -> None:
    place = data.draw(st.sampled_from(list(places(pod))))
    worse = cast("Object", damaged(pod, place, value))

    as_read = refused_at(lambda: pod_usage(worse))
    as_defaulted = refused_at(lambda: pod_usage(default_pod(worse)))

    assert as_defaulted == as_read


@given(json_values())
def test_what_is_not_an_object_is_no_pod(value: object) -> None:
    where = refused_at(lambda: pod_usage(cast("Object", value)))

    assert (where is None) <= isinstance(value, dict)
