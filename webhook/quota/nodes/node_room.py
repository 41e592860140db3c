"""Whether a pod has a node once some others are gone: asked very often, so prepared once.

Judged is what the controllers know of all pods and nodes: cordon, taints, node selector, required
node affinity, the number of pods and what they request, but for extended resources that no node
names: they may be devices of a DeviceClass. `NOT_JUDGED` can keep a pod from a node all the same.

Pods that go to nodes and are on none yet take room before it, each where it fits first, if they can
go nowhere but to the nodes of this pod: else each of several that fit one place would have others
evicted. One that fits nowhere takes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from webhook.jsonfields.encoding import decode_json
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.nodes.filters import Filter, NodeCheck, NoNode
from webhook.quota.nodes.model import NodeInfo, NodeView, PendingPod, PlainObject
from webhook.quota.nodes.node_affinity import (
    filter_node_affinity,
    filter_node_name,
    required_nodes,
)
from webhook.quota.nodes.node_resources import unoffered
from webhook.quota.nodes.requested import Amounts, Requested
from webhook.quota.nodes.taints import filter_taints, filter_unschedulable
from webhook.quota.objects.pod_templates import template_key

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

_MOST_WEIGHT_OF_OTHERS: Final = 2**9
"""The same of a pod that is on no node yet: one that requires more takes no room."""

_NODE_FIELDS: Final = ("nodeSelector", "affinity", "tolerations")
_POD_FIELDS: Final = (*_NODE_FIELDS, "overhead", "resources")
_CONTAINER_FIELDS: Final = ("name", "resources", "restartPolicy")
_MOST_PLACEMENTS: Final = 8
"""Of pods that are on no node, first those of the same nodes, then those of the most pods: each may
be compared with all nodes."""


def placement_key(pod: PlainObject) -> bytes | None:
    """Return what the node of a pod depends on, as JSON of a pod; None where that is long."""
    return template_key({"spec": pod.get("spec")}, _POD_FIELDS, _CONTAINER_FIELDS)


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
        placed: All pods with a node that neither have ended nor are to be taken as gone.
        unassigned: Placement → how many pods that go to nodes, and are on none yet, have it.

    Raises:
        InvalidFieldError: A field that is read has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """

    def __init__(
        self,
        pod: PlainObject,
        nodes: Sequence[PlainObject],
        placed: Iterable[PlacedPod],
        unassigned: Mapping[bytes, int] | None = None,
    ) -> None:
        pending, view = PendingPod.from_object(pod), NodeView(nodes, ())
        if required_nodes(pending).weight > _MOST_WEIGHT:
            view = NodeView((), ())
        self._wanted = _without_devices(pending, view)
        self._nodes = {node.name: node for node in _open_to(pending, view)}
        self._placed: dict[str, PlacedPod] = {}
        for one in placed:
            node = self._nodes.get(one.node)
            if node is not None:
                node.count(one.requested)
                self._placed[one.uid] = one
        for other, number in _most_like(pod, unassigned or {}):
            try:
                self._place(PendingPod.from_object(other), number, view)
            except InvalidFieldError:  # of another tenant: that stops no plan
                continue
        self._with_room = frozenset(
            [name for name, node in self._nodes.items() if self.has_room(node, {})]
        )

    def after(self, gone: Iterable[str]) -> RoomAfter:
        """Return the room once the pods of these uids are gone."""
        return RoomAfter(self._nodes, self._placed, self._with_room, self.has_room, {*gone})

    def has_room(self, node: NodeInfo, freed: Amounts) -> bool:
        """Return whether a node has room once so much is freed there."""
        return _has_room(self._wanted, node, freed)

    def _place(self, pod: PendingPod, number: int, view: NodeView) -> None:
        """Count so many other pods on the first nodes with room, if they can go nowhere else.

        Those nodes come first that have none for the pod itself even when they are empty, and those
        last that have it now.
        """
        if required_nodes(pod).weight > _MOST_WEIGHT_OF_OTHERS:
            return
        nodes = []
        for node in _open_to(pod, view):
            if node.name not in self._nodes:
                return
            nodes.append(node)
        wanted = _without_devices(pod, view)

        def use(node: NodeInfo) -> tuple[bool, bool]:
            return self.has_room(node, node.requested), self.has_room(node, {})

        for node in sorted(nodes, key=use):
            while number and _has_room(wanted, node, {}):
                node.count(Requested(wanted, 0, 0))
                number -= 1


class Identified(Protocol):
    """Pod that goes or comes back."""

    @property
    def uid(self) -> str:
        """Its uid."""


class RoomAfter:
    """Room while some pods are gone, of which some may come back, and go again.

    Args:
        with_room: Nodes that have room while no pod is gone.
        has_room: Returns whether a node has room once so much is freed there.
    """

    def __init__(
        self,
        nodes: Mapping[str, NodeInfo],
        placed: Mapping[str, PlacedPod],
        with_room: Iterable[str],
        has_room: Callable[[NodeInfo, Amounts], bool],
        gone: Iterable[str],
    ) -> None:
        self._nodes = nodes
        self._placed = placed
        self._with_room = {*with_room}
        self._has_room = has_room
        self._freed: dict[str, dict[str, int]] = {}
        self._count(gone, 1)

    @property
    def fits(self) -> bool:
        """Whether a node has room."""
        return bool(self._with_room)

    def take(self, pods: Iterable[Identified]) -> None:
        """Count pods as gone."""
        self._count([pod.uid for pod in pods], 1)

    def put_back(self, pods: Iterable[Identified]) -> None:
        """Count pods again that are gone."""
        self._count([pod.uid for pod in pods], -1)

    def _count(self, uids: Iterable[str], sign: int) -> None:
        """Look again at the nodes of these pods, and at no other."""
        changed = set()
        for uid in uids:
            one = self._placed.get(uid)
            if one is None:
                continue
            changed.add(one.node)
            freed = self._freed.setdefault(one.node, {})
            for name, amount in one.requested.amounts.items():
                freed[name] = freed.get(name, 0) + sign * amount
        for name in changed:
            if self._has_room(self._nodes[name], self._freed[name]):
                self._with_room.add(name)
            else:
                self._with_room.discard(name)


def _most_like(pod: PlainObject, placements: Mapping[bytes, int]) -> list[tuple[PlainObject, int]]:
    """Return the pods of placements with their numbers: those that count most beside a pod."""
    own = _asked_of_node(pod)

    def rank(item: tuple[PlainObject, int]) -> tuple[bool, int]:
        return _asked_of_node(item[0]) != own, -item[1]

    others = [(_decoded(key), number) for key, number in placements.items()]
    return sorted(others, key=rank)[:_MOST_PLACEMENTS]


def _asked_of_node(pod: PlainObject) -> list[object]:
    spec = pod.get("spec")
    return [spec.get(name) for name in _NODE_FIELDS] if isinstance(spec, Mapping) else []


def _decoded(key: bytes) -> PlainObject:
    raw = decode_json(key)
    assert isinstance(raw, dict)  # noqa: S101 - only this module makes keys
    return raw


def _without_devices(pod: PendingPod, view: NodeView) -> Amounts:
    """Return what a pod wants, without what may be devices of a DeviceClass."""
    devices = unoffered(pod.amounts, view.infos)
    return {name: amount for name, amount in pod.amounts.items() if name not in devices}


def _has_room(wanted: Amounts, node: NodeInfo, freed: Amounts) -> bool:
    return all(
        not amount
        or amount
        <= node.allocatable.get(name, 0) - node.requested.get(name, 0) + freed.get(name, 0)
        for name, amount in wanted.items()
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
