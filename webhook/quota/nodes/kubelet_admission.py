"""Whether a kubelet admits a pod that was bound to its node, or sets its phase to Failed.

    node = read_node(raw_node)
    kubelet_rejections(read_kubelet_pod(raw_pod), node, NodeLoad(requested, ports))

A scheduler asks more before it binds a pod; this is what is left of its filters when a pod is bound
past it. Cordons and taints of the effect `NoSchedule` are no concern of a kubelet. For a critical
pod it evicts others, so that a lack of resources is none for it.

Not judged: extended resources that the node does not have, as the kubelet leaves them out; devices;
topology and cpu managers; `supplementalGroupsPolicy`; sysctls.

Source: kubernetes v1.36, pkg/kubelet/lifecycle/predicate.go Admit, generalFilter;
pkg/scheduler/eventhandlers.go AdmissionCheck; pkg/kubelet/preemption/preemption.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from webhook.jsonfields.encoding import decode_json, encode_json
from webhook.jsonfields.fields import InvalidFieldError, mapping
from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.nodes.affinity_terms import Identity
from webhook.quota.nodes.host_ports import HostPort, host_ports
from webhook.quota.nodes.model import NodeInfo, NodeView, PendingPod, PlainObject
from webhook.quota.nodes.node_affinity import RequiredNodes, required_nodes
from webhook.quota.nodes.node_resources import Shortage, shortages
from webhook.quota.nodes.requested import (
    Amounts,
    held_amounts,
    kept_amounts,
    pending_amounts,
)
from webhook.quota.nodes.taints import Toleration, is_tolerated, tolerations_of
from webhook.quota.objects.model import Pod, node_name_of
from webhook.quota.objects.names import is_extended_resource
from webhook.quota.objects.pod_templates import template_key

CRITICAL_PRIORITY: Final = 2 * 10**9
"""From which a kubelet evicts other pods for a pod."""

_CONSTRAINT_BYTES: Final = 8192
"""Of the longest constraints that are kept; those of usual pods have a few hundred."""
_SPEC_FIELDS: Final = ("overhead", "resources", "priority", "hostNetwork")
_CONSTRAINT_FIELDS: Final = ("nodeSelector", "affinity", "tolerations", "os")
_CONTAINER_FIELDS: Final = ("name", "resources", "restartPolicy", "ports")
_TEMPLATES: Final = 512
_PORTS: Final = 256
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_MISMATCH: Final = "the node does not match the pod's node selector or affinity"


@dataclass(frozen=True, slots=True)
class PodConstraints:
    """Fields of a pod that a node has to meet, besides resources and ports."""

    required: RequiredNodes
    tolerations: tuple[Toleration, ...]
    os: str
    """`spec.os.name`; empty for any."""


@dataclass(frozen=True, slots=True)
class KubeletPod:
    """The part of a pod that a kubelet looks at when it admits this pod or another one."""

    uid: str
    node: str
    """Empty without one."""
    has_ended: bool
    is_critical: bool
    amounts: Amounts
    """Requests, or of a pod with a node what it holds, with one of `pods`."""
    ports: tuple[HostPort, ...]
    constraints: PodConstraints | None
    """None of a pod with a node, and where they are too long to be kept."""


@dataclass(frozen=True, slots=True)
class KubeletNode:
    """A node as its kubelet judges pods by it."""

    info: NodeInfo
    """Without its API object, and without pods."""
    os: str
    """Empty where it is not reported."""

    @property
    def name(self) -> str:
        """Return the name of the node."""
        return self.info.name


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """The sum of what pods take of a node."""

    requested: Amounts
    ports: Sequence[HostPort] = ()


@dataclass(frozen=True, slots=True)
class KubeletRejection:
    """One reason for which a kubelet does not admit a pod."""

    reason: str
    """As in the status of the pod then: `OutOfcpu`, `NodeAffinity`, `TaintToleration`."""
    detail: str
    shortage: Shortage | None = None

    @property
    def text(self) -> str:
        """Return the reason with its numbers or names."""
        return f"{self.reason} ({self.detail})"


def read_kubelet_pod(raw: PlainObject) -> KubeletPod:
    """Read a pod from its API object.

    Raises:
        InvalidFieldError: A field that is read has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    pod = Pod.from_stored(raw)
    spec = ResourceReader(raw).child("spec")
    constraints = None
    if not pod.is_assigned:
        identity = Identity(pod.namespace, pod.labels)
        pending = PendingPod(pod.name, pod.uid, identity, spec, {}, scored={})
        constraints = PodConstraints(
            required_nodes(pending), tolerations_of(pending), spec.child("os").text("name")
        )
    return KubeletPod(
        uid=pod.uid,
        node=pod.node_name,
        has_ended=pod.phase in _ENDED,
        is_critical=(pod.priority or 0) >= CRITICAL_PRIORITY,
        amounts=held_amounts(pod) if pod.is_assigned else pending_amounts(pod),
        ports=tuple(host_ports(spec)),
        constraints=constraints,
    )


