"""Objects of the cluster in manifests: they count before what the cluster holds now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from webhook.jsonfields.encoding import decode_json
from webhook.jsonfields.fields import mapping
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import Object
from webhook.quota.checking.classes import PriorityClass, RuntimeClass
from webhook.quota.checking.limit_ranges import LimitRange
from webhook.quota.checking.limit_rules import CLUSTER_QUOTAS
from webhook.quota.checking.subjects import ManifestObject
from webhook.quota.elastic.elastic_quotas import ElasticQuota, read_elastic_quota
from webhook.quota.objects.defaults import default_quota
from webhook.quota.objects.model import ResourceQuota

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(slots=True)
class Overlay:
    """Objects of the manifests by which others are judged."""

    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Name → labels in the manifests."""
    quotas: dict[str, dict[str, ResourceQuota]] = field(default_factory=dict)
    """Namespace → name → quota that the API server stores where the webhook does not judge it."""
    guarded_quotas: dict[str, dict[str, ResourceQuota]] = field(default_factory=dict)
    """Namespace → name → quota that the webhook admits as well: all there are where it judges."""
    cluster_quotas: dict[str, ManifestObject] = field(default_factory=dict)
    """Name → ClusterDeferredQuota, also one that the webhook refuses."""
    elastic_quotas: dict[str, ElasticQuota] = field(default_factory=dict)
    """Key → elastic quota, in the order of the input."""
    limit_ranges: dict[str, dict[str, LimitRange]] = field(default_factory=dict)
    priorities: dict[str, PriorityClass] = field(default_factory=dict)
    runtimes: dict[str, RuntimeClass] = field(default_factory=dict)
    claims: dict[str, set[str]] = field(default_factory=dict)
    """Namespace → names of PersistentVolumeClaims."""
    objects: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    """Namespace → kind and name of all objects."""

    def add(self, one: ManifestObject) -> None:
        """Take an object in, and what others are judged by if it is such a one.

        Raises:
            InvalidFieldError: It cannot be read.
            InvalidQuantityError: An amount is not a quantity.
        """
        self.objects.setdefault(one.namespace, set()).add((one.kind, one.name))
        take = _TAKERS.get(one.resource)
        if take is not None:
            # what the API server refuses is read all the same: it may be unreadable as well
            is_stored = not (one.name_errors or one.limit_errors)
            take(self if is_stored else Overlay(), one)

    @property
    def shares_quotas(self) -> bool:
        """Whether what one namespace takes may be missed in another."""
        return bool(self.cluster_quotas or self.elastic_quotas)

    def labels_of(self, namespace: str, stored: Object | None) -> Mapping[str, str] | None:
        """Return the labels of a namespace once the manifests are applied; None if there is none.

        As of `kubectl apply`: labels that others have set stay.

        Args:
            namespace: Its name.
            stored: The Namespace; None where none is known.
        """
        brought = self.namespaces.get(namespace)
        if stored is None:
            return brought
        metadata = FieldReader(stored).child("metadata")
        labels = metadata.string_map("labels")
        if brought is None:
            return labels
        applied = _applied_labels(metadata.string_map("annotations").get(_LAST_APPLIED, ""))
        return {**{key: labels[key] for key in labels.keys() - applied}, **brought}

    def quotas_of(self, namespace: str, *, is_guarded: bool) -> Mapping[str, ResourceQuota]:
        """Return the quotas of a namespace by name.

        Args:
            namespace: Its name.
            is_guarded: Whether the namespace defers its quotas, so that the webhook judges them.
        """
        quotas = self.guarded_quotas if is_guarded else self.quotas
        return quotas.get(namespace, {})


def _applied_labels(text: str) -> Set[str]:
    """Return the labels that the last `kubectl apply` of an object has set."""
    try:
        last = decode_json(text)
        return FieldReader(mapping(last, "")).child("metadata").string_map("labels").keys()
    except ValueError:
        return set()


def _take_namespace(overlay: Overlay, one: ManifestObject) -> None:
    metadata = FieldReader(one.raw, one.field).child("metadata")
    overlay.namespaces[one.name] = metadata.string_map("labels")


def _take_quota(overlay: Overlay, one: ManifestObject) -> None:
    raw = default_quota(one.raw, field=one.field)
    found = ResourceQuota.from_object(raw, field=one.field)
    overlay.quotas.setdefault(one.namespace, {})[one.name] = found
    # the mode of the namespace is not known before all is read
    if not one.guarded_limit_errors:
        overlay.guarded_quotas.setdefault(one.namespace, {})[one.name] = found


def _take_cluster_quota(overlay: Overlay, one: ManifestObject) -> None:
    overlay.cluster_quotas[one.name] = one  # what it may limit is as configured


def _take_elastic_quota(overlay: Overlay, one: ManifestObject) -> None:
    if not one.limit_errors:
        metadata = {**mapping(one.raw.get("metadata"), "metadata"), "namespace": one.namespace}
        quota = read_elastic_quota({**one.raw, "metadata": metadata})
        overlay.elastic_quotas[quota.key] = quota


def _take_limit_range(overlay: Overlay, one: ManifestObject) -> None:
    found = LimitRange.from_object(one.raw, field=one.field)
    overlay.limit_ranges.setdefault(one.namespace, {})[one.name] = found


def _take_priority(overlay: Overlay, one: ManifestObject) -> None:
    overlay.priorities[one.name] = PriorityClass.from_object(one.raw, field=one.field)


def _take_runtime(overlay: Overlay, one: ManifestObject) -> None:
    overlay.runtimes[one.name] = RuntimeClass.from_object(one.raw, field=one.field)


def _take_claim(overlay: Overlay, one: ManifestObject) -> None:
    overlay.claims.setdefault(one.namespace, set()).add(one.name)


_TAKERS: Final[Mapping[str, Callable[[Overlay, ManifestObject], None]]] = {
    "namespaces": _take_namespace,
    "resourcequotas": _take_quota,
    CLUSTER_QUOTAS: _take_cluster_quota,
    "elasticquotas.nos.nebuly.com": _take_elastic_quota,
    "compositeelasticquotas.nos.nebuly.com": _take_elastic_quota,
    "limitranges": _take_limit_range,
    "persistentvolumeclaims": _take_claim,
    "priorityclasses.scheduling.k8s.io": _take_priority,
    "runtimeclasses.node.k8s.io": _take_runtime,
}
"""Resource → how it is taken in."""
