"""Nodes with what is requested on them, and the objects that filters look at.

    view = NodeView(nodes, pods, claims, volumes, storage_classes, namespaces)
    verdicts = judge_nodes(pod, view)  # fitting.py

All are API objects as decoded JSON. Of `pods`, those with a node that have not ended count: pass
all of the cluster, or those with a node. None for a kind means that it is not known, for instance
because it may not be listed; what then cannot be judged is named in `NodeVerdicts.unknown`. One
view serves any number of pods; it is aggregated when first used.

Source: kubernetes v1.36, pkg/scheduler/framework/types.go NodeInfo, PodInfo, Resource.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cached_property
from typing import TypeAlias

from webhook.quota.amounts.resource_reader import ResourceReader, StoredResourceReader
from webhook.quota.nodes.requested import (
    Amounts,
    Requested,
    pending_amounts,
    requested_of,
    scheduler_amounts,
    scored_amounts,
)
from webhook.quota.objects.model import Pod

PlainObject: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod that has no node yet."""

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    priority: int
    spec: ResourceReader
    amounts: Amounts
    """Requests, with one of `pods`."""
    scored: Amounts
    """Requests, with something for each container that requests none of cpu or memory."""

    @classmethod
    def from_object(cls, raw: PlainObject) -> PendingPod:
        """Read a pod from its API object; what its status says of resources is not looked at.

        Raises:
            InvalidFieldError: A field that is read has the wrong type.
            InvalidQuantityError: An amount is not a quantity.
        """
        pod = Pod.from_stored(raw)
        return cls(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            labels=pod.labels,
            priority=pod.priority or 0,
            spec=ResourceReader(raw).child("spec"),
            amounts=pending_amounts(pod),
            scored=scored_amounts(pod),
        )


@dataclass(slots=True)
class NodeInfo:
    """A node, and what the pods on it request."""

    name: str
    raw: PlainObject
    labels: Mapping[str, str]
    is_unschedulable: bool
    taints: tuple[Taint, ...]
    allocatable: Amounts
    pods: list[PlainObject] = dataclass_field(default_factory=list)
    """Pods with this node that have not ended."""
    requested: dict[str, int] = dataclass_field(default_factory=dict)
    scored_cpu: int = 0
    """Millicores requested, with 100m for each container that requests none."""
    scored_memory: int = 0
    """Bytes requested, with 200Mi for each container that requests none."""

    def add(self, pod: PlainObject, requested: Requested) -> None:
        """Count a pod."""
        self.pods.append(pod)
        for name, amount in requested.amounts.items():
            self.requested[name] = self.requested.get(name, 0) + amount
        self.scored_cpu += requested.scored_cpu
        self.scored_memory += requested.scored_memory


@dataclass(frozen=True)
class NodeView:
    """The part of a cluster that decides where a pod fits."""

    nodes: Sequence[PlainObject]
    pods: Sequence[PlainObject]
    claims: Sequence[PlainObject] | None = None
    """PersistentVolumeClaims, of all namespaces that are asked about."""
    volumes: Sequence[PlainObject] | None = None
    """PersistentVolumes."""
    storage_classes: Sequence[PlainObject] | None = None
    namespaces: Sequence[PlainObject] | None = None
    """Namespaces with their labels, which pod affinity may select."""

    @cached_property
    def infos(self) -> tuple[NodeInfo, ...]:
        """Nodes in the order given, with their pods counted.

        Raises:
            InvalidFieldError: A field that is read has the wrong type; its path begins with
                `nodes[i]`, or is that within the pod.
        """
        infos = [_node_info(raw, index) for index, raw in enumerate(self.nodes)]
        by_name = {info.name: info for info in infos}
        for pod in self.pods:
            info = by_name.get(_running_on(pod))
            if info is not None:
                info.add(pod, requested_of(pod))
        return tuple(infos)


def _node_info(raw: PlainObject, index: int) -> NodeInfo:
    node = StoredResourceReader(raw, f"nodes[{index}]")
    metadata, spec, status = node.child("metadata"), node.child("spec"), node.child("status")
    # an API server fills in the capacity where a node reports nothing else
    allocatable = status.resource_list("allocatable") or status.resource_list("capacity")
    return NodeInfo(
        name=metadata.text("name"),
        raw=raw,
        labels=metadata.string_map("labels"),
        is_unschedulable=spec.boolean("unschedulable"),
        taints=tuple(_taint(taint) for taint in spec.children("taints")),
        allocatable=scheduler_amounts(allocatable),
    )


def _taint(taint: ResourceReader) -> Taint:
    return Taint(taint.text("key"), taint.text("value"), taint.text("effect"))


def _running_on(pod: PlainObject) -> str:
    """Return the node of a pod that has one and has not ended; otherwise empty.

    Source: kubernetes v1.36, pkg/scheduler/scheduler.go NewInformerFactory, whose pods exclude
    those that have ended.
    """
    spec, status = pod.get("spec"), pod.get("status")
    if not isinstance(spec, Mapping):
        return ""
    if isinstance(status, Mapping) and status.get("phase") in ("Succeeded", "Failed"):
        return ""
    name = spec.get("nodeName")
    return name if isinstance(name, str) else ""
