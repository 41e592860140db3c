"""Quotas that namespaces share, as they are once the manifests are applied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from webhook.jsonfields.fields import FieldError, InvalidFieldError
from webhook.kube.api import (
    COMPOSITE_ELASTIC_QUOTAS,
    ELASTIC_QUOTAS,
    NAMESPACES,
    PODS,
    Kind,
    Object,
)
from webhook.kube.metadata import object_name
from webhook.operations.check.overlay import Overlay
from webhook.operations.cluster_quotas import SharedQuota, concerning, quotas_of, shared_quotas
from webhook.operations.counting import taken_at_bind
from webhook.operations.explain.session import Session
from webhook.policy import Policy
from webhook.quota.amounts.resources import ResourceList, mask, subtract, total_of
from webhook.quota.charging.deferral import DeferredQuota
from webhook.quota.checking.limit_rules import cluster_limit_errors
from webhook.quota.elastic.derived_quotas import derived_quotas
from webhook.quota.elastic.elastic_quotas import (
    ElasticQuota,
    conflicts,
    read_stored_quota,
    taken_errors,
)
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import DERIVED_PREFIXES
from webhook.quota.shared.cluster_quotas import cluster_quota, own_name
from webhook.state.well_known import DEFERRED_MODE, MODE_LABEL

_NOT_YET: Final = "~"
"""Time of creation of an object that is not there yet: behind all that are."""


@dataclass(frozen=True, slots=True)
class _Elastic:
    """Elastic quotas of the cluster and of the manifests."""

    counting: tuple[ElasticQuota, ...]
    """Those that count."""
    refused: Mapping[str, Sequence[FieldError]]
    """Key of one of the manifests → why the webhook refuses it beside the others."""


@dataclass(frozen=True, slots=True)
class _Held:
    """Usage of a shared quota by the assigned pods of the cluster."""

    total: ResourceList
    by_namespace: Mapping[str, ResourceList]


class SharedQuotas:
    """ClusterDeferredQuotas of a cluster, or none, with those of the manifests over them.

    Those by which elastic quotas are charged are made anew where the manifests have elastic quotas.
    """

    def __init__(
        self, session: Session, overlay: Overlay, policy: Policy, *, is_known: bool
    ) -> None:
        self._session = session
        self._overlay = overlay
        self._policy = policy
        self._is_known = is_known
        self._held: dict[str, _Held] = {}
        """By the quota's name in ledgers."""

    def of_namespace(self, namespace: str, labels: Mapping[str, str]) -> list[ResourceQuota]:
        """Return those that a namespace shares and that can be read, by names in ledgers."""
        return quotas_of(concerning(self._by_name.values(), namespace, labels))

    def held_elsewhere(self, quota: DeferredQuota, namespace: str) -> ResourceList:
        """Return what the assigned pods of other namespaces take of a shared quota.

        Raises:
            ScopeError: Its scopes cannot be evaluated.
        """
        if quota.name not in self._held:
            self._held[quota.name] = self._held_of(quota)
        held = self._held[quota.name]
        return subtract(held.total, mask(held.by_namespace.get(namespace, {}), held.total))

    def _held_of(self, quota: DeferredQuota) -> _Held:
        shared = [self._by_name[own_name(quota.name)]]
        by_namespace: dict[str, ResourceList] = {}
        for namespace, pods in self._pods.items():
            labels = self._namespaces.get(namespace, {})
            if self._is_deferred(namespace) and concerning(shared, namespace, labels):
                by_namespace[namespace] = taken_at_bind(quota, pods).most
        return _Held(total_of(by_namespace.values()), by_namespace)

    def refusals(self, kind: str, namespace: str, name: str) -> Sequence[FieldError]:
        """Return why the webhook refuses an elastic quota of the manifests beside others."""
        return self._elastic.refused.get(f"{kind} {namespace}/{name}", ())

    @cached_property
    def _namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """Labels of all namespaces."""
        raws = self._objects(NAMESPACES, "the labels of namespaces")
        stored = {object_name(raw): raw for raw in raws}
        return {
            name: self._overlay.labels_of(name, stored.get(name)) or {}
            for name in stored.keys() | self._overlay.namespaces.keys()
        }

    def _is_deferred(self, namespace: str) -> bool:
        mode = self._namespaces.get(namespace, {}).get(MODE_LABEL)
        return mode == DEFERRED_MODE and namespace not in self._policy.exempt_namespaces

    @cached_property
    def _pods(self) -> Mapping[str, Sequence[Pod]]:
        """Pods of the cluster, by namespace."""
        pods: dict[str, list[Pod]] = {}
        for pod in self._readable_pods(self._objects(PODS)):
            pods.setdefault(pod.namespace, []).append(pod)
        return pods

    def _objects(self, kind: Kind, what: str = "") -> Sequence[Object]:
        """Return the objects of the cluster; none where there is none."""
        return (self._session.readable(kind, what) if self._is_known else None) or ()

    def _readable_pods(self, raws: Sequence[Object]) -> Iterator[Pod]:
        for raw in raws:
            try:
                yield Pod.from_stored(raw)
            except InvalidFieldError as err:
                self._session.unknown.append(f"{object_name(raw)}: {err}")

    @cached_property
    def _by_name(self) -> Mapping[str, SharedQuota]:
        none: tuple[SharedQuota, ...] = ()
        api = self._session.api
        stored = self._session.read(lambda: shared_quotas(api), none, "cluster quotas")
        found = {one.spec.name: one for one in stored}
        for name, one in self._overlay.cluster_quotas.items():
            if not cluster_limit_errors(one.raw, self._policy.deferred_keys):
                found[name] = SharedQuota(cluster_quota(one.raw))
        elastic = self._session.options.configuration.elastic
        if not (elastic.enabled and self._overlay.elastic_quotas):
            return found
        kept = {name: one for name, one in found.items() if not name.startswith(DERIVED_PREFIXES)}
        derived = derived_quotas(self._elastic.counting, self._is_deferred, elastic.gpu_memory_gb)
        for name, quota in derived.items():
            raw = {"metadata": {"name": name}, "spec": quota.spec}
            kept[name] = SharedQuota(cluster_quota(raw))
        return kept

    @cached_property
    def _elastic(self) -> _Elastic:
        there = {one.key: one for one in self._stored_elastic()}
        refused: dict[str, Sequence[FieldError]] = {}
        for key, quota in self._overlay.elastic_quotas.items():
            stored = there.get(key)
            made = replace(quota, created=_NOT_YET if stored is None else stored.created)
            if stored == made:
                continue  # nothing changes, so the webhook does not compare it
            # elsewhere no webhook is asked: it is stored, and the older one counts
            is_judged = self._is_deferred(quota.namespace)
            errors = tuple(taken_errors(quota, there.values())) if is_judged else ()
            if errors:
                refused[key] = errors
            else:
                there[key] = made
        faults = conflicts(there.values())
        counting = tuple(one for key, one in there.items() if key not in faults)
        return _Elastic(counting, refused)

    def _stored_elastic(self) -> Iterator[ElasticQuota]:
        for kind in (ELASTIC_QUOTAS, COMPOSITE_ELASTIC_QUOTAS):
            for raw in self._objects(kind):
                try:
                    yield read_stored_quota({**raw, "kind": kind.kind})
                except InvalidFieldError as err:
                    self._session.unknown.append(f"{kind.kind} {object_name(raw)}: {err}")
