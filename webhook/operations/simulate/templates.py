"""Pods, nodes and quotas of scenarios as the objects of the API that they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from webhook.config.field_readers import InvalidSettingError
from webhook.jsonfields.fields import InvalidFieldError, json_type_of, mapping
from webhook.operations.simulate.fields import amounts
from webhook.quota.amounts.resources import to_text
from webhook.quota.nodes.fitting import check_readable
from webhook.quota.nodes.model import NodeView, PlainObject
from webhook.quota.objects.defaults import default_pod
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import label_value_error, object_name_errors
from webhook.quota.objects.quota_validation import quota_errors
from webhook.quota.simulation.values import (
    JOB_BACK_OFF,
    REPLICA_SET_BACK_OFF,
    BackOff,
    PodTemplate,
)

BACK_OFFS: Mapping[str, BackOff | None] = {
    "Job": JOB_BACK_OFF,
    "ReplicaSet": REPLICA_SET_BACK_OFF,
    "None": None,
}
"""Controller of a pod → its back-off; a pod without controller is not created again."""

_SAMPLE: Final = "sample"
_SAMPLE_NODE: Final[PlainObject] = {
    "metadata": {"name": _SAMPLE, "labels": {"kubernetes.io/hostname": _SAMPLE}},
    "spec": {"taints": [{"key": "sample", "effect": "NoSchedule"}]},
    "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "110"}},
}
_SET_BY_OTHERS = ("nodeName", "schedulingGates", "priority")


def object_name(value: object, field: str) -> str:
    """Read a name that an object can have."""
    if not isinstance(value, str):
        # YAML 1.1 reads n, y, no, yes, off and on as booleans
        detail = f"must be a string, not {json_type_of(value)}: put the name in quotes"
        raise InvalidSettingError(field, detail)
    for detail in object_name_errors(value):
        raise InvalidSettingError(field, detail)
    return value


def controller_kind(value: object, field: str) -> str:
    """Read what creates the pods."""
    if not isinstance(value, str) or value not in BACK_OFFS:
        known = ", ".join(BACK_OFFS)
        raise InvalidSettingError(field, f"must be one of {known}, not {str(value)[:40]!r}")
    return value


def pod_template(
    namespace: str,
    spec: Mapping[str, object],
    controller: str,
    *,
    classes: Mapping[str, int],
    field: str,
) -> PodTemplate:
    """Return what pods of a spec have in common.

    Args:
        namespace: Of the pods.
        spec: As in a manifest.
        controller: What creates them, a key of `BACK_OFFS`.
        classes: Priority class → priority.
        field: Path of the spec, for messages.

    Raises:
        InvalidSettingError: No such pod can be simulated; its path is below `field`.
    """
    for name in _SET_BY_OTHERS:
        if spec.get(name) is not None:
            raise InvalidSettingError(f"{field}.{name}", "is not set in a scenario")
    try:
        full = _with_priority(spec, classes, field)
        raw = default_pod({"metadata": {"name": "pod", "namespace": namespace}, "spec": full})
        pod = Pod.from_object(raw)
        _check_scheduling(raw)
    except InvalidFieldError as err:
        path = err.field.removeprefix(f"Pod {namespace}/pod.").removeprefix("spec")
        raise InvalidSettingError(f"{field}{path}", err.detail) from err
    if not pod.containers:
        raise InvalidSettingError(f"{field}.containers", "must have at least one container")
    _check_amounts(spec, field)
    return PodTemplate(raw, pod, BACK_OFFS[controller])


def _with_priority(
    spec: Mapping[str, object], classes: Mapping[str, int], field: str
) -> dict[str, object]:
    """Return a spec with the priority of its class, as the API server fills it in."""
    name = spec.get("priorityClassName")
    if name is None:
        return dict(spec)
    if not isinstance(name, str) or name not in classes:
        raise InvalidSettingError(
            f"{field}.priorityClassName", f"{str(name)[:64]!r} is not among priorityClasses"
        )
    return {**spec, "priority": classes[name]}


def _check_scheduling(raw: Mapping[str, object]) -> None:
    """Read all that a scheduler looks at, of such a pod that waits and of one that runs."""
    running = {**raw, "spec": {**mapping(raw["spec"], "spec"), "nodeName": _SAMPLE}}
    check_readable(raw, NodeView((_SAMPLE_NODE,), (running,), namespaces=()))


def _check_amounts(spec: Mapping[str, object], field: str) -> None:
    if spec.get("overhead") is not None:
        amounts(spec["overhead"], f"{field}.overhead")
    for name in ("containers", "initContainers"):
        containers = spec.get(name) or ()
        assert isinstance(containers, Sequence)  # noqa: S101 - the pod was read
        for index, container in enumerate(containers):
            path = f"{field}.{name}[{index}].resources"
            resources = mapping(mapping(container, "").get("resources"), path)
            for key, value in resources.items():
                if key not in ("requests", "limits", "claims"):
                    raise InvalidSettingError(f"{path}.{key}", "unknown field")
                if key != "claims":
                    amounts(value, f"{path}.{key}")


def resource_quota(
    namespace: str, name: str, spec: Mapping[str, object], *, field: str
) -> ResourceQuota:
    """Return a quota that an API server would accept.

    Raises:
        InvalidSettingError: It would not.
    """
    raw = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"},
        "spec": spec,
    }
    amounts(spec.get("hard"), f"{field}.hard")
    try:
        for error in quota_errors(raw):
            raise InvalidSettingError(f"{field}{error.field.removeprefix('spec')}", error.message)
        return ResourceQuota.from_object(raw)
    except InvalidFieldError as err:
        raise InvalidSettingError(f"{field}{err.field.removeprefix('spec')}", err.detail) from err


def nodes(
    name: str, count: int, fields: Mapping[str, object], *, field: str
) -> tuple[PlainObject, ...]:
    """Return nodes that are alike; of several the names are numbered.

    Args:
        name: Of the node, or what the names begin with.
        count: How many.
        fields: `allocatable`, `labels`, `taints`, `unschedulable`.
        field: Path of the object that has these fields.

    Raises:
        InvalidSettingError: A field has the wrong type.
    """
    allocatable = to_text(amounts(fields.get("allocatable"), f"{field}.allocatable"))
    width = len(str(count - 1))
    names = [name] if count == 1 else [f"{name}-{index:0{width}}" for index in range(count)]
    found = tuple([_node(each, allocatable, fields) for each in names])
    try:
        infos = NodeView(found[:1], ()).infos
    except InvalidFieldError as err:
        path = err.field.removeprefix(f"Node {names[0]}")
        path = path.removeprefix(".metadata").removeprefix(".spec")
        raise InvalidSettingError(f"{field}{path}", err.detail) from err
    for key, value in (item for info in infos for item in info.labels.items()):
        if label_value_error(value):
            raise InvalidSettingError(f"{field}.labels.{key}", str(label_value_error(value)))
    return found


def _node(
    name: str, allocatable: Mapping[str, str], fields: Mapping[str, object]
) -> dict[str, object]:
    labels = fields.get("labels") or {}
    with_name = {"kubernetes.io/hostname": name, **labels} if isinstance(labels, dict) else labels
    spec = {key: fields[key] for key in ("taints", "unschedulable") if key in fields}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": with_name},
        "spec": spec,
        "status": {"allocatable": {"pods": "110", **allocatable}},
    }
