"""Nodes: whether a pod of a manifest fits on any, and on how many a DaemonSet runs."""

from __future__ import annotations

from collections.abc import Mapping, Set
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
_NO_CLAIMS: Final[Mapping[str, Set[str]]] = {}


class NodeFit:
    """Judges pods on nodes; of pods that agree in all that filters look at, once."""

    def __init__(self, view: NodeView, brought: Mapping[str, Set[str]] = _NO_CLAIMS) -> None:
        """Take the nodes.

        Args:
            view: The nodes and what is on them.
            brought: Claims of the manifests, namespace → names. Where one is not there yet, it is
                not known which volume it will have, and no node is refused for it.
        """
        self._view = view
        there = {_key(raw) for raw in view.claims or ()}
        self._brought = {
            (namespace, name) for namespace, names in brought.items() for name in names
        } - there
        self._issues: dict[bytes, Issue | None] = {}

    def issue(self, group: PodGroup) -> Issue | None:
        """Return that no node fits; see `node_issue`."""
        group = replace(group, raw=self._without_brought(group.raw, group.pod.namespace))
        labels = dict(group.pod.labels)
        key = encode_json([group.raw.get("spec"), labels, group.pod.namespace])
        if key not in self._issues:
            self._issues[key] = node_issue(group, self._view)
        found = self._issues[key]
        return None if found is None else replace(found, field=group.field)

    def _without_brought(self, pod: Mapping[str, object], namespace: str) -> Mapping[str, object]:
        """Return a pod without the volumes whose claims the manifests bring."""
        spec = pod.get("spec")
        volumes = spec.get("volumes") if isinstance(spec, Mapping) else None
        if not self._brought or not isinstance(spec, Mapping) or not isinstance(volumes, list):
            return pod
        kept = [one for one in volumes if (namespace, _claim_of(one)) not in self._brought]
        return {**pod, "spec": {**spec, "volumes": kept}}


def _claim_of(volume: object) -> str:
    claim = volume.get("persistentVolumeClaim") if isinstance(volume, Mapping) else None
    return str(claim.get("claimName")) if isinstance(claim, Mapping) else ""


def _key(raw: Mapping[str, object]) -> tuple[str, str]:
    metadata = FieldReader(raw).child("metadata")
    return metadata.text("namespace"), metadata.text("name")


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
