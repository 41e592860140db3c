from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.builders import Object, a_container, a_container_status, a_pod, a_sidecar
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.objects.model import Container, ContainerStatus, Pod, PodResources


def cpu(text: str) -> dict[str, Quantity]:
    return {"cpu": Quantity.parse(text)}


FULL: Object = {
    "metadata": {
        "namespace": "team-a",
        "name": "web-1",
        "generateName": "web-",
        "uid": "u1",
        "resourceVersion": "42",
        "creationTimestamp": "2026-06-01T00:00:00Z",
        "deletionTimestamp": "2026-06-01T02:00:00+01:00",
        "deletionGracePeriodSeconds": 30,
        "labels": {"app": "web"},
        "annotations": {"note": "x"},
    },
    "spec": {
        "nodeName": "node-1",
        "priority": -5,
        "priorityClassName": "low",
        "activeDeadlineSeconds": 0,
        "containers": [a_container(requests={"cpu": "1"}, limits={"cpu": "2"})],
        "initContainers": [a_container("init", requests={"cpu": "3"}), a_sidecar()],
        "overhead": {"cpu": "4"},
        "resources": {"requests": {"cpu": "5"}, "limits": {"cpu": "6"}},
        "schedulingGates": [{"name": "a.io/gate"}, {"name": "b.io/gate"}],
    },
    "status": {
        "phase": "Running",
        "qosClass": "Burstable",
        "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
        "containerStatuses": [
            a_container_status(requests={"cpu": "7"}, limits={"cpu": "8"}, allocated={"cpu": "9"})
        ],
    },
}


def test_every_field_is_read() -> None:
    assert Pod.from_object(FULL) == Pod(
        namespace="team-a",
        name="web-1",
        generate_name="web-",
        uid="u1",
        resource_version="42",
        created=datetime(2026, 6, 1, tzinfo=UTC),
        labels={"app": "web"},
        annotations={"note": "x"},
        deletion_timestamp=datetime(2026, 6, 1, 1, tzinfo=UTC),
        deletion_grace_period_seconds=30,
        node_name="node-1",
        priority=-5,
        priority_class_name="low",
        active_deadline_seconds=0,
        containers=(Container("main", cpu("1"), cpu("2")),),
        init_containers=(
            Container("init", cpu("3"), {}),
            Container("sidecar", {}, {}, restartable=True),
        ),
        overhead=cpu("4"),
        resources=PodResources(cpu("5"), cpu("6")),
        scheduling_gates=("a.io/gate", "b.io/gate"),
        cross_namespace_affinity=False,
        phase="Running",
        qos_class="Burstable",
        resize_infeasible=True,
        statuses={"main": ContainerStatus("main", cpu("7"), cpu("8"), cpu("9"))},
    )


def nulled(value: object) -> object:
    """The same object with null in place of every member of its members."""
    return dict.fromkeys(value) if isinstance(value, dict) else None


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"metadata": None, "spec": None, "status": None},
        {name: nulled(part) for name, part in FULL.items()},
    ],
    ids=["no parts", "null parts", "null fields"],
)
def test_absent_and_null_fields_are_empty(raw: Object) -> None:
    pod = Pod.from_object(raw)

    assert pod == Pod(
        namespace="",
        name="",
        generate_name="",
        uid="",
        resource_version="",
        created=None,
        labels={},
        annotations={},
        deletion_timestamp=None,
        deletion_grace_period_seconds=None,
        node_name="",
        priority=None,
        priority_class_name="",
        active_deadline_seconds=None,
        containers=(),
        init_containers=(),
        overhead={},
        resources=None,
        scheduling_gates=(),
        cross_namespace_affinity=False,
        phase="",
        qos_class="",
        resize_infeasible=False,
        statuses={},
    )


