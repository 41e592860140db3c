"""Judges on which nodes a pod fits, and which of these the scheduler prefers.

    verdicts = judge_nodes(pod, NodeView(nodes, pods, ...))
    verdicts.message()           # the scheduler's own words
    verdicts.rejected[0].filter  # "NodeResourcesFit": the first that fails, as the scheduler counts
    verdicts.fits[0].name        # the best node, where all scores are computed

Filters and scores are those of the scheduler's default profile, in its order. What it does
beside them is not judged: extenders and other profiles, preemption, devices (dynamic resource
allocation), limits and capacities of CSI drivers, features that nodes declare, pods that are
nominated to a node. Of more than 100 nodes it looks at a part only, so that its choice can be
worse than the best.

A pod that is bound past the scheduler and does not fit is not pending again: the kubelet sets its
phase to Failed (`OutOfcpu`, `OutOfmemory`, `OutOfpods`, `NodeAffinity`, `NodePorts`).

Source: kubernetes v1.36, pkg/scheduler/apis/config/v1/default_plugins.go, schedule_one.go
findNodesThatFitPod, framework/types.go FitError; pkg/kubelet/lifecycle/predicate.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

from webhook.quota.nodes.filters import Filter, NodeCheck, NoNode, Scorer, Unknown
from webhook.quota.nodes.host_ports import filter_host_ports, host_ports
from webhook.quota.nodes.image_locality import score_image_locality
from webhook.quota.nodes.model import (
    CountedNodeView,
    NodeInfo,
    NodeView,
    PendingPod,
    PlainObject,
    Taint,
)
from webhook.quota.nodes.node_affinity import (
    filter_node_affinity,
    filter_node_name,
    required_nodes,
    score_node_affinity,
)
from webhook.quota.nodes.node_resources import (
    Shortage,
    filter_resources,
    score_balanced,
    score_least_allocated,
    shortages,
    without_devices,
)
from webhook.quota.nodes.pod_affinity import filter_pod_affinity, score_pod_affinity
from webhook.quota.nodes.taints import (
    filter_taints,
    filter_unschedulable,
    score_taints,
    uncordoned,
    untolerated,
)
from webhook.quota.nodes.topology_spread import filter_topology_spread, score_topology_spread
from webhook.quota.nodes.volumes import filter_claims_in_use, filter_volume_zones, filter_volumes


def filter_devices(pod: PendingPod, _: NodeView) -> Unknown | None:
    """Judge nothing: which nodes have the devices that a pod claims is not known."""
    return Unknown("resourceclaims") if pod.spec.has("resourceClaims") else None


_FILTERS: Final[tuple[tuple[str, Filter], ...]] = (
    ("NodeUnschedulable", filter_unschedulable),
    ("NodeName", filter_node_name),
    ("TaintToleration", filter_taints),
    ("NodeAffinity", filter_node_affinity),
    ("NodePorts", filter_host_ports),
    ("NodeResourcesFit", filter_resources),
    ("VolumeRestrictions", filter_claims_in_use),
    ("VolumeBinding", filter_volumes),
    ("VolumeZone", filter_volume_zones),
    ("PodTopologySpread", filter_topology_spread),
    ("InterPodAffinity", filter_pod_affinity),
    ("DynamicResources", filter_devices),
)
_LONGEST: Final = 1500
_COUNTING: Final = frozenset(
    {"NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodeResourcesFit"}
)
_COUNTING_FILTERS: Final = tuple(one for one in _FILTERS if one[0] in _COUNTING)
"""Those that look at nothing of the pods on a node but the sum of their requests."""
_MOST_WEIGHT: Final = 2**21
"""Of what a pod requires, times the nodes that it is compared with, where the conditions of all
namespaces wait for the answer: ten expressions with 5,000 nodes, or 1,000 with 50."""
_AMOUNT_WEIGHT: Final = 16
_SCORERS: Final[tuple[tuple[str, int, Scorer], ...]] = (
    ("TaintToleration", 3, score_taints),
    ("NodeAffinity", 2, score_node_affinity),
    ("NodeResourcesFit", 1, score_least_allocated),
    ("PodTopologySpread", 2, score_topology_spread),
    ("InterPodAffinity", 2, score_pod_affinity),
    ("NodeResourcesBalancedAllocation", 1, score_balanced),
    ("ImageLocality", 1, score_image_locality),
)
"""Plugins with their weights."""
_LOCAL: Final = frozenset({"NodeResourcesFit", "NodeResourcesBalancedAllocation"})
_LOCAL_SCORERS: Final = tuple(scorer for scorer in _SCORERS if scorer[0] in _LOCAL)
"""Those whose score of a node depends on no other node."""


@dataclass(frozen=True, slots=True)
class NodeScore:
    """A node that the pod fits on."""

    name: str
    score: int
    plugins: Mapping[str, int]
    """Score by plugin, from 0 to 100 times the weight of the plugin."""


@dataclass(frozen=True, slots=True)
class NodeRejection:
    """A node that the pod does not fit on."""

    node: str
    filter: str
    """The scheduler's plugin that refused the node; later ones were not asked."""
    reasons: tuple[str, ...]
    """In the scheduler's words; a node counts once for each of them."""
    shortages: tuple[Shortage, ...]
    """What the node has too little of, whichever plugin refused it."""
    taints: tuple[Taint, ...] = ()
    """Those that the pod does not tolerate, where they refused it."""
    remaining: tuple[str, ...] = ()
    """Reasons that refuse it without its cordon, or its taints tolerated; none if it fits then."""


