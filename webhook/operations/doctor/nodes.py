"""Whether more is requested of nodes, or guaranteed by elastic quotas, than they have for pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from webhook.jsonfields.fields import mapping
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import NODES, PODS, Object
from webhook.operations.doctor.check_context import CheckContext
from webhook.operations.findings import Finding, Subject, subject_of, warning
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import (
    ResourceList,
    add,
    exceeding,
    mask,
    parse_stored_list,
    render,
)
from webhook.quota.charging.gpu_memory import gb_of, gpu_memory, gpu_memory_keys
from webhook.quota.nodes.model import NodeInfo, NodeView
from webhook.quota.nodes.requested import Amounts, as_quantity, requested_of
from webhook.quota.objects.names import POOL_PREFIX
from webhook.quota.shared.cluster_quotas import ClusterQuota

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
    raws = scene.objects(NODES)
    yield from _pools(scene, raws)
    nodes = NodeView(raws, ()).infos
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
    return node, requested_of(raw, field=str(subject)).amounts


def _above(node: NodeInfo, requested: Amounts) -> Iterator[str]:
    """Name the resources of which more is requested; those that the node reports only."""
    for resource, has in sorted(node.allocatable.items()):
        wanted = requested.get(resource, 0)
        if wanted > has:
            yield f"{resource} {as_quantity(resource, wanted)} of {as_quantity(resource, has)}"


def _pools(scene: CheckContext, nodes: Sequence[Object]) -> Iterator[Finding]:
    """Compare what the quotas of a pool guarantee together with what all nodes have."""
    total: ResourceList = {}
    for raw in nodes:
        status = mapping(raw.get("status"), "status")
        field = f"{subject_of(NODES, raw)}.status.allocatable"
        has = parse_stored_list(status.get("allocatable"), field=field)
        total = add(total, {f"requests.{key}": amount for key, amount in has.items()})
    for one, _ in scene.cluster_quotas():
        if not isinstance(one.spec, ClusterQuota) or not one.spec.name.startswith(POOL_PREFIX):
            continue
        hard = one.spec.quota.hard
        memory = {key: gpu_memory(total, gb_of(key)) for key in gpu_memory_keys(hard)}
        known = {**total, **{key: found.amount for key, found in memory.items() if found}}
        has = {key: known.get(key, ZERO) for key in hard}
        above = exceeding(hard, has)
        if above:
            yield warning(
                "elastic.pool-above-nodes",
                one.subject,
                f"its elastic quotas guarantee {render(mask(hard, above))} together, and all nodes"
                f" have {render(mask(has, above))}: not each of them can have its min",
                "Lower spec.min of some, or add nodes.",
            )
