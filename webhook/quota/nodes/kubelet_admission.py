"""Whether a kubelet admits a pod that was bound to its node, or sets its phase to Failed.

    node = read_node(raw_node)
    KubeletAdmission(read_kubelet_pod(raw_pod), node).rejections(NodeLoad(requested, ports))

A scheduler asks more before it binds a pod; this is what is left of its filters when a pod is bound
past it. Cordons and taints of the effect `NoSchedule` are no concern of a kubelet. For a critical
pod it evicts others, so that a lack of resources is none for it.

Not judged: extended resources that the node does not have, as the kubelet leaves them out, or of
which it names none, as a DeviceClass may supply them; devices; topology and cpu managers;
`supplementalGroupsPolicy`; sysctls.

Source: kubernetes v1.36, pkg/kubelet/lifecycle/predicate.go Admit, generalFilter;
pkg/scheduler/eventhandlers.go AdmissionCheck; pkg/kubelet/preemption/preemption.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Final

from webhook.jsonfields.encoding import decode_json, encode_json
from webhook.jsonfields.fields import InvalidFieldError, mapping
from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.nodes.affinity_terms import Identity
from webhook.quota.nodes.host_ports import HostPort, HostPorts, host_ports
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
_MOST_SHARED: Final = 8
"""Resources of a pod whose amounts are shared with others; those of usual pods are three,"""
_SHARED_NAMES_LENGTH: Final = 512
"""and their names no longer than this: what is shared outlives its pods."""
_MOST_NAMED: Final = 16
"""Resources, ports and taints of which a rejection says that they are missing, taken or not
tolerated."""
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_ANOTHER_OS: Final = "PodOSNotSupported"
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
    def is_filtered(self) -> bool:
        """Return whether schedulers filter such nodes out as well; none does by `spec.os`."""
        return self.reason != _ANOTHER_OS

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
    return replace(as_placed(pod), constraints=None if _is_long(raw) else pod.constraints)


def as_placed(pod: KubeletPod) -> KubeletPod:
    """Return a pod as it counts for its node: without constraints, and kept small."""
    amounts = kept_amounts(pod.amounts)
    if len(amounts) <= _MOST_SHARED and sum(map(len, amounts)) <= _SHARED_NAMES_LENGTH:
        amounts = _shared(tuple(amounts.items()))
    return replace(pod, amounts=amounts, ports=pod.ports[:_PORTS], constraints=None)


def read_node(raw: PlainObject) -> KubeletNode:
    """Read a node from its API object.

    Raises:
        InvalidFieldError: A field that is read has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    (info,) = NodeView([raw], ()).infos
    reported = ResourceReader(raw).child("status").child("nodeInfo")
    return KubeletNode(replace(info, raw={}), reported.text("operatingSystem"))


class KubeletAdmission:
    """Admission of a pod by the kubelet of a node, judged for several loads of the node.

    What depends on no other pod is worked out once, before: binds are judged one after the other,
    and the creator of a pod decides how long it takes to compare it with a node.

    Args:
        pod: A pod without a node, with its constraints.
        node: The node.
    """

    def __init__(self, pod: KubeletPod, node: KubeletNode) -> None:
        constraints = pod.constraints
        self._node = node
        self._wanted = {} if pod.is_critical else _judged_amounts(pod.amounts, node)
        self._ports = HostPorts(pod.ports)
        self._os = "" if constraints is None else constraints.os
        self._is_match = constraints is None or constraints.required.match(node.info)
        self._evicting = () if constraints is None else _evicting(node, constraints)

    def rejections(self, load: NodeLoad) -> tuple[KubeletRejection, ...]:
        """Return why the kubelet would not admit the pod, in its order; nothing if it would.

        Args:
            load: Sum of the other pods on the node.
        """
        return tuple(self._rejections(load))

    def _rejections(self, load: NodeLoad) -> Iterator[KubeletRejection]:
        node = self._node
        if self._os and node.os not in ("", self._os):
            detail = f"the pod is for {self._os}, the node has {node.os}"
            yield KubeletRejection(_ANOTHER_OS, detail)
        if _is_short(self._wanted, node.info.allocatable, load.requested):
            loaded = replace(node.info, requested=dict(load.requested))
            for shortage in shortages(self._wanted, loaded):
                yield KubeletRejection(f"OutOf{shortage.resource}", _numbers(shortage), shortage)
        if not self._is_match:
            yield KubeletRejection("NodeAffinity", _MISMATCH)
        taken = {one.port for one in load.ports if self._ports.conflict_with(one)}
        if taken:
            yield KubeletRejection("NodePorts", f"taken: {_some(map(str, sorted(taken)))}")
        if self._evicting:
            yield KubeletRejection(
                "TaintToleration", f"not tolerated: {_some(self._evicting)}:NoExecute"
            )


def _judged_amounts(wanted: Amounts, node: KubeletNode) -> Amounts:
    """Return what is wanted of what a node has, and some of what it has nothing of.

    It has to report something. Extended resources of which it has nothing are left out: a kubelet
    admits them where it does not know them, or the pod's status has a claim that supplies them.

    Source: kubernetes v1.36, predicate.go removeMissingExtendedResources;
    noderesources/fit.go shouldDelegateResourceToDRA.
    """
    allocatable = node.info.allocatable
    names = [name for name in wanted if allocatable.get(name) or not is_extended_resource(name)]
    missing = [name for name in names if wanted[name] and name not in allocatable]
    judged = allocatable.keys() | set(missing[:_MOST_NAMED])
    return {name: wanted[name] for name in names if name in judged} if allocatable else {}


def _evicting(node: KubeletNode, constraints: PodConstraints) -> tuple[str, ...]:
    return tuple(
        f"{taint.key}={taint.value}" if taint.value else taint.key
        for taint in node.info.taints
        if taint.effect == "NoExecute" and not is_tolerated(taint, constraints.tolerations)
    )


def _some(names: Iterable[str]) -> str:
    first = [*islice(names, _MOST_NAMED + 1)]
    return ", ".join(first if len(first) <= _MOST_NAMED else [*first[:_MOST_NAMED], "..."])


def _is_short(wanted: Amounts, allocatable: Amounts, requested: Amounts) -> bool:
    """Return whether something may be short: asked at every bind, and seldom so."""
    return any(
        amount > allocatable.get(name, 0) - requested.get(name, 0)
        for name, amount in wanted.items()
    )


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
