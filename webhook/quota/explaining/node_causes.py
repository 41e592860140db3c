"""Causes that lie in the nodes, from what the scheduler's filters make of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.quota.amounts.quantity import ZERO
from webhook.quota.explaining.values import (
    Action,
    CauseKind,
    NodeScore,
    NodeSummary,
    PendingCause,
    Shortage,
    Unblock,
)
from webhook.quota.nodes.fitting import NodeRejection, NodeVerdicts, no_node_text

_BEST: Final = 3
_TOO_MANY_PODS: Final = "Too many pods"
_BY_FILTER: Final[Mapping[str, CauseKind]] = {
    "NodeUnschedulable": CauseKind.TAINT,
    "TaintToleration": CauseKind.TAINT,
    "NodeName": CauseKind.NODE_SELECTOR,
    "NodePorts": CauseKind.PORTS,
    "NodeResourcesFit": CauseKind.NODE_CAPACITY,
    "PodTopologySpread": CauseKind.TOPOLOGY_SPREAD,
    "InterPodAffinity": CauseKind.POD_AFFINITY,
}
_BY_WORDS: Final[Mapping[str, CauseKind]] = {
    "Insufficient ": CauseKind.NODE_CAPACITY,
    _TOO_MANY_PODS: CauseKind.POD_COUNT,
    "taint": CauseKind.TAINT,
    "were unschedulable": CauseKind.TAINT,
    "node affinity/selector": CauseKind.NODE_SELECTOR,
    "free ports": CauseKind.PORTS,
    "topology spread": CauseKind.TOPOLOGY_SPREAD,
    "pod affinity": CauseKind.POD_AFFINITY,
    "anti-affinity": CauseKind.POD_AFFINITY,
    "volume": CauseKind.VOLUME_UNBOUND,
}
"""Words of the scheduler → the cause that they stand for."""
_ATTEMPT: Final = re.compile(r"0/(?P<total>\d+) nodes are available: (?P<reasons>[^.]*)", re.ASCII)
_REASON: Final = re.compile(r"(?P<count>\d+) (?P<words>[A-Za-z][^,]*)", re.ASCII)
_ACTIONS: Final[Mapping[CauseKind, tuple[tuple[Action, str], ...]]] = {
    CauseKind.TAINT: (
        (Action.ADD_TOLERATION, "create the pod with a toleration of the nodes' taints"),
    ),
    CauseKind.NODE_SELECTOR: (
        (Action.LABEL_NODE, "give a node the labels of the pod's nodeSelector"),
        (Action.CHANGE_SELECTOR, "create the pod with another nodeSelector"),
    ),
    CauseKind.NODE_AFFINITY: (
        (Action.LABEL_NODE, "give a node the labels that the pod's node affinity requires"),
        (Action.CHANGE_AFFINITY, "create the pod with another node affinity"),
    ),
    CauseKind.POD_AFFINITY: (
        (Action.CHANGE_AFFINITY, "create the pod with another pod affinity or anti-affinity"),
        (Action.ADD_NODE, "add a node where its pod affinity holds"),
    ),
    CauseKind.TOPOLOGY_SPREAD: (
        (Action.ADD_NODE, "add a node in the domain with the fewest pods"),
        (Action.FREE_NODE, "make room in the domain with the fewest pods"),
    ),
    CauseKind.PORTS: (
        (Action.CHANGE_PORTS, "create the pod with another hostPort, or with none"),
        (Action.ADD_NODE, "add a node where the port is free"),
    ),
    CauseKind.POD_COUNT: (
        (Action.FREE_NODE, "end a pod of a full node"),
        (Action.ADD_NODE, "add a node"),
    ),
    CauseKind.VOLUME_UNBOUND: (
        (Action.PROVIDE_VOLUME, "provide the claims and volumes that the pod names"),
    ),
}


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """The nodes, what of them keeps a pod, and what would change that."""

    summary: NodeSummary | None
    """None where the nodes are not known."""
    causes: tuple[PendingCause, ...] = ()
    actions: tuple[Unblock, ...] = ()
    unknown: tuple[str, ...] = ()


def node_answer(verdicts: NodeVerdicts, *, has_selector: bool) -> NodeAnswer:
    """Return what verdicts about nodes mean for a pod; nodes are no cause while one fits.

    Args:
        verdicts: What the scheduler's filters make of every node.
        has_selector: Whether the pod has a `nodeSelector`.
    """
    by_kind: dict[CauseKind, list[NodeRejection]] = {}
    for one in verdicts.rejected:
        for kind in _kinds(one, has_selector):
            by_kind.setdefault(kind, []).append(one)
    ordered = sorted(by_kind.items(), key=lambda item: -len(item[1]))
    best = tuple(NodeScore(one.name, one.score) for one in verdicts.fits[:_BEST])
    reasons = {kind: len(rejected) for kind, rejected in ordered}
    summary = NodeSummary(verdicts.total, len(verdicts.fits), reasons, best)
    unknown = tuple(f"nodes are not judged by: {what}" for what in verdicts.unknown)
    if verdicts.fits:
        unscored = _unscored(verdicts) if len(verdicts.fits) > 1 else ()
        return NodeAnswer(summary, unknown=(*unknown, *unscored))
    causes = [_cause(kind, rejected, verdicts) for kind, rejected in ordered]
    if not verdicts.total:
        causes = [PendingCause(CauseKind.NODE_CAPACITY, "there are no nodes")]
    actions = [action for kind, rejected in ordered for action in _actions(kind, rejected)]
    if not verdicts.total:
        actions = [Unblock(Action.ADD_NODE, "add a node")]
    return NodeAnswer(summary, tuple(causes), tuple(actions), unknown)


def _unscored(verdicts: NodeVerdicts) -> Iterator[str]:
    for plugin, weight in verdicts.unscored.items():
        yield f"scores are without {plugin}, of weight {weight}: another node may be the best"


def attempt_answer(attempt: str) -> NodeAnswer | None:
    """Return what a scheduler's last attempt says of nodes that may not be read.

    Args:
        attempt: Its words; of an attempt that did not fail for the nodes there is no answer.
    """
    found = _ATTEMPT.search(attempt)
    if found is None:
        return None
    counts: dict[CauseKind, list[str]] = {}
    for reason in _REASON.finditer(found["reasons"]):
        for words, kind in _BY_WORDS.items():
            if words in reason["words"]:
                counts.setdefault(kind, []).append(reason[0])
                break
    when = f"of {found['total']} nodes none fitted at the scheduler's last attempt"
    causes = tuple(PendingCause(kind, f"{when}: {', '.join(of)}") for kind, of in counts.items())
    actions = [
        Unblock(action, text)
        for kind in counts
        for action, text in _ACTIONS.get(kind, ((Action.ADD_NODE, "add a node with room for it"),))
    ]
    return NodeAnswer(None, causes, tuple(actions))


def _kinds(rejection: NodeRejection, has_selector: bool) -> Iterator[CauseKind]:
    kind = _BY_FILTER.get(rejection.filter, CauseKind.VOLUME_UNBOUND)
    if rejection.filter == "NodeAffinity":
        kind = CauseKind.NODE_SELECTOR if has_selector else CauseKind.NODE_AFFINITY
    if kind is not CauseKind.NODE_CAPACITY:
        yield kind
        return
    if _TOO_MANY_PODS in rejection.reasons:
        yield CauseKind.POD_COUNT
    if rejection.reasons != (_TOO_MANY_PODS,):
        yield kind


def _cause(kind: CauseKind, rejected: list[NodeRejection], verdicts: NodeVerdicts) -> PendingCause:
    words = dict.fromkeys(reason for one in rejected for reason in one.reasons)
    text = f"{len(rejected)} of {verdicts.total} nodes: {', '.join(words)}"
    first = no_node_text(verdicts)
    is_all = len(rejected) == verdicts.total
    nearest = _nearest(rejected) if kind is CauseKind.NODE_CAPACITY else None
    return PendingCause(
        kind,
        first if is_all and len(words) == 1 else f"no node fits: {text}",
        shortages=() if nearest is None else _shortages(nearest),
    )


def _nearest(rejected: list[NodeRejection]) -> NodeRejection:
    """Return the node that lacks the least: the fewest resources, of these the smallest part."""
    return min(rejected, key=lambda one: (len(one.shortages), _lacking(one), one.node))


def _lacking(rejection: NodeRejection) -> float:
    return sum(one.missing.nano / max(1, one.requested.nano) for one in rejection.shortages)


def _shortages(rejection: NodeRejection) -> tuple[Shortage, ...]:
    return tuple(
        Shortage(one.resource, one.requested, one.used, ZERO, one.allocatable)
        for one in rejection.shortages
    )


def _actions(kind: CauseKind, rejected: list[NodeRejection]) -> Iterator[Unblock]:
    if kind is CauseKind.NODE_CAPACITY:
        yield from _more_capacity(_nearest(rejected))
        return
    if kind is CauseKind.TAINT:
        cordoned = [one for one in rejected if one.filter == "NodeUnschedulable"]
        if cordoned:
            # the first that the pod fits on then, if there is one
            best = min(cordoned, key=lambda one: bool(one.remaining))
            text = f"kubectl uncordon {best.node}{_not_enough(best)}"
            yield Unblock(Action.UNCORDON, text)
        tainted = [one for one in rejected if one.taints]
        if tainted:
            yield Unblock(Action.ADD_TOLERATION, _toleration(tainted))
        if len(cordoned) + len(tainted) == len(rejected):
            return
    for action, text in _ACTIONS[kind]:
        yield Unblock(action, text)


def _toleration(tainted: list[NodeRejection]) -> str:
    """Return the taints to tolerate: those of most nodes, preferring nodes that it fits on then."""
    enough = [one for one in tainted if not one.remaining] or tainted
    (taints, count), *_ = Counter(one.taints for one in enough).most_common(1)
    first = next(one for one in enough if one.taints == taints)
    where = f"node {first.node}" if count == 1 else f"{count} nodes"
    listed = ", ".join(map(str, taints))
    return f"create the pod with a toleration of {listed} ({where}){_not_enough(first)}"


def _not_enough(rejection: NodeRejection) -> str:
    """Return what refuses the node beside its cordon or taints."""
    remaining = ", ".join(rejection.remaining)
    return f", which is not enough: {remaining}" if remaining else ""


def _more_capacity(nearest: NodeRejection) -> Iterator[Unblock]:
    for one in nearest.shortages:
        if one.used >= one.missing:
            text = (
                f"free {one.missing} {one.resource} on node {nearest.node}, which lacks the least"
            )
            yield Unblock(Action.FREE_NODE, text, resource=one.resource, amount=one.missing)
        if one.requested > one.missing:
            text = f"request {one.missing} less of {one.resource} for node {nearest.node}"
            yield Unblock(Action.SHRINK_POD, text, resource=one.resource, amount=one.missing)
        text = f"add a node with {one.requested} free {one.resource}"
        yield Unblock(Action.ADD_NODE, text, resource=one.resource, amount=one.requested)
