"""Room on nodes: pods and resources that are short, and the scores by what is left.

Source: kubernetes v1.36, pkg/scheduler/framework/plugins/noderesources/fit.go,
least_allocated.go, balanced_allocation.go, resource_allocation.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Final

from webhook.quota.amounts.quantity import Quantity
from webhook.quota.nodes.filters import MAX_NODE_SCORE, NodeCheck
from webhook.quota.nodes.model import NodeInfo, NodeView, PendingPod
from webhook.quota.nodes.requested import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    Amounts,
    as_quantity,
)
from webhook.quota.objects.names import is_device_class, is_extended_resource

_SCORED: Final = (CPU, MEMORY)
_ORDER: Final = {PODS: 0, CPU: 1, MEMORY: 2, EPHEMERAL_STORAGE: 3}


@dataclass(frozen=True, slots=True)
class Shortage:
    """A resource that a node has too little of."""

    resource: str
    requested: Quantity
    used: Quantity
    """Requested by the pods on the node."""
    allocatable: Quantity

    @property
    def missing(self) -> Quantity:
        """Amount by which the pod, or others on the node, would have to request less."""
        return self.requested + self.used - self.allocatable


def filter_resources(pod: PendingPod, view: NodeView) -> NodeCheck:
    """Refuse nodes without room for one more pod, or for what it requests.

    An extended resource that no node has may stand for devices of a DeviceClass; where the view
    does not name it, nodes are refused for it.
    """
    wanted, devices = pod.amounts, view.devices
    is_unknown = unoffered(wanted, view.infos) or wanted.keys() & devices
    return NodeCheck(
        lambda node: tuple(
            map(_reason, short_resources(without_devices(wanted, node, devices), node))
        ),
        unknown="deviceclasses" if is_unknown else "",
    )


def may_be_devices(name: str) -> bool:
    """Return whether a resource may stand for devices of a DeviceClass."""
    return is_extended_resource(name) or is_device_class(name)


def unoffered(wanted: Amounts, nodes: Iterable[NodeInfo]) -> frozenset[str]:
    """Return what may be devices of a DeviceClass, as no node names it in its `allocatable`."""
    names = set(filter(may_be_devices, wanted))
    return frozenset(names.difference(*(node.allocatable for node in nodes)))


def without_devices(wanted: Amounts, node: NodeInfo, devices: Set[str]) -> Amounts:
    """Return what is wanted without what a node would give as devices of a DeviceClass.

    Source: kubernetes v1.36, noderesources/fit.go shouldDelegateResourceToDRA.
    """
    if not devices:
        return wanted
    return {
        name: amount
        for name, amount in wanted.items()
        if name not in devices or node.allocatable.get(name, 0) > 0
    }


def short_resources(wanted: Amounts, node: NodeInfo) -> list[str]:
    """Return the resources that the node has too little of for a pod, in the scheduler's order.

    Resources that the pod requests none of are not looked at, even where they are overcommitted.
    """
    allocatable, requested = node.allocatable, node.requested
    short = [
        name
        for name, amount in wanted.items()
        if amount > 0 and amount > allocatable.get(name, 0) - requested.get(name, 0)
    ]
    return sorted(short, key=lambda name: (_ORDER.get(name, len(_ORDER)), name)) if short else short


def shortages(wanted: Amounts, node: NodeInfo) -> tuple[Shortage, ...]:
    """Return by how much the node is short of what a pod requests."""
    return tuple(
        Shortage(
            name,
            as_quantity(name, wanted[name]),
            as_quantity(name, node.requested.get(name, 0)),
            as_quantity(name, node.allocatable.get(name, 0)),
        )
        for name in short_resources(wanted, node)
    )


def score_least_allocated(pod: PendingPod, _: NodeView, nodes: Sequence[NodeInfo]) -> Sequence[int]:
    """Prefer nodes with more cpu and memory left, containers without requests counted too."""
    wanted = pod.scored
    return [_least_allocated(wanted, node) for node in nodes]


def score_balanced(pod: PendingPod, _: NodeView, nodes: Sequence[NodeInfo]) -> Sequence[int] | None:
    """Prefer nodes where the pod brings the used parts of cpu and memory closer together."""
    wanted = pod.amounts
    if not any(wanted.get(name) for name in _SCORED):
        return None
    return [_balanced(wanted, node) for node in nodes]


def _reason(resource: str) -> str:
    return "Too many pods" if resource == PODS else f"Insufficient {resource}"


def _least_allocated(wanted: Amounts, node: NodeInfo) -> int:
    used = {CPU: node.scored_cpu, MEMORY: node.scored_memory}
    scores = [
        max(0, allocatable - used[name] - wanted.get(name, 0)) * MAX_NODE_SCORE // allocatable
        for name in _SCORED
        if (allocatable := node.allocatable.get(name, 0))
    ]
    return sum(scores) // len(scores) if scores else 0


def _balanced(wanted: Amounts, node: NodeInfo) -> int:
    after = {
        name: node.requested.get(name, 0) + wanted.get(name, 0)
        for name in _SCORED
        if node.allocatable.get(name)
    }
    gained = _balance(after, node) - _balance(node.requested, node)
    return MAX_NODE_SCORE // 2 + _half(MAX_NODE_SCORE // 2 + gained)


def _balance(used: Amounts, node: NodeInfo) -> int:
    """Return 100 where the same part of cpu and memory is used, down to 50.

    In floats because the scheduler computes in them: the same operations round the same way.
    """
    fractions = [
        min(1.0, float(used.get(name, 0)) / float(allocatable))
        for name in _SCORED
        if (allocatable := node.allocatable.get(name, 0))
    ]
    deviation = abs((fractions[0] - fractions[1]) / 2) if len(fractions) == len(_SCORED) else 0.0
    return int((1 - deviation) * float(MAX_NODE_SCORE))


def _half(number: int) -> int:
    """Divide by two towards zero, as Go does."""
    return number // 2 if number >= 0 else -(-number // 2)
