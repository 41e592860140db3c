"""The node that the scheduler chooses for a pod, kept up as pods come and go.

Where filters and scores look at one node at a time, what they said of a node stands until a pod is
added to it or removed. Where they look at several (spreading, affinity to pods, volumes,
preferences), every choice judges all nodes anew. Both are the functions of `webhook.quota.nodes`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from webhook.jsonfields.encoding import encode_json
from webhook.quota.nodes.fitting import NodeChecks, judge_nodes, local_score, prepare_checks
from webhook.quota.nodes.model import NodeInfo, NodeView, PendingPod, PlainObject
from webhook.quota.nodes.requested import Requested, requested_of
from webhook.quota.simulation.values import PodTemplate

_SEVERAL_NODES: Final = ("topologySpreadConstraints", "resourceClaims", "volumes")


class Placement:
    """Nodes, and the pods on them.

    Args:
        nodes: API objects of the nodes.
        templates: Of all pods that will be placed.
    """

    def __init__(self, nodes: Sequence[PlainObject], templates: Iterable[PodTemplate]) -> None:
        self._nodes = nodes
        self._pods: dict[str, PlainObject] = {}
        self._view = NodeView(nodes, ())
        self._infos = {info.name: info for info in self._view.infos}
        self._changes: list[str] = []
        self._choices: dict[PodTemplate, _Choice] = {}
        self._by_spec: dict[bytes, _Choice] = {}
        self._requested: dict[PodTemplate, Requested] = {}
        self._is_local = _are_plain(nodes) and all(
            _looks_at_one_node(template.raw) for template in templates
        )

    def shape(self, template: PodTemplate) -> object:
        """Return what is the same for templates whose pods fit the same nodes at any time."""
        return self._choice(template) if self._is_local else template

    def best(self, template: PodTemplate) -> str:
        """Return the node for a pod, of equal ones the first by name; empty if none fits."""
        if not self._is_local:
            fits = judge_nodes(template.raw, NodeView(self._nodes, tuple(self._pods.values()))).fits
            return fits[0].name if fits else ""
        return self._choice(template).best(self._infos)

    def _choice(self, template: PodTemplate) -> _Choice:
        """Return what pods of the same spec share, whatever their namespace and name."""
        choice = self._choices.get(template)
        if choice is None:
            key = encode_json(template.raw["spec"])
            if key not in self._by_spec:
                self._by_spec[key] = _Choice(template, self._view, self._changes)
            choice = self._choices[template] = self._by_spec[key]
        return choice

    def add(self, uid: str, template: PodTemplate, node: str) -> None:
        """Put a pod on a node."""
        spec = template.raw["spec"]
        assert isinstance(spec, Mapping)  # noqa: S101 - templates are read before
        self._pods[uid] = pod = {**template.raw, "spec": {**spec, "nodeName": node}}
        self._infos[node].add(pod, self._requested_of(template))
        self._changes.append(node)

    def remove(self, uid: str, template: PodTemplate, node: str) -> None:
        """Take a pod off its node."""
        self._infos[node].remove(self._pods.pop(uid), self._requested_of(template))
        self._changes.append(node)

    def _requested_of(self, template: PodTemplate) -> Requested:
        requested = self._requested.get(template)
        if requested is None:
            requested = self._requested[template] = requested_of(template.raw)
        return requested


class _Choice:
    """Scores of the nodes for the pods of one template, the best on top of a heap."""

    def __init__(self, template: PodTemplate, view: NodeView, changes: Sequence[str]) -> None:
        self._pending = PendingPod.from_object(template.raw)
        self._checks: NodeChecks = prepare_checks(self._pending, view)
        self._view = view
        self._changes = changes
        self._read = len(changes)
        self._scores: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        for info in view.infos:
            self._judge(info)

    def best(self, infos: Mapping[str, NodeInfo]) -> str:
        if self._read < len(self._changes):
            for name in set(self._changes[self._read :]):
                self._judge(infos[name])
            self._read = len(self._changes)
        heap = self._heap
        while heap and self._scores.get(heap[0][1]) != -heap[0][0]:
            heapq.heappop(heap)
        return heap[0][1] if heap else ""

    def _judge(self, info: NodeInfo) -> None:
        if self._checks.rejection(info)[1]:
            self._scores.pop(info.name, None)
            return
        score = local_score(self._pending, self._view, info)
        if self._scores.get(info.name) != score:
            self._scores[info.name] = score
            heapq.heappush(self._heap, (-score, info.name))


def _looks_at_one_node(raw: PlainObject) -> bool:
    spec = raw["spec"]
    assert isinstance(spec, Mapping)  # noqa: S101 - templates are read before
    affinity = spec.get("affinity") or {}
    assert isinstance(affinity, Mapping)  # noqa: S101
    nodes = affinity.get("nodeAffinity") or {}
    prefers = isinstance(nodes, Mapping) and nodes.get(
        "preferredDuringSchedulingIgnoredDuringExecution"
    )
    return not (
        prefers
        or affinity.get("podAffinity")
        or affinity.get("podAntiAffinity")
        or any(spec.get(name) for name in _SEVERAL_NODES)
    )


def _are_plain(nodes: Sequence[PlainObject]) -> bool:
    """Return whether no node has what scores compare among nodes: taints to avoid, images."""
    infos = NodeView(nodes, ()).infos
    return not any(
        taint.effect == "PreferNoSchedule" for info in infos for taint in info.taints
    ) and not any(_images(info.raw) for info in infos)


def _images(raw: PlainObject) -> object:
    status = raw.get("status")
    return status.get("images") if isinstance(status, Mapping) else None
