"""Volumes: claims that are missing or not bound, and volumes that only some nodes reach.

Limits and capacities of CSI drivers are not looked at, nor disks that a pod names without a claim.

Source: kubernetes v1.36, pkg/scheduler/framework/plugins/volumerestrictions, volumebinding,
volumezone; component-helpers/storage/volume/pv_helpers.go FindMatchingVolume.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.nodes.filters import NodeCheck, NoNode, Unknown
from webhook.quota.nodes.model import NodeInfo, NodeView, PendingPod
from webhook.quota.nodes.storage_objects import (
    Claim,
    StorageClass,
    Volume,
    read_claim,
    read_storage_class,
    read_volume,
)

_CLAIM: Final = "persistentVolumeClaim"
_ONE_POD: Final = "ReadWriteOncePod"
_ZONE_LABELS: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Labels of volumes that nodes have to have as well, with their present names."""

_IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already"
    " in-use by another pod"
)
_ELSEWHERE: Final = "node(s) didn't match PersistentVolume's node affinity"
_NOTHING_TO_BIND: Final = "node(s) didn't find available persistent volumes to bind"
_VOLUME_GONE: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_OTHER_ZONE: Final = ("node(s) had no available volume zone",)
_UNBOUND: Final = "pod has unbound immediate PersistentVolumeClaims"


def filter_claims_in_use(pod: PendingPod, view: NodeView) -> NodeCheck | NoNode | Unknown | None:
    """Refuse all nodes while another pod has a claim that only one pod may have."""
    names = [
        volume.child(_CLAIM).text("claimName")
        for volume in pod.spec.children("volumes")
        if volume.has(_CLAIM)
    ]
    if not names:
        return None
    if view.claims_by_key is None:
        return Unknown("persistentvolumeclaims")
    claims: list[Claim] = []
    for name in names:
        found = view.claims_by_key.get(f"{pod.identity.namespace}/{name}")
        if found is None:
            return NoNode(_not_found("persistentvolumeclaim", name))
        claims.append(read_claim(found))
    if any(_ONE_POD in one.access_modes and one.key in view.claims_in_use for one in claims):
        return NodeCheck(lambda _: (_IN_USE,))
    return None


def filter_volumes(pod: PendingPod, view: NodeView) -> NodeCheck | NoNode | Unknown | None:
    """Refuse nodes that do not reach a bound volume, or where none can be bound or made."""
    if view.claims_by_key is None:
        has_claims = any(
            volume.has(_CLAIM) or volume.has("ephemeral") for volume in pod.spec.children("volumes")
        )
        return Unknown("persistentvolumeclaims") if has_claims else None
    claims: list[Claim] = []
    for name, is_ephemeral in _claim_names(pod):
        found = view.claims_by_key.get(f"{pod.identity.namespace}/{name}")
        claim = None if found is None else read_claim(found)
        fault = _fault(claim, name, pod, is_ephemeral=is_ephemeral)
        if fault:
            return NoNode(fault)
        if claim is not None:
            claims.append(claim)
    return _check_claims(claims, view) if claims else None


def filter_volume_zones(pod: PendingPod, view: NodeView) -> NodeCheck | NoNode | None:
    """Refuse nodes in other zones than those that the labels of bound volumes name."""
    if view.claims_by_key is None or view.volumes_by_name is None:
        return None
    zones: list[tuple[str, frozenset[str]]] = []
    for volume in pod.spec.children("volumes"):
        key = f"{pod.identity.namespace}/{volume.child(_CLAIM).text('claimName')}"
        found = view.claims_by_key.get(key) if volume.has(_CLAIM) else None
        name = "" if found is None else read_claim(found).volume_name
        if name and name not in view.volumes_by_name:
            return NoNode(_not_found("persistentvolume", name))
        if name:
            labels = read_volume(view.volumes_by_name[name]).labels
            zones += [
                (label, frozenset(labels[label].split("__")))
                for label in _ZONE_LABELS
                if label in labels
            ]
    return NodeCheck(lambda node: _zone_reasons(node, zones)) if zones else None


def _zone_reasons(node: NodeInfo, zones: Sequence[tuple[str, frozenset[str]]]) -> tuple[str, ...]:
    if _ZONE_LABELS.keys().isdisjoint(node.labels):
        return ()  # a cluster of a single zone may have no labels
    for label, values in zones:
        value = node.labels.get(label, node.labels.get(_ZONE_LABELS[label]))
        if value not in values:
            return _OTHER_ZONE
    return ()


def _claim_names(pod: PendingPod) -> Iterator[tuple[str, bool]]:
    """Yield names of claims, and whether the pod's own controller makes them for it."""
    for volume in pod.spec.children("volumes"):
        if volume.has(_CLAIM):
            yield volume.child(_CLAIM).text("claimName"), False
        elif volume.has("ephemeral"):
            yield f"{pod.name}-{volume.text('name')}", True


