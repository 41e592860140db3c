"""API objects as plain dicts, valid by default, so that a test states only what it is about.

A builder returns new dicts at every call; a test may change them as it likes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Object = dict[str, object]
Amounts = Mapping[str, object]


def a_container(
    name: str = "main",
    *,
    requests: Amounts | None = None,
    limits: Amounts | None = None,
    **fields: object,
) -> Object:
    """A container; `fields` are further fields of it, in the API's spelling."""
    container: Object = {"name": name, "image": "registry.example/app:1"}
    resources = _given(requests=requests, limits=limits)
    if resources:
        container["resources"] = resources
    return {**container, **fields}


def a_sidecar(
    name: str = "sidecar", *, requests: Amounts | None = None, limits: Amounts | None = None
) -> Object:
    """An init container that keeps running."""
    return a_container(name, requests=requests, limits=limits, restartPolicy="Always")


def a_container_status(
    name: str = "main",
    *,
    requests: Amounts | None = None,
    limits: Amounts | None = None,
    allocated: Amounts | None = None,
    **fields: object,
) -> Object:
    """A container status with `resources`; pass `resources=None` for one without."""
    status: Object = {"name": name, "resources": _given(requests=requests, limits=limits)}
    if allocated is not None:
        status["allocatedResources"] = dict(allocated)
    return {**status, **fields}


def a_pod(
    *containers: Object,
    name: str = "web-1",
    namespace: str = "team-a",
    uid: str = "pod-uid-1",
    node: str = "",
    requests: Amounts | None = None,
    limits: Amounts | None = None,
    init: Sequence[Object] = (),
    metadata: Mapping[str, object] | None = None,
    status: Mapping[str, object] | None = None,
    **spec: object,
) -> Object:
    """A pod. Without `containers` it has one, `main`, with `requests` and `limits`.

    `spec` are further fields of the spec, in the API's spelling.
    """
    pod_spec: Object = {
        "containers": list(containers) or [a_container(requests=requests, limits=limits)],
        **spec,
    }
    if init:
        pod_spec["initContainers"] = list(init)
    if node:
        pod_spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": uid, **(metadata or {})},
        "spec": pod_spec,
        "status": {"phase": "Pending", **(status or {})},
    }


def a_device_claim(
    *requests: Object, name: str = "c", namespace: str = "team-a", pod_uid: str = ""
) -> Object:
    """A ResourceClaim, without `requests` for one device; of a pod, as schedulers make it."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod_uid, "controller": True}
    of_pod = {
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [owner],
    }
    one: Object = {"name": "d", "exactly": {"deviceClassName": "gpu"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, **(of_pod if pod_uid else {})},
        "spec": {"devices": {"requests": list(requests) or [one]}},
    }


def a_quota(
    name: str = "team-a",
    *,
    namespace: str = "team-a",
    uid: str = "quota-uid-1",
    hard: Amounts | None = None,
    used: Amounts | None = None,
    scopes: Sequence[str] = (),
    expressions: Sequence[Object] = (),
    metadata: Mapping[str, object] | None = None,
) -> Object:
    """A ResourceQuota of 2 cpu unless `hard` is given.

    With `used` it has the status that the platform would have written; without, an empty one.
    """
    ceilings = dict({"requests.cpu": "2"} if hard is None else hard)
    spec: Object = {"hard": ceilings}
    if scopes:
        spec["scopes"] = list(scopes)
    if expressions:
        spec["scopeSelector"] = {"matchExpressions": list(expressions)}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace, "uid": uid, **(metadata or {})},
        "spec": spec,
        "status": {} if used is None else {"hard": dict(ceilings), "used": dict(used)},
    }


def an_expression(scope_name: str, operator: str = "Exists", *values: str) -> Object:
    """An item of a `scopeSelector`."""
    expression: Object = {"scopeName": scope_name, "operator": operator}
    return {**expression, "values": list(values)} if values else expression


def a_job(
    *containers: Object,
    name: str = "train",
    namespace: str = "team-a",
    uid: str = "job-uid-1",
    suspend: bool = True,
    labels: Mapping[str, str] | None = None,
    template_spec: Mapping[str, object] | None = None,
    status: Mapping[str, object] | None = None,
    **spec: object,
) -> Object:
    """A Job, suspended unless said otherwise, whose template has one container, `main`."""
    template: Object = {
        "metadata": {"labels": {"job-name": name, **(labels or {})}},
        "spec": {
            "containers": list(containers) or [a_container(requests={"cpu": "1"})],
            "restartPolicy": "Never",
            **(template_spec or {}),
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "uid": uid},
        "spec": {"suspend": suspend, "template": template, **spec},
        "status": dict(status or {}),
    }


def a_binding(
    pod: str = "web-1",
    node: str = "node-1",
    *,
    namespace: str = "team-a",
    uid: str = "",
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """A Binding as the scheduler (with the pod's uid) or a person (without) sends it."""
    metadata: Object = {"name": pod, "namespace": namespace}
    if uid:
        metadata["uid"] = uid
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"kind": "Node", "name": node},
    }


def _given(**amounts: Amounts | None) -> Object:
    return {key: dict(value) for key, value in amounts.items() if value is not None}


def out_of_bounds() -> dict[str, tuple[list[Object], str]]:
    """Quotas for which nothing is bound in their namespace, and why."""
    many = [a_quota(f"q{number:03}", uid=f"uid-q{number}") for number in range(129)]
    wide = a_quota("wide", hard={f"requests.example.com/g{number}": "1" for number in range(257)})
    return {
        "too many": (many, "the namespace has more than 128 quotas"),
        "too large": (
            [wide],
            "quota wide cannot be read: spec.hard: has more than 256 limits of pods",
        ),
    }