@dataclass(frozen=True, slots=True)
class NodeVerdicts:
    """Verdicts of the scheduler's filters and scores about a pod and every node."""

    total: int
    fits: tuple[NodeScore, ...]
    """Best first; of equal ones the scheduler takes any, here they are in order of name."""
    rejected: tuple[NodeRejection, ...]
    unknown: tuple[str, ...] = ()
    """Names of what was not judged because objects are not known; it may refuse more nodes."""
    unscored: Mapping[str, int] = field(default_factory=dict)
    """Plugins whose score is not computed → weight; with them the order may be another."""
    anywhere: str = ""
    """Why the pod fits nowhere whatever the nodes are; empty if every node was judged itself."""

    def counts(self) -> dict[str, int]:
        """Return how many nodes were refused for each reason, as the scheduler sorts them."""
        counts: dict[str, int] = {}
        for rejection in self.rejected:
            for reason in rejection.reasons:
                counts[reason] = counts.get(reason, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: f"{item[1]} {item[0]}"))

    def message(self) -> str:
        """Return the scheduler's message, without what it adds about preemption.

        Where nodes fit, the number of these takes the place of its zero.
        """
        if not self.total:
            return "no nodes available to schedule pods"
        head = f"{len(self.fits)}/{self.total} nodes are available"
        if self.anywhere:
            return f"{head}: {self.anywhere}."
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.counts().items())
        return f"{head}: {reasons}." if reasons else f"{head}."


def no_node_text(verdicts: NodeVerdicts, as_of: str = "") -> str:
    """Return that no node fits a pod, in the scheduler's words.

    Args:
        verdicts: What the filters make of all nodes.
        as_of: The time of that, where it is read later; very long reasons are cut then.
    """
    text = f"no node fits: {verdicts.message()}"
    return f"{text.removesuffix('.')[:_LONGEST]}, as of {as_of}" if as_of else text


@dataclass(frozen=True, slots=True)
class NodeChecks:
    """The filters that have to do with one pod."""

    named: tuple[tuple[str, NodeCheck], ...]
    unknown: tuple[str, ...] = ()
    anywhere: tuple[str, str] | None = None
    """The filter by which the pod fits nowhere, and its reason."""

    def rejection(self, node: NodeInfo) -> tuple[str, tuple[str, ...]]:
        """Return the first filter that refuses the node with its reasons; none if it fits."""
        if self.anywhere is not None:
            return self.anywhere[0], (self.anywhere[1],)
        naming = [(name, check) for name, check in self.named if check.node_names is not None]
        for name, check in naming:
            if check.node_names is not None and node.name not in check.node_names:
                plugins = sorted(one for one, _ in naming)
                return name, (f"node(s) didn't satisfy plugin(s) [{' '.join(plugins)}]",)
        for name, check in self.named:
            reasons = check.reasons(node)
            if reasons:
                return name, reasons
        return "", ()


def judge_nodes(pod: PlainObject, view: NodeView) -> NodeVerdicts:
    """Judge every node of the view for a pod that has none, gated or not.

    Raises:
        InvalidFieldError: A field that is read has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    pending = PendingPod.from_object(pod)
    checks, taints_of = prepare_checks(pending, view), untolerated(pending)
    fitting, rejected = [], []
    for node in view.infos:
        name, reasons = checks.rejection(node)
        if reasons:
            short = shortages(without_devices(pending.amounts, node, view.devices), node)
            rejection = NodeRejection(node.name, name, reasons, short)
            if name == "TaintToleration":
                remaining = checks.rejection(replace(node, taints=()))[1]
                rejection = replace(rejection, taints=taints_of(node), remaining=remaining)
            if name == "NodeUnschedulable":
                rejection = replace(rejection, remaining=checks.rejection(uncordoned(node))[1])
            rejected.append(rejection)
        else:
            fitting.append(node)
    return NodeVerdicts(
        total=len(view.infos),
        fits=_scored(pending, view, fitting),
        rejected=tuple(rejected),
        unknown=tuple(dict.fromkeys(checks.unknown)),
        unscored=_unscored(pending),
        anywhere=checks.anywhere[1] if checks.anywhere else "",
    )


def judge_without_pods(pod: PlainObject, nodes: Sequence[NodeInfo]) -> NodeVerdicts | None:
    """Judge nodes of which only the sum of what their pods request is known.

    Asked are the filters for which that is enough. Returned is None where a node passes them, and
    where it is not known: for a pod with host ports, for an extended resource of no node, and where
    what the pod requires, times the nodes, is more than is compared.

    Raises:
        InvalidFieldError: A field that is read has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    pending, view = PendingPod.from_object(pod), CountedNodeView((), (), counted=tuple(nodes))
    weight = required_nodes(pending).weight + _AMOUNT_WEIGHT * len(pending.amounts)
    if weight * len(nodes) > _MOST_WEIGHT or next(host_ports(pending.spec), None) is not None:
        return None
    checks = prepare_checks(pending, view, _COUNTING_FILTERS)
    if checks.unknown:
        return None
    rejected: list[NodeRejection] = []
    for node in nodes:
        name, reasons = checks.rejection(node)
        if not reasons:
            return None
        rejected.append(NodeRejection(node.name, name, reasons, ()))
    anywhere = checks.anywhere[1] if checks.anywhere else ""
    return NodeVerdicts(len(nodes), (), tuple(rejected), anywhere=anywhere)


