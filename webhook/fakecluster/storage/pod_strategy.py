"""Rules of the API server for pods beyond storing them.

Source: kubernetes v1.36, pkg/registry/core/pod/strategy.go, pkg/registry/core/pod/storage/
storage.go (BindingREST), pkg/apis/core/validation/validation.go (ValidatePodCreate,
ValidatePodUpdate, ValidatePodResize).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from webhook.fakecluster.storage.stored_object import StoredObject
from webhook.kube.api import Object
from webhook.kube.codec import decode_object, encode, unreadable
from webhook.kube.errors import FieldCause, forbidden_field
from webhook.kube.metadata import Timestamp

Qos = Callable[[Object], str]
"""Names the QoS class of a pod; an empty answer leaves the field out."""


class Gate(msgspec.Struct, frozen=True):
    """One scheduling gate."""

    name: str = ""


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of a pod's spec that the rules read."""

    node_name: str | None = None
    scheduling_gates: tuple[Gate, ...] | None = None
    termination_grace_period_seconds: int | None = None

    @property
    def gates(self) -> tuple[str, ...]:
        """Return the names of the scheduling gates."""
        return tuple(gate.name for gate in self.scheduling_gates or ())


class PodCondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One condition of a pod; fields that are absent stay so."""

    type: str = ""
    observed_generation: int | msgspec.UnsetType = msgspec.UNSET
    status: str = ""
    last_probe_time: Timestamp | None = None
    last_transition_time: Timestamp | None = None
    reason: str | msgspec.UnsetType = msgspec.UNSET
    message: str | msgspec.UnsetType = msgspec.UNSET


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of a pod's status that the rules read."""

    phase: str | None = None
    qos_class: str | None = None
    conditions: tuple[PodCondition, ...] | None = None


_View = TypeVar("_View", PodSpec, PodStatus)
_SPEC: Final = msgspec.json.Decoder(PodSpec)
_STATUS: Final = msgspec.json.Decoder(PodStatus)


def spec_of(pod: StoredObject) -> PodSpec:
    """Read what the rules need of a pod's spec.

    Raises:
        BadRequestError: A field has the wrong type; the message names it.
    """
    return _read(_SPEC, pod, "spec")


def status_of(pod: StoredObject) -> PodStatus:
    """Read what the rules need of a pod's status; errors as `spec_of`."""
    return _read(_STATUS, pod, "status")


def _read(decoder: msgspec.json.Decoder[_View], pod: StoredObject, part: str) -> _View:
    try:
        return decoder.decode(pod.parts[part])
    except msgspec.ValidationError as err:
        raise unreadable(pod.kind, part, err) from err


def selectable_field(stored: StoredObject, field: str) -> str:
    """Return what a field selector compares; empty when the field is absent."""
    match field:
        case "metadata.name":
            return stored.meta.name
        case "metadata.namespace":
            return stored.meta.namespace
        case "spec.nodeName":
            return spec_of(stored).node_name or ""
        case _:
            return status_of(stored).phase or ""


def create_status(pod: StoredObject, qos: Qos, now: datetime) -> StoredObject:
    """Set the first status of a new pod; of what was sent only a QoS class survives.

    Source: kubernetes v1.36, pkg/registry/core/pod/strategy.go PrepareForCreate.
    """
    status: dict[str, object] = {"phase": "Pending"}
    if spec_of(pod).gates:
        status["conditions"] = (_gated_condition(now),)
    qos_class = status_of(pod).qos_class or qos(pod.decode())
    if qos_class:
        status["qosClass"] = qos_class
    return pod.with_parts(status=encode(status))


def _gated_condition(now: datetime) -> PodCondition:
    return PodCondition(
        type="PodScheduled",
        status="False",
        last_transition_time=now,
        reason="SchedulingGated",
        message="Scheduling is blocked due to non-empty scheduling gates",
    )


def create_causes(pod: StoredObject) -> tuple[FieldCause, ...]:
    """Return what a new pod may not say."""
    spec = spec_of(pod)
    if spec.node_name and spec.gates:
        rule = "cannot be set until all schedulingGates have been cleared"
        return (forbidden_field("spec.nodeName", rule),)
    return ()


_MUTABLE: Final = frozenset(
    {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"}
)
_MUTABLE_WHILE_GATED: Final = _MUTABLE | {"nodeSelector", "affinity"}
_IMMUTABLE_RULE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)


def update_causes(old: StoredObject, new: StoredObject) -> tuple[FieldCause, ...]:
    """Return what an update may not change: gates may go, images may change, little else may."""
    before, after = spec_of(old).gates, spec_of(new).gates
    gate_rule = "only deletion is allowed, but found new scheduling gate '{}'"
    causes = [
        forbidden_field(f"spec.schedulingGates[{index}].name", gate_rule.format(gate))
        for index, gate in enumerate(after)
        if gate not in before
    ]
    mutable = _MUTABLE_WHILE_GATED if before else _MUTABLE
    if _fixed_part(old, mutable) != _fixed_part(new, mutable):
        causes.append(forbidden_field("spec", _IMMUTABLE_RULE))
    return tuple(causes)


