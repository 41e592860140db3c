"""The shape of a filter: prepared once for a pod, then asked about one node after another.

Source: kubernetes v1.36, kube-scheduler/framework/interface.go PreFilterPlugin, FilterPlugin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from webhook.quota.nodes.model import NodeInfo, NodeView, PendingPod


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """A filter that has something to check of every node."""

    reasons: Callable[[NodeInfo], tuple[str, ...]]
    """Why the pod cannot go to the node, in the scheduler's words; empty if it can."""
    node_names: frozenset[str] | None = None
    """The only nodes that are looked at at all; None for all."""
    unknown: str = ""
    """What the filter does not know, and could refuse more nodes by."""


@dataclass(frozen=True, slots=True)
class NoNode:
    """A filter by which the pod can go to no node, whatever the nodes."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A filter that cannot judge, because what it has to look at is not known."""

    what: str


Prepared: TypeAlias = NodeCheck | NoNode | Unknown | None
"""None: the filter has nothing to do with the pod."""
Filter: TypeAlias = Callable[[PendingPod, NodeView], Prepared]
Scorer: TypeAlias = Callable[[PendingPod, NodeView, Sequence[NodeInfo]], Sequence[int] | None]
"""Return a score from 0 to 100 for each of the nodes; None if all are equal to the plugin."""

MAX_NODE_SCORE = 100


def normalized(counts: Sequence[int], *, reverse: bool = False) -> list[int]:
    """Return counts as scores, the largest being 100, or 0 in reverse.

    Source: kubernetes v1.36, pkg/scheduler/framework/plugins/helper/normalize_score.go.
    """
    largest = max(counts, default=0)
    if largest == 0:
        return [MAX_NODE_SCORE if reverse else 0] * len(counts)
    scores = [MAX_NODE_SCORE * count // largest for count in counts]
    return [MAX_NODE_SCORE - score for score in scores] if reverse else scores
