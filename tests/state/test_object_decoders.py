"""The lean decoders make of every object what the whole object makes of it, errors included."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.quota.oracle import VECTORS
from tests.quota.pod_strategies import damaged, json_values, places, pods
from webhook.controllers.elastic.assigned_pods import read_assigned_pod
from webhook.jsonfields.encoding import InvalidJsonError, NumberText, decode_json, encode_json
from webhook.kube.api import Decode, Object
from webhook.kube.codec import decode_object
from webhook.kube.errors import BadRequestError
from webhook.quota.nodes.kubelet_admission import read_kept_pod, read_kubelet_pod
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.state.namespace_labels import is_deferred
from webhook.state.object_decoders import (
    decode_assigned_pod,
    decode_kubelet_pod,
    decode_live_pod,
    decode_namespace,
    decode_pod,
    decode_quota,
)

Read = Callable[[Object], object]

TERM = {"namespaces": ["team-b"], "namespaceSelector": {}, "topologyKey": "zone"}
AFFINITY = {
    "requiredDuringSchedulingIgnoredDuringExecution": [TERM],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": TERM}],
}
RESOURCES = {"requests": {"cpu": "500m", "memory": 1024}, "limits": {"cpu": NumberText("0.5")}}
STATUS: dict[str, object] = {
    "phase": "Running",
    "qosClass": "Burstable",
    "podIP": "10.0.0.1",
    "resources": RESOURCES,
    "allocatedResources": {"cpu": "1"},
    "containerStatuses": [
        {"name": "c", "resources": RESOURCES, "allocatedResources": {"cpu": "1"}}
    ],
    "initContainerStatuses": [{"name": "i", "resources": RESOURCES}],
    "conditions": [
        {"type": "Ready", "status": "True"},
        {"type": "PodResizePending", "reason": "Infeasible", "observedGeneration": 2},
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
    ],
    "nominatedNodeName": "node-2",
}
POD: dict[str, object] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "namespace": "team-a",
        "name": "web-1",
        "generateName": "web-",
        "uid": "uid-1",
        "resourceVersion": "41",
        "creationTimestamp": "2026-06-01T12:00:00Z",
        "generation": 3,
        "labels": {"app": "web"},
        "annotations": {"kubernetes.io/config.mirror": "x"},
        "deletionTimestamp": "2026-06-01T12:30:00Z",
        "deletionGracePeriodSeconds": 30,
        "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
    },
    "spec": {
        "nodeName": "node-1",
        "priority": 7,
        "priorityClassName": "high",
        "schedulingGroup": {"podGroupName": "train", "other": "x"},
        "activeDeadlineSeconds": 60,
        "containers": [{"name": "c", "image": "i", "resources": RESOURCES}],
        "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": RESOURCES}],
        "overhead": {"memory": "8Mi"},
        "resources": RESOURCES,
        "schedulingGates": [{"name": "example.com/wait"}],
        "affinity": {"podAffinity": AFFINITY, "podAntiAffinity": AFFINITY, "nodeAffinity": {}},
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
    "status": STATUS,
}
QUOTA: dict[str, object] = {
    "metadata": {
        "namespace": "team-a",
        "name": "compute",
        "uid": "uid-2",
        "resourceVersion": "42",
        "annotations": {"a": "b"},
    },
    "spec": {
        "hard": {"requests.cpu": "2", "pods": 4},
        "scopes": ["NotTerminating"],
        "scopeSelector": {
            "matchExpressions": [
                {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
            ]
        },
    },
    "status": {"hard": {"requests.cpu": "2"}, "used": {"requests.cpu": NumberText("1.5")}},
}
NAMESPACE: dict[str, object] = {
    "metadata": {"name": "team-a", "labels": {"deferredquota.io/mode": "deferred"}},
    "spec": {"finalizers": ["kubernetes"]},
}
WAITING: dict[str, object] = {
    **POD,
    "spec": {
        "containers": [{"name": "c", "resources": RESOURCES}],
        "priority": 7,
        "schedulingGates": [{"name": "deferredquota.io/quota"}],
    },
    "status": {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        "nominatedNodeName": "node-2",
    },
}
_DENIED = (
    'running Bind plugin "DefaultBinder": admission webhook "bind.deferredquota.io" denied the'
    " request: elastic pool p is used up"
)
REFUSED: dict[str, object] = {
    **WAITING,
    "status": {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulerError",
                "message": _DENIED,
            }
        ]
    },
}
TERM_OF_NODES = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
FOR_A_NODE: dict[str, object] = {
    "metadata": {"uid": "uid-1"},
    "spec": {
        "priority": 2 * 10**9,
        "containers": [
            {"name": "c", "resources": RESOURCES, "ports": [{"hostPort": 80, "protocol": "UDP"}]}
        ],
        "initContainers": [
            {"name": "i", "restartPolicy": "Always", "resources": RESOURCES, "ports": []}
        ],
        "overhead": {"memory": "8Mi"},
        "resources": RESOURCES,
        "nodeSelector": {"disk": "ssd"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [TERM_OF_NODES]
                }
            }
        },
        "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}],
        "os": {"name": "linux"},
        "hostNetwork": True,
    },
    "status": {"phase": "Pending"},
}
ON_A_NODE: dict[str, object] = {"metadata": {"uid": "u"}, "spec": POD["spec"], "status": STATUS}
ASSIGNED: dict[str, object] = {
    "metadata": {
        "namespace": "team-a",
        "name": "web-1",
        "uid": "uid-1",
        "creationTimestamp": "2026-06-01T12:00:00Z",
        "labels": {"nos.nebuly.com/capacity": "in-quota", "elastic.deferredquota.io/group": "g"},
        "ownerReferences": [{"kind": "DaemonSet", "apiVersion": "apps/v1", "controller": True}],
    },
    "spec": {
        "nodeName": "node-1",
        "terminationGracePeriodSeconds": 30,
        "schedulingGroup": {"podGroupName": "train"},
        "containers": [{"name": "c", "image": "i", "resources": RESOURCES}],
    },
    "status": {
        "phase": "Running",
        "conditions": [
            {"type": "PodScheduled", "lastTransitionTime": "2026-06-01T12:00:05Z"},
            {"type": "Ready", "status": "True"},
        ],
    },
}
KINDS: dict[str, tuple[Decode, Read, dict[str, object]]] = {
    "pod": (decode_pod, Pod.from_object, POD),
    "waiting pod": (decode_pod, Pod.from_object, WAITING),
    "refused pod": (decode_pod, Pod.from_object, REFUSED),
    "pod for a node": (decode_kubelet_pod, read_kubelet_pod, FOR_A_NODE),
    "pod that is kept": (decode_kubelet_pod, read_kept_pod, FOR_A_NODE),
    "pod on a node": (decode_kubelet_pod, read_kubelet_pod, ON_A_NODE),
    "pod with a node": (decode_assigned_pod, read_assigned_pod, POD),
    "pod of a DaemonSet": (decode_assigned_pod, read_assigned_pod, ASSIGNED),
    "quota": (decode_quota, ResourceQuota.from_object, QUOTA),
    "namespace": (decode_namespace, is_deferred, NAMESPACE),
}
WRONG: tuple[object, ...] = (
    None,
    True,
    5,
    10**30,
    "",
    "text",
    NumberText("0.5"),
    [],
    [None],
    [5],
    {},
    {"a": 5},
)


def outcome(decode: Decode, read: Read, data: bytes) -> object:
    """What reading gives, or what it raises, as text."""
    try:
        return read(decode(data))
    except ValueError as err:
        return f"{type(err).__name__}: {err}"
    except BadRequestError as err:
        return f"BadRequest: {err}"


def check(decode: Decode, read: Read, data: bytes) -> None:
    assert outcome(decode, read, data) == outcome(decode_object, read, data)


def objects_in(value: object) -> Iterator[Mapping[str, object]]:
    """Every JSON object inside a value."""
    if isinstance(value, Mapping):
        yield value
        for inner in value.values():
            yield from objects_in(inner)
    for inner in value if isinstance(value, list) else ():
        yield from objects_in(inner)


def recorded(*, quotas: bool) -> list[bytes]:
    """Everything in the vectors that looks like a quota, or like a pod, as JSON."""
    lines = [line for file in VECTORS.glob("*.jsonl") for line in file.read_bytes().splitlines()]
    lines += [file.read_bytes() for file in (VECTORS / "admission-reviews").glob("*.json")]
    part = "hard" if quotas else "containers"
    found = []
    for one in (one for line in lines for one in objects_in(decode_json(line))):
        spec = one.get("spec")
        if isinstance(spec, Mapping) and part in spec:
            found.append(encode_json(one))
    return found


def test_every_recorded_pod_is_read_as_from_the_whole_object() -> None:
    pods_seen = recorded(quotas=False)
    assert len(pods_seen) > 700
    for data in pods_seen:
        check(decode_pod, Pod.from_object, data)
        check(decode_kubelet_pod, read_kubelet_pod, data)
        check(decode_kubelet_pod, read_kept_pod, data)
        check(decode_assigned_pod, read_assigned_pod, data)
        assert outcome(decode_live_pod, Pod.from_object, data) == outcome(
            decode_object, _judged, data
        )


def _judged(raw: Object) -> Pod:
    """The pod without the labels and annotations that nothing is decided by."""
    pod = Pod.from_object(raw)
    labels, annotations = (
        {key: value for key, value in of_pod.items() if "deferredquota.io/" in key or key in OURS}
        for of_pod in (pod.labels, pod.annotations)
    )
    return replace(pod, labels=labels, annotations=annotations)


OURS = ("nos.nebuly.com/capacity", "kubernetes.io/config.mirror")


@pytest.mark.parametrize("others", [{}, {"app": "web"}, {"a": 'deferredquota.io/"\\'}])
@pytest.mark.parametrize(
    "ours", [{}, {"deferredquota.io/x": "y"}, {OURS[0]: "in-quota"}, {OURS[1]: ""}]
)
def test_of_a_live_pod_the_names_that_are_ours_are_read(
    ours: dict[str, object], others: dict[str, object]
) -> None:
    for name in ("labels", "annotations"):
        pod = {**POD, "metadata": {"name": "web-1", name: {**others, **ours}}}
        assert decode_live_pod(encode_json(pod))["metadata"] == {"name": "web-1", name: ours}
    spelt = b'{"metadata":{"labels":{"deferredquota\\u002eio/x":"y"}}}'
    assert Pod.from_object(decode_live_pod(spelt)).labels == {"deferredquota.io/x": "y"}


@pytest.mark.parametrize("value", WRONG[1:-1])
def test_what_stands_for_labels_of_a_live_pod_is_reported(value: object) -> None:
    for name in ("labels", "annotations"):
        check(decode_live_pod, Pod.from_object, encode_json({"metadata": {name: value}}))


def test_every_recorded_quota_is_read_as_from_the_whole_object() -> None:
    quotas_seen = recorded(quotas=True)
    assert quotas_seen
    for data in quotas_seen:
        check(decode_quota, ResourceQuota.from_object, data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_value_at_any_place_is_reported_as_for_the_whole_object(kind: str) -> None:
    decode, read, whole = KINDS[kind]
    for path in places(whole):
        for value in WRONG:
            check(decode, read, encode_json(damaged(whole, path, value)))


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_that_is_read_is_decoded(kind: str) -> None:
    decode, read, written = KINDS[kind]
    whole = decode_object(encode_json(written))  # in which no two places share an object
    lean = decode(encode_json(whole))
    assert read(lean) == read(whole)
    for path in places(whole):
        missing = _without(whole, path)
        if path and read(missing) != read(whole):
            assert read(_without(lean, path)) == read(missing), path


def test_what_quota_does_not_read_is_not_decoded() -> None:
    lean = decode_pod(encode_json(POD))
    assert set(lean) == {"metadata", "spec", "status"}
    texts = repr(lean)
    for skipped in ("managedFields", "volumes", "podIP", "topologyKey", "image", "nodeAffinity"):
        assert skipped not in texts
    assert "image" not in repr(decode_assigned_pod(encode_json(ASSIGNED)))
    assert decode_namespace(encode_json(NAMESPACE)) == {"metadata": NAMESPACE["metadata"]}


def test_numbers_keep_their_text() -> None:
    data = b'{"spec":{"hard":{"requests.cpu":0.1,"pods":1E3,"count/x":123456789012345678901}}}'
    quota = ResourceQuota.from_object(decode_quota(data))
    assert {name: amount.nano for name, amount in quota.hard.items()} == {
        "requests.cpu": 10**8,
        "pods": 10**12,
        "count/x": 123456789012345678901 * 10**9,
    }


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'"x"', b'{"spec":{}', b'"\xff"', b"[" * 100_000],
    ids=["nothing", "cut", "a list", "a text", "not closed", "not UTF-8", "too deep"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_object_is_refused(kind: str, data: bytes) -> None:
    with pytest.raises(BadRequestError):
        KINDS[kind][0](data)


def test_of_repeated_keys_the_last_one_stands() -> None:
    data = b'{"spec":"x","spec":{"nodeName":"a","nodeName":"b"}}'
    assert Pod.from_object(decode_pod(data)).node_name == "b"
    check(decode_pod, Pod.from_object, b'{"spec":{"nodeName":"a"},"spec":{}}')


@given(pod=pods(), extra=json_values(), data=st.data())
def test_unknown_fields_change_nothing(
    pod: dict[str, object], extra: object, data: st.DataObject
) -> None:
    inner = [path for path in places(pod) if isinstance(_at(pod, path), dict)]
    path = data.draw(st.sampled_from(inner))
    changed = deepcopy(pod)
    place = _at(changed, path)
    assert isinstance(place, dict)
    place[data.draw(st.sampled_from(["unknown", "", "Name", "requestz"]))] = extra
    check(decode_pod, Pod.from_object, _json(changed))


@given(pod=pods(), value=json_values(), data=st.data())
def test_whatever_stands_anywhere_is_read_as_from_the_whole_object(
    pod: dict[str, object], value: object, data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(list(places(pod))))
    text = _json(damaged(pod, path, value))
    check(decode_pod, Pod.from_object, text)
    check(decode_assigned_pod, read_assigned_pod, text)
    if path[:1] != ("metadata",):
        check(decode_kubelet_pod, read_kubelet_pod, text)
        check(decode_kubelet_pod, read_kept_pod, text)


def _json(value: object) -> bytes:
    try:
        return encode_json(value)
    except InvalidJsonError:
        assume(False)  # it has a key that JSON cannot have
        raise


def _at(whole: object, path: tuple[str | int, ...]) -> object:
    for step in path:
        whole = whole[step]  # type: ignore[index]
    return whole


def _without(whole: Mapping[str, object], path: tuple[str | int, ...]) -> dict[str, object]:
    """The object without what stands at a place, where it has it."""
    copy = deepcopy(dict(whole))
    try:
        inner = _at(copy, path[:-1])
        if path:
            del inner[path[-1]]  # type: ignore[attr-defined]
    except (KeyError, IndexError):
        pass
    return copy
