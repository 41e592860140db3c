"""Nodes that a pod names or selects: `nodeName`, `nodeSelector`, node affinity.

Source: kubernetes v1.36, pkg/scheduler/framework/plugins/nodename, nodeaffinity;
component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.nodes.filters import NodeCheck, NoNode, normalized
from webhook.quota.nodes.model import NodeInfo, NodeView, PendingPod
from webhook.quota.objects.label_selectors import Requirement, read_requirement

_NOT_REQUESTED: Final = ("node(s) didn't match the requested node name",)
_NOT_MATCHED: Final = ("node(s) didn't match Pod's node affinity/selector",)
_CONFLICT: Final = "pod affinity terms conflict"
_NAME_FIELD: Final = "metadata.name"
_COMPARING: Final = frozenset({"Gt", "Lt"})
_FIELD_OPERATORS: Final = frozenset({"In", "NotIn"})
_EXPRESSION_WEIGHT: Final = 32
_TERM_WEIGHT: Final = 8
_is_integer = re.compile(r"[+-]?[0-9]+", flags=re.ASCII).fullmatch


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """Requirements on labels and fields of a node, all of which must be met; none meets nothing."""

    labels: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Return whether a node of these labels and this name is selected."""
        if not self.labels and not self.fields:
            return False
        return all(_matches_label(one, labels) for one in self.labels) and all(
            _matches_field(one, name) for one in self.fields
        )

    @property
    def node_names(self) -> frozenset[str] | None:
        """The only nodes that the term can select; None where it names none."""
        named = [
            frozenset(one.values)
            for one in self.fields
            if one.key == _NAME_FIELD and one.operator == "In"
        ]
        return frozenset.intersection(*named) if named else None


@dataclass(frozen=True, slots=True)
class RequiredNodes:
    """Requirements of a pod for the labels and the name of its node."""

    selector: Mapping[str, str]
    terms: tuple[NodeSelectorTerm, ...] | None
    """One of them has to match; None if there is no such affinity."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is required."""
        return not self.selector and self.terms is None

    @property
    def weight(self) -> int:
        """Work of a comparison with a node; that of a value in a list is 1."""
        found = len(self.selector) * _EXPRESSION_WEIGHT
        for term in self.terms or ():
            found += _TERM_WEIGHT
            for one in (*term.labels, *term.fields):
                found += _EXPRESSION_WEIGHT + len(one.values)
        return found

    def match(self, node: NodeInfo) -> bool:
        """Return whether the node is as required."""
        labels = node.labels
        for key, value in self.selector.items():
            if labels.get(key) != value:
                return False
        return self.terms is None or any(term.matches(labels, node.name) for term in self.terms)


def filter_node_name(pod: PendingPod, _: NodeView) -> NodeCheck | None:
    """Refuse nodes other than the one that the pod names."""
    name = pod.spec.text("nodeName")
    if not name:
        return None
    return NodeCheck(lambda node: () if node.name == name else _NOT_REQUESTED)


def filter_node_affinity(pod: PendingPod, _: NodeView) -> NodeCheck | NoNode | None:
    """Refuse nodes that are not selected by `nodeSelector` and required node affinity."""
    required = required_nodes(pod)
    if required.is_empty:
        return None
    names = _names_of(required.terms or ())
    if names is not None and not names:
        return NoNode(_CONFLICT)
    return NodeCheck(lambda node: () if required.match(node) else _NOT_MATCHED, names)


def score_node_affinity(
    pod: PendingPod, _: NodeView, nodes: Sequence[NodeInfo]
) -> Sequence[int] | None:
    """Prefer nodes by the weights of the preferred terms that select them."""
    preferred = [
        (one.integer("weight") or 0, read_term(one.child("preference")))
        for one in _node_affinity(pod).children("preferredDuringSchedulingIgnoredDuringExecution")
    ]
    if not preferred:
        return None
    return normalized(
        [
            sum(weight for weight, term in preferred if term.matches(node.labels, node.name))
            for node in nodes
        ]
    )


def required_nodes(pod: PendingPod) -> RequiredNodes:
    """Read what the pod requires of its node."""
    affinity = _node_affinity(pod)
    terms = None
    if affinity.has("requiredDuringSchedulingIgnoredDuringExecution"):
        terms = read_terms(affinity.child("requiredDuringSchedulingIgnoredDuringExecution"))
    return RequiredNodes(pod.spec.string_map("nodeSelector"), terms)


def read_terms(selector: ResourceReader) -> tuple[NodeSelectorTerm, ...]:
    """Read the terms of a NodeSelector, one of which has to match."""
    return tuple(map(read_term, selector.children("nodeSelectorTerms")))


def read_term(term: ResourceReader) -> NodeSelectorTerm:
    """Read one term of a NodeSelector."""
    return NodeSelectorTerm(
        tuple(map(read_requirement, term.children("matchExpressions"))),
        tuple(map(read_requirement, term.children("matchFields"))),
    )


def _node_affinity(pod: PendingPod) -> ResourceReader:
    return pod.spec.child("affinity").child("nodeAffinity")


def _names_of(terms: Sequence[NodeSelectorTerm]) -> frozenset[str] | None:
    names = [term.node_names for term in terms]
    if not names or None in names:
        return None
    return frozenset[str]().union(*(one for one in names if one is not None))


def _matches_label(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    if requirement.operator not in _COMPARING:
        return requirement.matches(labels)
    bounds = [_integer(value) for value in requirement.values]
    value = _integer(labels.get(requirement.key, ""))
    if len(bounds) != 1 or bounds[0] is None or value is None:
        return False
    return value > bounds[0] if requirement.operator == "Gt" else value < bounds[0]


def _matches_field(requirement: Requirement, name: str) -> bool:
    if requirement.operator not in _FIELD_OPERATORS or len(requirement.values) != 1:
        return False
    return requirement.matches({_NAME_FIELD: name})


def _integer(text: str) -> int | None:
    return int(text) if _is_integer(text) and len(text) <= len(str(-(2**63))) else None
