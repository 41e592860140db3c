"""Whether the pods on a node request more than it has for pods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import NODES, PODS, Object
from webhook.operations.doctor.check_context import CheckContext
from webhook.operations.findings import Finding, Subject, subject_of, warning
from webhook.quota.nodes.model import NodeInfo, NodeView
from webhook.quota.nodes.requested import Amounts, as_quantity, requested_of

_ENDED: Final = ("Succeeded", "Failed")


def overcommitted(scene: CheckContext) -> Iterator[Finding]:
    """Compare what pods request with the allocatable resources of their nodes, as the scheduler.

    Not looked at where no namespace has opted in, or only some namespaces are asked about.

    Raises:
        NoRightError: Nodes, or pods of all namespaces, may not be listed.
        NotInSnapshotError: A snapshot has no nodes.
        InvalidFieldError: A node or a pod cannot be read.
    """
    if scene.settings.namespaces or not scene.deferred_namespaces():
        return
    nodes = NodeView(scene.objects(NODES), ()).infos
    requested: dict[str, dict[str, int]] = {}
    for node, amounts in filter(None, scene.assigned_pods(_requested)):
        total = requested.setdefault(node, {})
        for resource, amount in amounts.items():
            total[resource] = total.get(resource, 0) + amount
    for info in nodes:
        above = list(_above(info, requested.get(info.name, {})))
        if above:
            yield warning(
                "node.overcommitted",
                Subject(NODES.kind, info.name),
                f"its pods request more than is allocatable: {', '.join(above)}",
                "The kubelet refuses such a pod when it starts anew, or the node has shrunk. Which"
                " pods came past the scheduler: kubectl get pods -A --field-selector"
                f" spec.nodeName={info.name}",
            )


def _requested(raw: Object) -> tuple[str, Amounts] | None:
    """Return the node of a pod that has not ended, and what the pod takes of it."""
    node = FieldReader(raw).child("spec").text("nodeName")
    if not node or FieldReader(raw).child("status").text("phase") in _ENDED:
        return None
    subject = subject_of(PODS, raw)
    return node, requested_of(raw, field=f"{subject.namespace}/{subject.name}").amounts


def _above(node: NodeInfo, requested: Amounts) -> Iterator[str]:
    """Name the resources of which more is requested; those that the node reports only."""
    for resource, has in sorted(node.allocatable.items()):
        wanted = requested.get(resource, 0)
        if wanted > has:
            yield f"{resource} {as_quantity(resource, wanted)} of {as_quantity(resource, has)}"
