"""Even spreading over the values of a label of the nodes, such as zones.

Source: kubernetes v1.36, pkg/scheduler/framework/plugins/podtopologyspread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.nodes.affinity_terms import with_label_keys
from webhook.quota.nodes.filters import MAX_NODE_SCORE, NodeCheck
from webhook.quota.nodes.model import NodeInfo, NodeView, PendingPod
from webhook.quota.nodes.node_affinity import required_nodes
from webhook.quota.nodes.taints import tolerates_node, tolerations_of
from webhook.quota.objects.label_selectors import LabelSelector, read_selector_at

_SKEWED: Final = ("node(s) didn't match pod topology spread constraints",)
_WITHOUT_LABEL: Final = (f"{_SKEWED[0]} (missing required label)",)
_HALF: Final = 0.5
_HOSTNAME: Final = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """One constraint of a pod."""

    max_skew: int
    key: str
    selector: LabelSelector | None
    """None selects no pods."""
    min_domains: int
    honors_affinity: bool
    """Whether only nodes count that the pod selects."""
    honors_taints: bool
    """Whether only nodes count whose taints the pod tolerates."""

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether pods of these labels are spread."""
        return self.selector is not None and self.selector.matches(labels)


@dataclass(frozen=True, slots=True)
class _Domains:
    """Values of a constraint's label, with the number of pods that are spread over each."""

    constraint: SpreadConstraint
    counts: dict[str, int]
    own: int
    """1 if the pod itself is one of those that are spread."""

    @property
    def fewest(self) -> int:
        """The number of pods that the skew is measured from."""
        if not self.counts or len(self.counts) < self.constraint.min_domains:
            return 0
        return min(self.counts.values())


def filter_topology_spread(pod: PendingPod, view: NodeView) -> NodeCheck | None:
    """Refuse nodes that would have too many of the pods, compared with the others."""
    constraints = _constraints(pod, "DoNotSchedule")
    if not constraints:
        return None
    counts = _counts(pod, view, constraints)
    domains = [
        _Domains(one, count, int(one.selects(pod.identity.labels)))
        for one, count in zip(constraints, counts, strict=True)
    ]
    limits = [(one, one.fewest + one.constraint.max_skew - one.own) for one in domains]

    def reasons(node: NodeInfo) -> tuple[str, ...]:
        for one, most in limits:
            value = node.labels.get(one.constraint.key)
            if value is None:
                return _WITHOUT_LABEL
            if one.counts.get(value, 0) > most:
                return _SKEWED
        return ()

    return NodeCheck(reasons)


def score_topology_spread(
    pod: PendingPod, view: NodeView, nodes: Sequence[NodeInfo]
) -> Sequence[int] | None:
    """Prefer nodes with fewer of the pods that are spread.

    Constraints that the scheduler adds by itself, for pods that have none, are not looked at: they
    depend on Services and on the controllers of pods.
    """
    constraints = _constraints(pod, "ScheduleAnyway")
    if not constraints:
        return None
    keys = [one.key for one in constraints]
    scored = [node for node in nodes if all(key in node.labels for key in keys)]
    counts = _counts(pod, view, constraints)
    weights = [
        math.log(
            (len(scored) if key == _HOSTNAME else len({node.labels[key] for node in scored})) + 2
        )
        for key in keys
    ]
    selected = [_selected_pods(pod.identity.namespace, one.selector) for one in constraints]

    def raw_score(node: NodeInfo) -> int:
        score = 0.0  # in floats, in the scheduler's order, because it rounds that way
        for index, one in enumerate(constraints):
            value = node.labels[one.key]
            own = one.key == _HOSTNAME
            count = selected[index](node) if own else counts[index].get(value, 0)
            score += float(count) * weights[index] + float(one.max_skew - 1)
        whole = math.floor(score)
        return whole + (score - whole >= _HALF)

    raw = {node.name: raw_score(node) for node in scored}
    return _spread_scores([raw.get(node.name) for node in nodes])


def _spread_scores(raw: Sequence[int | None]) -> list[int]:
    """Return scores, lower counts being better; None, of nodes without the labels, is 0."""
    counted = [one for one in raw if one is not None]
    least, most = min(counted, default=0), max(counted, default=0)
    if not most:
        return [0 if one is None else MAX_NODE_SCORE for one in raw]
    return [0 if one is None else MAX_NODE_SCORE * (most + least - one) // most for one in raw]


def _counts(
    pod: PendingPod, view: NodeView, constraints: Sequence[SpreadConstraint]
) -> list[dict[str, int]]:
    """Return the pods by value of each constraint's label, on nodes that have all the labels."""
    required, tolerations = required_nodes(pod), tolerations_of(pod)
    selected = [_selected_pods(pod.identity.namespace, one.selector) for one in constraints]
    counts: list[dict[str, int]] = [{} for _ in constraints]
    for node in view.infos:
        if any(one.key not in node.labels for one in constraints):
            continue
        is_required, is_tolerated = required.match(node), tolerates_node(tolerations, node)
        for index, one in enumerate(constraints):
            if one.honors_affinity and not is_required:
                continue
            if one.honors_taints and not is_tolerated:
                continue
            value = node.labels[one.key]
            counts[index][value] = counts[index].get(value, 0) + selected[index](node)
    return counts


def _selected_pods(namespace: str, selector: LabelSelector | None) -> Callable[[NodeInfo], int]:
    """Return what counts pods on a node; those that are being deleted do not count."""
    if selector is None or not (selector.labels or selector.requirements):
        return lambda _: 0

    def count(node: NodeInfo) -> int:
        selected = 0
        for identity in node.identities:
            if identity.namespace == namespace and not identity.is_deleting:
                selected += selector.matches(identity.labels)
        return selected

    return count


def _constraints(pod: PendingPod, action: str) -> list[SpreadConstraint]:
    return [
        _constraint(one, pod)
        for one in pod.spec.children("topologySpreadConstraints")
        if one.text("whenUnsatisfiable") == action
    ]


def _constraint(raw: ResourceReader, pod: PendingPod) -> SpreadConstraint:
    min_domains = raw.integer("minDomains")
    return SpreadConstraint(
        max_skew=raw.integer("maxSkew") or 0,
        key=raw.text("topologyKey"),
        selector=with_label_keys(
            read_selector_at(raw, "labelSelector"),
            pod.identity.labels,
            match=raw.strings("matchLabelKeys"),
        ),
        min_domains=1 if min_domains is None else min_domains,
        honors_affinity=raw.text("nodeAffinityPolicy") in ("", "Honor"),
        honors_taints=raw.text("nodeTaintsPolicy") == "Honor",
    )
