"""Cordoned nodes and taints, against a pod's tolerations.

Source: kubernetes v1.36, pkg/scheduler/framework/plugins/nodeunschedulable, tainttoleration;
api/core/v1/toleration.go ToleratesTaint. Comparing tolerations (`Lt`, `Gt`) are an alpha feature
that is off, and tolerate nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from webhook.quota.nodes.filters import NodeCheck, normalized
from webhook.quota.nodes.model import NodeInfo, NodeView, PendingPod, Taint

_CORDONED: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
_UNSCHEDULABLE: Final = ("node(s) were unschedulable",)
_UNTOLERATED: Final = ("node(s) had untolerated taint(s)",)


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of a pod."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """Return whether the taint is tolerated; an empty key or effect stands for all."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        if self.operator in ("", "Equal"):
            return self.value == taint.value
        return self.operator == "Exists"


def filter_unschedulable(pod: PendingPod, _: NodeView) -> NodeCheck | None:
    """Refuse cordoned nodes, unless the taint that goes with it is tolerated."""
    if is_tolerated(_CORDONED, tolerations_of(pod)):
        return None
    return NodeCheck(lambda node: _UNSCHEDULABLE if node.is_unschedulable else ())


def uncordoned(node: NodeInfo) -> NodeInfo:
    """Return a node as it is after `kubectl uncordon`, which also ends the taint of a cordon."""
    taints = tuple(taint for taint in node.taints if taint.key != _CORDONED.key)
    return replace(node, is_unschedulable=False, taints=taints)


def filter_taints(pod: PendingPod, _: NodeView) -> NodeCheck:
    """Refuse nodes with a taint that keeps pods away and that is not tolerated."""
    taints_of = untolerated(pod)
    return NodeCheck(lambda node: _UNTOLERATED if taints_of(node) else ())


def untolerated(pod: PendingPod) -> Callable[[NodeInfo], tuple[Taint, ...]]:
    """Return what lists the taints of a node that keep the pod away from it."""
    tolerates = _tolerating(tolerations_of(pod))
    return lambda node: tuple(
        [taint for taint in node.taints if taint.effect in _REPELLING and not tolerates(taint)]
    )


def score_taints(pod: PendingPod, _: NodeView, nodes: Sequence[NodeInfo]) -> Sequence[int] | None:
    """Prefer nodes with fewer `PreferNoSchedule` taints that are not tolerated."""
    tolerations = [one for one in tolerations_of(pod) if one.effect in ("", "PreferNoSchedule")]
    tolerates = _tolerating(tolerations)
    counts = [
        sum(taint.effect == "PreferNoSchedule" and not tolerates(taint) for taint in node.taints)
        for node in nodes
    ]
    return normalized(counts, reverse=True)


def tolerations_of(pod: PendingPod) -> tuple[Toleration, ...]:
    """Read the pod's tolerations."""
    return tuple(
        Toleration(
            toleration.text("key"),
            toleration.text("operator"),
            toleration.text("value"),
            toleration.text("effect"),
        )
        for toleration in pod.spec.children("tolerations")
    )


def _tolerating(tolerations: Sequence[Toleration]) -> Callable[[Taint], bool]:
    """Return what says whether a taint is tolerated, each compared with the tolerations once.

    Nodes have few taints that differ; the creator of a pod decides how many tolerations it has.
    """
    return cache(lambda taint: is_tolerated(taint, tolerations))


def tolerates_node(tolerations: Sequence[Toleration], node: NodeInfo) -> bool:
    """Return whether all taints of the node that keep pods away are tolerated."""
    return all(
        taint.effect not in _REPELLING or is_tolerated(taint, tolerations) for taint in node.taints
    )


def is_tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    """Return whether one of the tolerations is for the taint."""
    return any(toleration.tolerates(taint) for toleration in tolerations)
