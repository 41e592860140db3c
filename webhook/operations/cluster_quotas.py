"""Quotas that namespaces share, as commands read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    NAMESPACES,
    ClusterApi,
    ForbiddenError,
    NotFoundError,
    Object,
)
from webhook.kube.kinds import NAMESPACE_NAME_LABEL
from webhook.operations.counting import scope_fault, taken_at_bind
from webhook.operations.findings import Finding, Subject, error, first_of, information, warning
from webhook.operations.reading import Inhabitants
from webhook.quota.amounts.resources import ResourceList, add, exceeding, mask, render
from webhook.quota.charging.deferral import DeferredQuota, NamespaceQuotas
from webhook.quota.objects.model import ResourceQuota
from webhook.quota.shared.cluster_quotas import (
    ClusterQuota,
    UnreadableClusterQuota,
    cluster_quota_or_fault,
)
from webhook.quota.shared.grants import NO_GRANTS, Grants, grants_from_status
from webhook.state.well_known import DEFERRED_MODE, MODE_LABEL

Spec: TypeAlias = ClusterQuota | UnreadableClusterQuota

_NAMED: Final = 3
"""How many namespaces are named."""


@dataclass(frozen=True, slots=True)
class SharedQuota:
    """One of them."""

    spec: Spec
    """What its owner wrote."""
    grants: Grants = NO_GRANTS
    """What each namespace holds; nothing where that cannot be read."""
    fault: str = ""
    """Why that cannot be read."""

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


@dataclass(frozen=True, slots=True)
class Company:
    """Namespaces that will share quotas."""

    shared: tuple[SharedQuota, ...] = ()
    """All quotas that namespaces share."""
    beside: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The namespaces that opt in at the same time, and their labels."""
    is_shadow: bool = False
    """They only go into shadow mode, in which nothing is shared."""

    def joins(self, namespace: str, one: SharedQuota) -> list[str]:
        """Return the other namespaces that begin to share a quota, sorted by name."""
        if self.is_shadow:
            return []
        others = self.beside.keys() - {namespace} - one.grants.namespaces.keys()
        return sorted(name for name in others if concerning([one], name, self.beside[name]))


def company_of(api: ClusterApi, namespaces: Iterable[str], *, is_shadow: bool = False) -> Company:
    """Read which quotas namespaces that opt in together will share, and with which others.

    Raises:
        ApiError: The API server does not answer, or does not show the shared quotas.
        InvalidFieldError: Not even the name of one can be read.
    """
    shared = shared_quotas(api)
    beside: dict[str, Mapping[str, str]] = {}
    for name in namespaces if shared and not is_shadow else ():
        try:
            labels = FieldReader(api.get(NAMESPACES, name)).child("metadata").string_map("labels")
        except (NotFoundError, ForbiddenError, InvalidFieldError):
            continue  # told where it is opted in
        beside[name] = {**labels, MODE_LABEL: DEFERRED_MODE}
    return Company(shared, beside, is_shadow)


def joining(
    namespace: str,
    selecting: Iterable[SharedQuota],
    company: Company,
    there: Inhabitants,
    deferred_of: Callable[[Iterable[ResourceQuota]], NamespaceQuotas],
) -> Iterator[Finding]:
    """Return which shared quotas will take a namespace in, and whether it fits.

    Args:
        selecting: Those that select it.
        company: With whom it will share.
        there: What it holds.
        deferred_of: Chooses those quotas that are deferred.
    """
    bound = "would be" if company.is_shadow else "is"
    for one in selecting:
        selects = f"selects {namespace}"
        if not isinstance(one.spec, ClusterQuota):
            message = f"{selects}, and cannot be read: {one.spec.fault}: no pod {bound} bound"
            yield error("enable.cluster-quota", one.subject, message, "Correct it.")
            continue
        fault = scope_fault(one.spec.quota)
        if fault:
            message = f"{selects}, and its scopes cannot be evaluated: {fault}"
            yield error("enable.cluster-quota", one.subject, message, "Correct spec.scopeSelector.")
            continue
        for quota in deferred_of([one.spec.quota]).quotas:
            yield _joining(namespace, one, quota, company, there)


def _joining(
    namespace: str, one: SharedQuota, quota: DeferredQuota, company: Company, there: Inhabitants
) -> Finding:
    others = one.grants.without_headroom.held_elsewhere(namespace)
    total = add(mask(others, quota.hard), taken_at_bind(quota, there.pods, now=there.now).most)
    number = len(one.grants.namespaces.keys() - {namespace})
    share, when, evicted = "will share", "", "no pod is evicted, and none is bound"
    if company.is_shadow:
        share, when = "would share", ", if it opted in"
        evicted = "no pod would be evicted, and none bound"
    whom = _with_whom(number, others, company.joins(namespace, one))
    message = f"selects {namespace}: its pods {share} {render(quota.hard)} with {whom}{when}"
    above = exceeding(total, quota.hard)
    if not above:
        return information("enable.cluster-quota", one.subject, message)
    return warning(
        "enable.cluster-quota",
        one.subject,
        f"{message}: with the pods that have a node here that is {render(mask(total, above))};"
        f" {evicted} in any of them until enough have ended",
        "Raise the limit, or end some of them.",
    )


def _with_whom(number: int, held: ResourceList, joining: Sequence[str]) -> str:
    """Return which namespaces share a quota already, and which begin to."""
    if not number and not joining:
        return "no other namespace yet"
    what = render(held) if any(amount.sign for amount in held.values()) else "nothing"
    parts = []
    if number == 1:
        parts.append(f"one other namespace, which holds {what}")
    elif number:
        parts.append(f"{number} other namespaces, which hold {what}")
    if joining:
        parts.append(f"{first_of(joining, _NAMED)}, opted in together with it")
    return ", and ".join(parts)
