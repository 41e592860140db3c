"""Nodes: whether a pod of a manifest fits on any, and on how many a DaemonSet runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from webhook.jsonfields.encoding import encode_json
from webhook.jsonfields.reader import FieldReader
from webhook.quota.checking.values import Issue, PodGroup, Rule, Verdict
from webhook.quota.explaining.node_causes import node_answer
from webhook.quota.nodes.fitting import judge_nodes
from webhook.quota.nodes.model import NodeView

_NOT_WANTED: Final = frozenset({"NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity"})
"""Filters by which the controller of a DaemonSet leaves a node out."""
_TOLERATED: Final[tuple[Mapping[str, object], ...]] = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
"""Source: kubernetes v1.36, pkg/controller/daemon/util/daemonset_util.go
AddOrUpdateDaemonPodTolerations."""


class NodeFit:
    """Judges pods on nodes; of pods that agree in all that filters look at, once."""

    def __init__(self, view: NodeView) -> None:
        self._view = view
        self._issues: dict[bytes, Issue | None] = {}

    def issue(self, group: PodGroup) -> Issue | None:
        """Return that no node fits; see `node_issue`."""
        labels = dict(group.pod.labels)
        key = encode_json([group.raw.get("spec"), labels, group.pod.namespace])
        if key not in self._issues:
            self._issues[key] = node_issue(group, self._view)
        found = self._issues[key]
        return None if found is None else replace(found, field=group.field)


def node_issue(group: PodGroup, view: NodeView) -> Issue | None:
    """Return that no node fits a pod now, beside the pods that run; None if one does.

    Raises:
        InvalidFieldError: A field that is read has the wrong type.
    """
    has_selector = FieldReader(group.raw).child("spec").has("nodeSelector")
    answer = node_answer(judge_nodes(group.raw, view), has_selector=has_selector)
    if not answer.causes:
        return None
    first = answer.causes[0]
    return Issue(
        Rule.NODES, Verdict.NO_NODE_FITS, first.text, group.field, shortages=first.shortages
    )


def nodes_of_daemon_set(pod: Mapping[str, object], view: NodeView) -> int:
    """Return on how many nodes the controller of a DaemonSet makes its pod.

    Raises:
        InvalidFieldError: A field that is read has the wrong type.
    """
    spec = pod.get("spec")
    fields = spec if isinstance(spec, Mapping) else {}
    own = fields.get("tolerations")
    tolerations = [*(own if isinstance(own, list) else ()), *_TOLERATED]
    verdicts = judge_nodes({**pod, "spec": {**fields, "tolerations": tolerations}}, view)
    left_out = sum(one.filter in _NOT_WANTED for one in verdicts.rejected)
    return verdicts.total - left_out
