"""Whether a pod has a node once some others are gone: asked very often, so prepared once.

Judged is what the controllers know of all pods and nodes: cordon, taints, node selector, required
node affinity, the number of pods and what they request. `NOT_JUDGED` can keep a pod from a node
all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from webhook.quota.nodes.filters import Filter, NodeCheck, NoNode
from webhook.quota.nodes.model import NodeInfo, NodeView, PendingPod, PlainObject
from webhook.quota.nodes.node_affinity import (
    filter_node_affinity,
    filter_node_name,
    required_nodes,
)
from webhook.quota.nodes.requested import Amounts, Requested
from webhook.quota.nodes.taints import filter_taints, filter_unschedulable

NOT_JUDGED: Final = "host ports, volumes, topology spread, pod affinity and devices"

_FILTERS: Final[tuple[Filter, ...]] = (
    filter_unschedulable,
    filter_node_name,
    filter_taints,
    filter_node_affinity,
)

_MOST_WEIGHT: Final = 2**15
"""Of what a pod requires of its node, a thousand expressions: its creator writes it, and it is
compared with each node. A pod that requires more has room on none."""


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pod on a node, of which only what it requests is known."""

    uid: str
    node: str
    requested: Requested


class NodeRoom:
    """The nodes that a pod may go to, and what is left there.

    Args:
        pod: The pod, as API object.
        nodes: All nodes, as API objects.
        placed: All pods with a node that have not ended.

    Raises:
        InvalidFieldError: A field that is read has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """

    def __init__(
        self, pod: PlainObject, nodes: Sequence[PlainObject], placed: Iterable[PlacedPod]
    ) -> None:
        pending, view = PendingPod.from_object(pod), NodeView(nodes, ())
        if required_nodes(pending).weight > _MOST_WEIGHT:
            view = NodeView((), ())
        self._wanted: Amounts = pending.amounts
        self._nodes = {node.name: node for node in _open_to(pending, view)}
        self._placed: dict[str, PlacedPod] = {}
        for one in placed:
            node = self._nodes.get(one.node)
            if node is not None:
                node.count(one.requested)
                self._placed[one.uid] = one

    def fits(self, gone: Iterable[str]) -> bool:
        """Return whether a node has room once the pods of these uids are gone."""
        freed: dict[str, dict[str, int]] = {name: {} for name in self._nodes}
        for uid in gone:
            one = self._placed.get(uid)
            if one is None:
                continue
            there = freed[one.node]
            for name, amount in one.requested.amounts.items():
                there[name] = there.get(name, 0) + amount
        return any(self._has_room(node, freed[name]) for name, node in self._nodes.items())

    def _has_room(self, node: NodeInfo, freed: Amounts) -> bool:
        return all(
            not amount
            or amount
            <= node.allocatable.get(name, 0) - node.requested.get(name, 0) + freed.get(name, 0)
            for name, amount in self._wanted.items()
        )


def _open_to(pod: PendingPod, view: NodeView) -> Iterator[NodeInfo]:
    """Yield the nodes that no filter refuses for something else than room."""
    checks: list[NodeCheck] = []
    for prepare in _FILTERS:
        match prepare(pod, view):
            case NodeCheck() as check:
                checks.append(check)
            case NoNode():
                return
            case _:
                pass
    for node in view.infos:
        if all(_lets_pass(check, node) for check in checks):
            yield node


def _lets_pass(check: NodeCheck, node: NodeInfo) -> bool:
    if check.node_names is not None and node.name not in check.node_names:
        return False
    return not check.reasons(node)
