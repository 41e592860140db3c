"""Quotas that namespaces share, as commands read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import TypeAlias

from webhook.cluster.api import CLUSTER_DEFERRED_QUOTAS, ClusterApi, NotFoundError, Object
from webhook.cluster.kinds import NAMESPACE_NAME_LABEL
from webhook.operations.counting import scope_fault, taken_at_bind
from webhook.operations.findings import Finding, Subject, error, information, warning
from webhook.operations.reading import Inhabitants
from webhook.quota.cluster_quotas import (
    ClusterQuota,
    UnreadableClusterQuota,
    cluster_quota_or_fault,
)
from webhook.quota.deferral import DeferredQuota, deferred_quotas
from webhook.quota.fields import InvalidFieldError
from webhook.quota.grants import NO_GRANTS, Grants, grants_from_status
from webhook.quota.objects import ResourceQuota
from webhook.quota.resources import ResourceList, add, exceeding, mask, render

Spec: TypeAlias = ClusterQuota | UnreadableClusterQuota


@dataclass(frozen=True, slots=True)
class SharedQuota:
    """One of them.

    Attributes:
        spec: What its owner wrote.
        grants: What each namespace holds; nothing where that cannot be read.
        fault: Why that cannot be read.
    """

    spec: Spec
    grants: Grants = NO_GRANTS
    fault: str = ""

    @property
    def subject(self) -> Subject:
        """What findings say it is."""
        return Subject(CLUSTER_DEFERRED_QUOTAS.kind, self.spec.name)


def read_shared(raw: Object) -> SharedQuota:
    """Read one, however odd it is.

    Raises:
        InvalidFieldError: Not even its name can be read.
    """
    spec = cluster_quota_or_fault(raw)
    try:
        return SharedQuota(spec, grants_from_status(raw.get("status"), spec.name))
    except InvalidFieldError as err:
        return SharedQuota(spec, fault=str(err))


def shared_quotas(api: ClusterApi) -> tuple[SharedQuota, ...]:
    """Return all of them, sorted by name; none where they are not installed.

    Raises:
        ApiError: They cannot be listed.
        InvalidFieldError: Not even the name of one can be read.
    """
    try:
        found = api.list(CLUSTER_DEFERRED_QUOTAS).items
    except NotFoundError:
        return ()
    return tuple(sorted(map(read_shared, found), key=lambda one: one.spec.name))


def concerning(
    quotas: Iterable[SharedQuota], namespace: str, labels: Mapping[str, str]
) -> list[SharedQuota]:
    """Return those that select a namespace, or may."""
    known = {NAMESPACE_NAME_LABEL: namespace, **labels}
    return [one for one in quotas if one.spec.selects(known)]


def quotas_of(shared: Iterable[SharedQuota]) -> list[ResourceQuota]:
    """Return those that can be read, as quotas of a namespace."""
    return [one.spec.quota for one in shared if isinstance(one.spec, ClusterQuota)]


def joining(
    namespace: str, shared: Iterable[SharedQuota], there: Inhabitants, keys: Set[str]
) -> Iterator[Finding]:
    """Say which shared quotas will take a namespace in, and whether it fits.

    Args:
        namespace: Which.
        shared: Those that select it.
        there: What it holds.
        keys: The deferred resources.
    """
    for one in shared:
        if not isinstance(one.spec, ClusterQuota):
            message = f"selects {namespace}, and cannot be read: {one.spec.fault}: no pod is bound"
            yield error("enable.cluster-quota", one.subject, message, "Correct it.")
            continue
        fault = scope_fault(one.spec.quota)
        if fault:
            message = f"selects {namespace}, and its scopes cannot be evaluated: {fault}"
            yield error("enable.cluster-quota", one.subject, message, "Correct spec.scopeSelector.")
            continue
        for quota in deferred_quotas([one.spec.quota], keys).quotas:
            yield _joining(namespace, one, quota, there)


def _joining(namespace: str, one: SharedQuota, quota: DeferredQuota, there: Inhabitants) -> Finding:
    others = one.grants.elsewhere(namespace)
    total = add(mask(others, quota.hard), taken_at_bind(quota, there.pods, now=there.now).most)
    number = len(one.grants.namespaces.keys() - {namespace})
    share = f"its pods will share {render(quota.hard)} with {_with_whom(number, others)}"
    above = exceeding(total, quota.hard)
    if not above:
        return information("enable.cluster-quota", one.subject, f"selects {namespace}: {share}")
    return warning(
        "enable.cluster-quota",
        one.subject,
        f"selects {namespace}: {share}: with the pods that have a node here that is"
        f" {render(mask(total, above))}; no pod is evicted, and none is bound in any of them until"
        " enough have ended",
        "Raise the limit, or end some of them.",
    )


def _with_whom(number: int, held: ResourceList) -> str:
    if not number:
        return "no other namespace yet"
    what = render(held) if any(amount.sign for amount in held.values()) else "nothing"
    if number == 1:
        return f"one other namespace, which holds {what}"
    return f"{number} other namespaces, which hold {what}"