def _fault(claim: Claim | None, name: str, pod: PendingPod, *, is_ephemeral: bool) -> str:
    """Return why no node will do for the claim; empty if some may.

    Source: kubernetes v1.36, volumebinding/volume_binding.go podHasPVCs.
    """
    if claim is None:
        if is_ephemeral:
            waiting = "waiting for ephemeral volume controller to create the persistentvolumeclaim"
            return f'{waiting} "{name}"'
        return _not_found("persistentvolumeclaim", name)
    if claim.is_lost:
        gone = f'bound to non-existent persistentvolume "{claim.volume_name}"'
        return f'persistentvolumeclaim "{name}" {gone}'
    if claim.is_deleting:
        return f'persistentvolumeclaim "{name}" is being deleted'
    if is_ephemeral and pod.uid not in claim.owners:
        key = f"{pod.identity.namespace}/{pod.name}"
        return f"PVC {claim.key} was not created for pod {key} (pod is not owner)"
    return ""


def _check_claims(claims: Sequence[Claim], view: NodeView) -> NodeCheck | NoNode | Unknown:
    bound = [one for one in claims if one.is_bound]
    unbound = [one for one in claims if not one.is_bound]
    if unbound and view.classes_by_name is None:
        return Unknown("storageclasses")
    classes = {
        one.class_name: read_storage_class(found)
        for one in unbound
        if view.classes_by_name and (found := view.classes_by_name.get(one.class_name))
    }
    for one in unbound:
        known = classes.get(one.class_name)
        if known is None or not known.waits or one.volume_name:
            return NoNode(_UNBOUND)
    if view.volumes_by_name is None:
        return Unknown("persistentvolumes")
    by_name = view.volumes_by_name
    wanted = {one.class_name for one in unbound}
    volumes = {one.volume_name: by_name[one.volume_name] for one in bound if _is_in(one, by_name)}
    known_volumes = {name: read_volume(found) for name, found in volumes.items()}
    candidates = [one for one in map(read_volume, by_name.values()) if one.class_name in wanted]

    def reasons(node: NodeInfo) -> tuple[str, ...]:
        found = _bound_reasons(bound, known_volumes, node)
        if not _is_bindable(unbound, candidates, classes, node):
            found.append(_NOTHING_TO_BIND)
        return tuple(sorted(found, key=_REASON_ORDER.index))

    return NodeCheck(reasons)


_REASON_ORDER: Final = (_ELSEWHERE, _NOTHING_TO_BIND, _VOLUME_GONE)


def _is_in(claim: Claim, volumes: Mapping[str, ResourceReader]) -> bool:
    return claim.volume_name in volumes


def _bound_reasons(
    claims: Sequence[Claim], volumes: Mapping[str, Volume], node: NodeInfo
) -> list[str]:
    for claim in claims:
        volume = volumes.get(claim.volume_name)
        if volume is None:
            return [_VOLUME_GONE]
        if not volume.is_reached_from(node):
            return [_ELSEWHERE]
    return []


def _is_bindable(
    claims: Sequence[Claim],
    candidates: Sequence[Volume],
    classes: Mapping[str, StorageClass],
    node: NodeInfo,
) -> bool:
    """Return whether each claim gets a volume that there is, or one that is made for it."""
    if any(one.selected_node not in ("", node.name) for one in claims):
        return False
    taken: set[str] = set()
    for claim in sorted(claims, key=lambda one: one.storage):
        volume = None if claim.selected_node else _smallest(claim, candidates, taken, node)
        if volume is not None:
            taken.add(volume.name)
        elif not classes[claim.class_name].can_provision(node):
            return False
    return True


def _smallest(
    claim: Claim, candidates: Sequence[Volume], taken: set[str], node: NodeInfo
) -> Volume | None:
    """Return the volume that is kept for the claim, or else the smallest that will do."""
    fitting = [one for one in candidates if one.name not in taken and _is_alike(one, claim)]
    for one in fitting:
        if one.is_kept_for(claim):
            return one if one.is_reached_from(node) else None
    free = [one for one in fitting if _is_free(one, claim) and one.is_reached_from(node)]
    return min(free, key=lambda one: one.storage, default=None)


def _is_alike(volume: Volume, claim: Claim) -> bool:
    return (
        volume.class_name == claim.class_name
        and (volume.claim is None or volume.is_kept_for(claim))
        and volume.storage >= claim.storage
        and volume.volume_mode == claim.volume_mode
        and volume.attributes_class == claim.attributes_class
        and not volume.is_deleting
    )


def _is_free(volume: Volume, claim: Claim) -> bool:
    return (
        volume.is_available
        and claim.access_modes <= volume.access_modes
        and (claim.selector is None or claim.selector.matches(volume.labels))
    )


def _not_found(kind: str, name: str) -> str:
    return f'{kind} "{name}" not found'
