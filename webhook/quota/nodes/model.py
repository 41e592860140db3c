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
from typing import Final, TypeAlias

from webhook.jsonfields.encoding import encode_json
from webhook.jsonfields.fields import InvalidFieldError, child
from webhook.quota.amounts.resource_reader import ResourceReader, StoredResourceReader
from webhook.quota.nodes.affinity_terms import AffinityTerms, Identity, read_affinity_terms
from webhook.quota.nodes.brief_pods import BriefPod
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

_CLAIM: Final = "persistentVolumeClaim"


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod that has no node yet."""

    name: str
    uid: str
    identity: Identity
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
            name=pod.name,
            uid=pod.uid,
            identity=Identity(pod.namespace, pod.labels),
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
    _identities: list[Identity] | None = None

    @property
    def identities(self) -> list[Identity]:
        """What selectors look at of the pods, read when it is first asked for."""
        if self._identities is None:
            self._identities = list(map(_identity, self.pods))
        return self._identities

    def add(self, pod: PlainObject, requested: Requested) -> None:
        """Count a pod."""
        self.pods.append(pod)
        self.count(requested)
        self.scored_cpu += requested.scored_cpu
        self.scored_memory += requested.scored_memory
        self._identities = None

    def count(self, requested: Requested) -> None:
        """Count what a pod requests of which nothing else is known."""
        for name, amount in requested.amounts.items():
            self.requested[name] = self.requested.get(name, 0) + amount

    def remove(self, pod: PlainObject, requested: Requested) -> None:
        """Count a pod no more: the very object that was added."""
        self.pods = [one for one in self.pods if one is not pod]
        for name, amount in requested.amounts.items():
            self.requested[name] -= amount
        self.scored_cpu -= requested.scored_cpu
        self.scored_memory -= requested.scored_memory
        self._identities = None


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
    devices: frozenset[str] = frozenset()
    """Resources that are compared only where a node has some: elsewhere they are devices of a
    DeviceClass, which are allocated in another way."""

    @cached_property
    def infos(self) -> tuple[NodeInfo, ...]:
        """Nodes in the order given, with their pods counted.

        Raises:
            InvalidFieldError: A field that is read has the wrong type; its path begins with
                `Node NAME` or `Pod NAMESPACE/NAME`.
        """
        infos = [_node_info(raw) for raw in self.nodes]
        by_name = {info.name: info for info in infos}
        for pod in self.pods:
            info = by_name.get(_running_on(pod))
            if info is not None:
                try:
                    info.add(pod, requested_of(pod))
                except InvalidFieldError as err:
                    raise _named("Pod", pod, err) from err
        return tuple(infos)

    @cached_property
    def claims_by_key(self) -> Mapping[str, ResourceReader] | None:
        """Claims by "namespace/name"; None if they are not known."""
        return None if self.claims is None else _by_key(self.claims, "claims")

    @cached_property
    def volumes_by_name(self) -> Mapping[str, ResourceReader] | None:
        """Volumes by name; None if they are not known."""
        return None if self.volumes is None else _by_key(self.volumes, "volumes")

    @cached_property
    def classes_by_name(self) -> Mapping[str, ResourceReader] | None:
        """Storage classes by name; None if they are not known."""
        return (
            None
            if self.storage_classes is None
            else _by_key(self.storage_classes, "storage_classes")
        )

    @cached_property
    def claims_in_use(self) -> frozenset[str]:
        """Keys of the claims that pods with a node mount."""
        return frozenset(
            f"{node.identities[index].namespace}/{volume.child(_CLAIM).text('claimName')}"
            for node in self.infos
            for index, pod in enumerate(node.pods)
            for volume in ResourceReader(pod).child("spec").children("volumes")
            if volume.has(_CLAIM)
        )

    @cached_property
    def namespace_labels(self) -> Mapping[str, Mapping[str, str]] | None:
        """Labels by namespace; None if namespaces are not known."""
        if self.namespaces is None:
            return None
        metadata = [ResourceReader(raw).child("metadata") for raw in self.namespaces]
        return {one.text("name"): one.string_map("labels") for one in metadata}

    @cached_property
    def affinities(self) -> tuple[tuple[AffinityTerms, tuple[NodeInfo, ...]], ...]:
        """Affinity terms of pods that run, each with the nodes of the pods that have them."""
        terms: dict[object, AffinityTerms] = {}
        places: dict[object, list[NodeInfo]] = {}
        for node in self.infos:
            for index, pod in enumerate(node.pods):
                affinity = _pod_affinity(pod)
                if affinity is None:
                    continue
                identity = node.identities[index]
                key = _affinity_key(affinity, identity)
                if key not in terms:
                    spec = ResourceReader(pod).child("spec")
                    terms[key] = read_affinity_terms(spec, identity)
                places.setdefault(key, []).append(node)
        return tuple((terms[key], tuple(nodes)) for key, nodes in places.items())


@dataclass(frozen=True)
class CountedNodeView(NodeView):
    """Nodes whose pods are counted already, and of which nothing else is known."""

    counted: tuple[NodeInfo, ...] = ()

    @cached_property
    def infos(self) -> tuple[NodeInfo, ...]:
        """Return the nodes."""
        return self.counted


def _by_key(objects: Sequence[PlainObject], name: str) -> dict[str, ResourceReader]:
    readers = [StoredResourceReader(raw, f"{name}[{i}]") for i, raw in enumerate(objects)]
    return {_key(reader.child("metadata")): reader for reader in readers}


def _key(metadata: ResourceReader) -> str:
    namespace, name = metadata.text("namespace"), metadata.text("name")
    return f"{namespace}/{name}" if namespace else name


def _pod_affinity(pod: PlainObject) -> Mapping[str, object] | None:
    """Return the affinity of a pod that has some to pods, for or against."""
    if isinstance(pod, BriefPod) and not pod.has_pod_affinity:
        return None
    spec = pod.get("spec")
    affinity = spec.get("affinity") if isinstance(spec, Mapping) else None
    if not isinstance(affinity, Mapping):
        return None
    return affinity if affinity.get("podAffinity") or affinity.get("podAntiAffinity") else None


def _affinity_key(affinity: Mapping[str, object], identity: Identity) -> object:
    """Return what pods agree in whose terms are the same."""
    text = encode_json([affinity.get("podAffinity"), affinity.get("podAntiAffinity")])
    labels = tuple(sorted(identity.labels.items())) if b"LabelKeys" in text else ()
    return text, identity.namespace, labels


def _identity(pod: PlainObject) -> Identity:
    metadata = ResourceReader(pod).child("metadata")
    return Identity(
        metadata.text("namespace"),
        metadata.string_map("labels"),
        metadata.has("deletionTimestamp"),
    )


def _named(kind: str, raw: PlainObject, err: InvalidFieldError) -> InvalidFieldError:
    """Return an error about a field of an object whose path begins with the object's name."""
    metadata = raw.get("metadata")
    texts = metadata if isinstance(metadata, Mapping) else {}
    names = (str(texts[name]) for name in ("namespace", "name") if texts.get(name))
    return InvalidFieldError(child(f"{kind} {'/'.join(names)}", err.field), err.detail)


def _node_info(raw: PlainObject) -> NodeInfo:
    try:
        return _read_node(raw)
    except InvalidFieldError as err:
        raise _named("Node", raw, err) from err


def _read_node(raw: PlainObject) -> NodeInfo:
    node = StoredResourceReader(raw)
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
    if isinstance(pod, BriefPod):
        return pod.running_on
    spec, status = pod.get("spec"), pod.get("status")
    # a dict is known at once: to ask for a Mapping is slow, and this is asked of every pod
    if type(spec) is not dict and not isinstance(spec, Mapping):
        return ""
    if (type(status) is dict or isinstance(status, Mapping)) and status.get("phase") in (
        "Succeeded",
        "Failed",
    ):
        return ""
    name = spec.get("nodeName")
    return name if isinstance(name, str) else ""