def read_kept_pod(raw: PlainObject) -> KubeletPod:
    """Read a pod that is kept with very many others, so that it has to be small.

    Pods of one template are read once: an informer calls this for every change of every pod.

    Raises:
        InvalidFieldError: A field that is read has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    node = ResourceReader(raw)
    spec, status = node.child("spec"), node.child("status")
    name = node_name_of(spec)
    fields = (*_SPEC_FIELDS, *_CONSTRAINT_FIELDS)
    key = template_key(raw, _SPEC_FIELDS if name else fields, _CONTAINER_FIELDS)
    try:
        one = _small_pod(read_kubelet_pod(raw), raw) if key is None else _pod_of(key, bool(name))
    except InvalidFieldError:
        one = _small_pod(read_kubelet_pod(raw), raw)  # the whole object says where the field is
    return KubeletPod(
        uid=node.child("metadata").text("uid"),
        node=name,
        has_ended=status.text("phase") in _ENDED,
        is_critical=one.is_critical,
        amounts=one.amounts,
        ports=one.ports,
        constraints=one.constraints,
    )


@lru_cache(maxsize=_TEMPLATES)
def _pod_of(template: bytes, is_assigned: bool) -> KubeletPod:
    raw = decode_json(template)
    assert isinstance(raw, dict)  # noqa: S101 - `template_key` makes JSON of a pod
    if is_assigned:
        raw["spec"]["nodeName"] = "node"
    return _small_pod(read_kubelet_pod(raw), raw)


def _small_pod(pod: KubeletPod, raw: PlainObject) -> KubeletPod:
    """Return a pod without what its creator can make as long as it likes."""
    return replace(
        pod,
        amounts=_shared(tuple(kept_amounts(pod.amounts).items())),
        ports=pod.ports[:_PORTS],
        constraints=None if _is_long(raw) else pod.constraints,
    )


def read_node(raw: PlainObject) -> KubeletNode:
    """Read a node from its API object.

    Raises:
        InvalidFieldError: A field that is read has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    (info,) = NodeView([raw], ()).infos
    reported = ResourceReader(raw).child("status").child("nodeInfo")
    return KubeletNode(replace(info, raw={}), reported.text("operatingSystem"))


def kubelet_rejections(
    pod: KubeletPod, node: KubeletNode, load: NodeLoad
) -> tuple[KubeletRejection, ...]:
    """Return why the kubelet of a node would not admit a pod, in its order; nothing if it would.

    Args:
        pod: A pod without a node, with its constraints.
        node: The node.
        load: Sum of the other pods on the node.
    """
    return tuple(_rejections(pod, node, load))


def _rejections(pod: KubeletPod, node: KubeletNode, load: NodeLoad) -> Iterator[KubeletRejection]:
    constraints = pod.constraints
    if constraints is not None and constraints.os and node.os not in ("", constraints.os):
        yield KubeletRejection(
            "PodOSNotSupported", f"the pod is for {constraints.os}, the node has {node.os}"
        )
    allocatable = node.info.allocatable
    if not pod.is_critical and allocatable and _is_short(pod.amounts, allocatable, load.requested):
        wanted = _without_missing(pod.amounts, allocatable)
        for shortage in shortages(wanted, replace(node.info, requested=dict(load.requested))):
            yield KubeletRejection(f"OutOf{shortage.resource}", _numbers(shortage), shortage)
    if constraints is not None and not constraints.required.match(node.info):
        yield KubeletRejection("NodeAffinity", _MISMATCH)
    taken = [str(one.port) for one in pod.ports if any(map(one.conflicts_with, load.ports))]
    if taken:
        yield KubeletRejection("NodePorts", f"taken: {', '.join(taken)}")
    if constraints is not None:
        evicting = [
            f"{taint.key}={taint.value}" if taint.value else taint.key
            for taint in node.info.taints
            if taint.effect == "NoExecute" and not is_tolerated(taint, constraints.tolerations)
        ]
        if evicting:
            yield KubeletRejection(
                "TaintToleration", f"not tolerated: {', '.join(evicting)}:NoExecute"
            )


def _is_short(wanted: Amounts, allocatable: Amounts, requested: Amounts) -> bool:
    """Return whether something may be short: asked at every bind, and seldom so."""
    return any(
        amount > allocatable.get(name, 0) - requested.get(name, 0)
        for name, amount in wanted.items()
    )


def _without_missing(wanted: Amounts, allocatable: Amounts) -> Amounts:
    """Return what is wanted without extended resources that the node does not know.

    Source: kubernetes v1.36, predicate.go removeMissingExtendedResources.
    """
    return {
        name: amount
        for name, amount in wanted.items()
        if name in allocatable or not is_extended_resource(name)
    }


def _numbers(shortage: Shortage) -> str:
    return (
        f"requested: {shortage.requested}, used: {shortage.used},"
        f" allocatable: {shortage.allocatable}"
    )


@lru_cache(maxsize=4096)
def _shared(amounts: tuple[tuple[str, int], ...]) -> Amounts:
    """Return amounts as one mapping for all pods that have the same."""
    return dict(amounts)


def _is_long(raw: PlainObject) -> bool:
    """Return whether the constraints of a pod are too long to be kept."""
    spec = mapping(raw.get("spec"), "spec")
    kept = {name: spec.get(name) for name in _CONSTRAINT_FIELDS}
    return len(encode_json(kept)) > _CONSTRAINT_BYTES