def test_what_is_derived() -> None:
    pod = Pod.from_object(FULL)
    bare = Pod.from_object(a_pod(namespace="b", name="x"))

    assert (pod.key, bare.key) == ("team-a/web-1", "b/x")
    assert (pod.is_assigned, bare.is_assigned) == (True, False)
    assert (pod.is_gated, bare.is_gated) == (True, False)
    assert (pod.is_deleting, bare.is_deleting) == (True, False)


def test_a_mirror_pod_is_known_by_its_annotation() -> None:
    annotations = {"kubernetes.io/config.mirror": ""}

    assert Pod.from_object(a_pod(metadata={"annotations": annotations})).is_mirror
    assert not Pod.from_object(a_pod()).is_mirror


def term(**fields: object) -> Object:
    return {"topologyKey": "zone", **fields}


def affinity(kind: str, *terms: Object) -> Object:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def preferred(kind: str, *terms: Object) -> Object:
    weighted = [{"weight": 1, "podAffinityTerm": each} for each in terms]
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}


AFFINITIES: dict[str, tuple[object, bool]] = {
    "none": (None, False),
    "empty": ({}, False),
    "node affinity only": ({"nodeAffinity": {"x": 1}}, False),
    "own namespace by default": (affinity("podAffinity", term()), False),
    "an empty list of namespaces": (affinity("podAffinity", term(namespaces=[])), False),
    "a namespace": (affinity("podAffinity", term(namespaces=["team-a"])), True),
    "in the second term": (affinity("podAffinity", term(), term(namespaces=["b"])), True),
    "an empty selector": (affinity("podAntiAffinity", term(namespaceSelector={})), True),
    "a null selector": (affinity("podAntiAffinity", term(namespaceSelector=None)), False),
    "preferred": (preferred("podAffinity", term(namespaces=["b"])), True),
    "preferred away": (preferred("podAntiAffinity", term(namespaceSelector={})), True),
    "preferred in its own namespace": (preferred("podAntiAffinity", term()), False),
}


@pytest.mark.parametrize(("value", "expected"), AFFINITIES.values(), ids=AFFINITIES.keys())
def test_affinity_reaches_into_other_namespaces(value: object, expected: bool) -> None:
    assert Pod.from_object(a_pod(affinity=value)).cross_namespace_affinity is expected


RESIZES: dict[str, tuple[list[Object], bool]] = {
    "no condition": ([], False),
    "another condition": ([{"type": "Ready", "reason": "Infeasible"}], False),
    "infeasible": ([{"type": "PodResizePending", "reason": "Infeasible"}], True),
    "deferred": ([{"type": "PodResizePending", "reason": "Deferred"}], False),
    "the first of two stands": (
        [
            {"type": "PodResizePending", "reason": "Deferred"},
            {"type": "PodResizePending", "reason": "Infeasible"},
        ],
        False,
    ),
}


@pytest.mark.parametrize(("conditions", "expected"), RESIZES.values(), ids=RESIZES.keys())
def test_a_resize_is_infeasible_by_its_reason(conditions: list[Object], expected: bool) -> None:
    pod = Pod.from_object(a_pod(status={"conditions": conditions}))

    assert pod.resize_infeasible is expected


def test_statuses_without_resources_are_left_out() -> None:
    pod = Pod.from_object(
        a_pod(
            status={
                "containerStatuses": [
                    a_container_status("a", resources=None, allocated={"cpu": "1"}),
                    a_container_status("b"),
                ]
            }
        )
    )

    assert pod.statuses == {"b": ContainerStatus("b", {}, {}, {})}


def test_a_pod_does_not_change_with_the_object_it_was_read_from() -> None:
    labels = {"app": "web"}
    amounts: Object = {"cpu": "1"}
    raw = a_pod(a_container(resources={"requests": amounts}), metadata={"labels": labels})
    pod = Pod.from_object(raw)

    labels["app"] = "other"
    amounts["cpu"] = "2"

    assert pod.labels == {"app": "web"}
    assert pod.containers[0].requests == cpu("1")
