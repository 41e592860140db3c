"""Objects of storage as filters see them: claims, volumes, and their classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.nodes.model import NodeInfo
from webhook.quota.nodes.node_affinity import NodeSelectorTerm, read_terms
from webhook.quota.objects.label_selectors import LabelSelector, read_selector_at

_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim."""

    key: str
    name: str
    uid: str
    class_name: str
    volume_name: str
    is_bound: bool
    is_lost: bool
    is_deleting: bool
    selected_node: str
    """The node that a volume is being made for; empty if none is."""
    storage: Quantity
    access_modes: frozenset[str]
    volume_mode: str
    attributes_class: str
    selector: LabelSelector | None
    """None is met by every volume."""
    owners: frozenset[str]
    """Uids of the controllers."""


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume."""

    name: str
    labels: Mapping[str, str]
    class_name: str
    storage: Quantity
    access_modes: frozenset[str]
    volume_mode: str
    attributes_class: str
    is_available: bool
    is_deleting: bool
    claim: tuple[str, str] | None
    """Key and uid of the claim that it is bound to or kept for; the uid may be empty."""
    terms: tuple[NodeSelectorTerm, ...] | None
    """Node affinity; None is met by every node."""

    def is_reached_from(self, node: NodeInfo) -> bool:
        """Return whether the volume can be mounted on the node."""
        if self.terms is None:
            return True
        return any(term.matches(node.labels, node.name) for term in self.terms)

    def is_kept_for(self, claim: Claim) -> bool:
        """Return whether the volume is bound to the claim, or names it."""
        return self.claim is not None and (
            self.claim[0] == claim.key and self.claim[1] in ("", claim.uid)
        )


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A StorageClass."""

    provisioner: str
    waits: bool
    """Whether volumes are bound when the node is known."""
    topologies: tuple[tuple[tuple[str, frozenset[str]], ...], ...]
    """Terms of labels and values, one of which a node has to meet; none is met by every node."""

    def can_provision(self, node: NodeInfo) -> bool:
        """Return whether a volume is made for the node, as far as its labels go."""
        if self.provisioner in ("", _NO_PROVISIONER):
            return False
        return not self.topologies or any(
            all(node.labels.get(label) in values for label, values in term)
            for term in self.topologies
        )


def read_claim(raw: ResourceReader) -> Claim:
    """Read a claim from its API object."""
    metadata, spec, status = raw.child("metadata"), raw.child("spec"), raw.child("status")
    annotations = metadata.string_map("annotations")
    volume_name = spec.text("volumeName")
    return Claim(
        key=f"{metadata.text('namespace')}/{metadata.text('name')}",
        name=metadata.text("name"),
        uid=metadata.text("uid"),
        class_name=annotations.get(_CLASS_ANNOTATION) or spec.text("storageClassName"),
        volume_name=volume_name,
        is_bound=volume_name != "" and _BIND_COMPLETED in annotations,
        is_lost=status.text("phase") == "Lost",
        is_deleting=metadata.has("deletionTimestamp"),
        selected_node=annotations.get(_SELECTED_NODE, ""),
        storage=spec.child("resources").resource_list("requests").get("storage", ZERO),
        access_modes=frozenset(spec.strings("accessModes")),
        volume_mode=spec.text("volumeMode") or "Filesystem",
        attributes_class=spec.text("volumeAttributesClassName"),
        selector=read_selector_at(spec, "selector"),
        owners=frozenset(
            owner.text("uid")
            for owner in metadata.children("ownerReferences")
            if owner.boolean("controller")
        ),
    )


def read_volume(raw: ResourceReader) -> Volume:
    """Read a volume from its API object."""
    metadata, spec = raw.child("metadata"), raw.child("spec")
    annotations = metadata.string_map("annotations")
    claim = spec.child("claimRef")
    affinity = spec.child("nodeAffinity")
    return Volume(
        name=metadata.text("name"),
        labels=metadata.string_map("labels"),
        class_name=annotations.get(_CLASS_ANNOTATION) or spec.text("storageClassName"),
        storage=spec.resource_list("capacity").get("storage", ZERO),
        access_modes=frozenset(spec.strings("accessModes")),
        volume_mode=spec.text("volumeMode") or "Filesystem",
        attributes_class=spec.text("volumeAttributesClassName"),
        is_available=raw.child("status").text("phase") == "Available",
        is_deleting=metadata.has("deletionTimestamp"),
        claim=(f"{claim.text('namespace')}/{claim.text('name')}", claim.text("uid"))
        if spec.has("claimRef")
        else None,
        terms=read_terms(affinity.child("required")) if affinity.has("required") else None,
    )


def read_storage_class(raw: ResourceReader) -> StorageClass:
    """Read a class from its API object."""
    return StorageClass(
        raw.text("provisioner"),
        raw.text("volumeBindingMode") == "WaitForFirstConsumer",
        tuple(
            tuple(
                (one.text("key"), frozenset(one.strings("values")))
                for one in term.children("matchLabelExpressions")
            )
            for term in raw.children("allowedTopologies")
        ),
    )