def check_readable(pod: PlainObject, view: NodeView) -> None:
    """Read all that any filter or score looks at of a pod, whatever refuses it first.

    Raises:
        InvalidFieldError: A field that is read has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    pending = PendingPod.from_object(pod)
    for _, prepare in _FILTERS:
        prepared = prepare(pending, view)
        if isinstance(prepared, NodeCheck):
            for node in view.infos:
                prepared.reasons(node)
    for _, _, score in _SCORERS:
        score(pending, view, view.infos)


def prepare_checks(
    pod: PendingPod, view: NodeView, filters: Sequence[tuple[str, Filter]] = _FILTERS
) -> NodeChecks:
    """Prepare the filters in their order, until one says that the pod fits nowhere."""
    named: list[tuple[str, NodeCheck]] = []
    unknown: list[str] = []
    for name, prepare in filters:
        match prepare(pod, view):
            case None:
                pass
            case NodeCheck() as check:
                named.append((name, check))
                if check.unknown:
                    unknown.append(check.unknown)
                if check.node_names is not None and (conflict := _conflict(named)):
                    return NodeChecks((), tuple(unknown), conflict)
            case NoNode(reason):
                return NodeChecks((), tuple(unknown), (name, reason))
            case Unknown(what):
                unknown.append(what)
            case prepared:
                assert_never(prepared)
    return NodeChecks(tuple(named), tuple(unknown))


def _conflict(named: Sequence[tuple[str, NodeCheck]]) -> tuple[str, str] | None:
    """Return the last filter that names nodes, and the reason, where no node is named by all.

    Source: kubernetes v1.36, pkg/scheduler/framework/runtime/framework.go RunPreFilterPlugins.
    """
    naming = [(name, check.node_names) for name, check in named if check.node_names is not None]
    if not naming or frozenset.intersection(*(names for _, names in naming)):
        return None
    plugins = sorted(name for name, _ in naming)
    if len(plugins) == 1:
        return plugins[0], f"node(s) didn't satisfy plugin {plugins[0]}"
    return naming[-1][0], f"node(s) didn't satisfy plugin(s) [{' '.join(plugins)}] simultaneously"


def _scored(pod: PendingPod, view: NodeView, nodes: Sequence[NodeInfo]) -> tuple[NodeScore, ...]:
    """Return the nodes with their scores, best first."""
    if not nodes:
        return ()
    columns = dict(_columns(pod, view, nodes))
    scores = []
    for index, node in enumerate(nodes):
        plugins = {name: column[index] for name, column in columns.items()}
        scores.append(NodeScore(node.name, sum(plugins.values()), plugins))
    return tuple(sorted(scores, key=lambda one: (-one.score, one.name)))


def local_score(pod: PendingPod, view: NodeView, node: NodeInfo) -> int:
    """Return the score of one node by what looks at no other: the room that is left there.

    Where the other plugins have nothing to say, nodes compare by it as by all.
    """
    columns = [(weight, score(pod, view, [node])) for _, weight, score in _LOCAL_SCORERS]
    return sum(weight * scores[0] for weight, scores in columns if scores is not None)


def _unscored(pod: PendingPod) -> Mapping[str, int]:
    """Return what is not scored: devices, and spreading that the scheduler adds by itself.

    That looks at the Services and the controllers that select the pod by its labels.
    """
    weights = {}
    if pod.identity.labels and not pod.spec.children("topologySpreadConstraints"):
        weights["PodTopologySpread"] = 2
    if pod.spec.has("resourceClaims"):
        weights["DynamicResources"] = 2
    return weights


def _columns(
    pod: PendingPod, view: NodeView, nodes: Sequence[NodeInfo]
) -> Iterator[tuple[str, list[int]]]:
    for name, weight, score in _SCORERS:
        scores = score(pod, view, nodes)
        if scores is not None:
            yield name, [weight * one for one in scores]