def _fixed_part(pod: StoredObject, mutable: frozenset[str]) -> dict[str, object]:
    spec = decode_object(pod.parts["spec"])
    fixed = {name: value for name, value in spec.items() if name not in mutable}
    for name in ("containers", "initContainers"):
        fixed[name] = [_without(container, "image") for container in _mappings(spec.get(name))]
    return fixed


def _without(mapping: Mapping[str, object], *names: str) -> dict[str, object]:
    return {name: value for name, value in mapping.items() if name not in names}


def _mappings(value: object) -> list[Mapping[str, object]]:
    entries = value if isinstance(value, list) else []
    return [entry for entry in entries if isinstance(entry, Mapping)]


def resize(old: StoredObject, new: StoredObject) -> tuple[StoredObject, tuple[FieldCause, ...]]:
    """Take only the resources of a pod from `new`; second, what it may not change.

    Source: kubernetes v1.36, pkg/registry/core/pod/strategy.go dropNonResizeUpdates, and
    ValidatePodResize of pkg/apis/core/validation/validation.go.
    """
    spec, asked = decode_object(old.parts["spec"]), decode_object(new.parts["spec"])
    for name in ("containers", "initContainers"):
        ours, theirs = _mappings(spec.get(name)), _mappings(asked.get(name))
        if [entry.get("name") for entry in ours] != [entry.get("name") for entry in theirs]:
            rule = f"{name} may not be added, removed, renamed or reordered on resize"
            return old, (forbidden_field(f"spec.{name}", rule),)
        if list(map(_fixed_on_resize, ours)) != list(map(_fixed_on_resize, theirs)):
            return old, (forbidden_field("spec", "only cpu and memory resources are mutable"),)
        if ours:
            pairs = zip(ours, theirs, strict=True)
            spec[name] = [_with(mine, their, "resources") for mine, their in pairs]
    return old.with_parts(spec=encode(_with(spec, asked, "resources"))), ()


def _fixed_on_resize(container: Mapping[str, object]) -> object:
    """Return what of a container is taken over by a resize and may not change."""
    resources = container.get("resources")
    parts = resources.items() if isinstance(resources, Mapping) else ()
    others = {
        name: _without(amounts, "cpu", "memory")
        for name, amounts in parts
        if isinstance(amounts, Mapping)
    }
    return container.get("resizePolicy") or [], {k: v for k, v in others.items() if v}


def _with(old: Mapping[str, object], new: Mapping[str, object], name: str) -> dict[str, object]:
    """Return `old` with the field `name` as it is in `new`, in its place if it had one."""
    if new.get(name) is None:
        return _without(old, name)
    return {**old, name: new[name]}


def refuse_binding(pod: StoredObject) -> str:
    """Return why a pod cannot get a node, in the API server's words; empty if it can."""
    name, spec = pod.meta.name, spec_of(pod)
    if pod.meta.deletion_timestamp is not None:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.node_name:
        return f'pod {name} is already assigned to node "{spec.node_name}"'
    if spec.gates:
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def assign(pod: StoredObject, binding: StoredObject, node_name: str, now: datetime) -> StoredObject:
    """Assign a pod to a node, with labels and annotations of the Binding, in one revision."""
    spec, status = decode_object(pod.parts["spec"]), decode_object(pod.parts["status"])
    status.pop("nominatedNodeName", None)
    conditions = status_of(pod).conditions or ()
    status["conditions"] = _scheduled(conditions, now)
    bound = pod.with_parts(spec=encode({**spec, "nodeName": node_name}), status=encode(status))
    return bound.with_meta(
        labels={**pod.meta.labels, **binding.meta.labels},
        annotations={**pod.meta.annotations, **binding.meta.annotations},
    )


def _scheduled(conditions: Iterable[PodCondition], now: datetime) -> list[PodCondition]:
    """Return the conditions with PodScheduled true; its time moves only if it was not."""
    listed = list(conditions)
    places = [index for index, known in enumerate(listed) if known.type == "PodScheduled"]
    since = now
    if places and listed[places[0]].status == "True":
        since = listed[places[0]].last_transition_time or now
    scheduled = PodCondition(type="PodScheduled", status="True", last_transition_time=since)
    if not places:
        return [*listed, scheduled]
    listed[places[0]] = scheduled
    return listed


def keep_qos_class(old: StoredObject, new: StoredObject) -> StoredObject:
    """Return `new` with the QoS class it had, if its writer left it out."""
    qos_class = status_of(old).qos_class
    if status_of(new).qos_class or not qos_class:
        return new
    status = decode_object(new.parts["status"])
    return new.with_parts(status=encode({**status, "qosClass": qos_class}))


def grace_seconds(pod: StoredObject, asked: int | None) -> int:
    """Return how long a pod that is deleted may go on: 0 without a node or when it has ended.

    Source: kubernetes v1.36, pkg/registry/core/pod/strategy.go CheckGracefulDelete.
    """
    spec = spec_of(pod)
    if not spec.node_name or status_of(pod).phase in {"Succeeded", "Failed"}:
        return 0
    seconds = spec.termination_grace_period_seconds if asked is None else asked
    return 1 if seconds is not None and seconds < 0 else seconds or 0
