"""Deferred part of a quota, and the claims of requests on it.

Deferred are the compute resources (`names.DEFERRED_KEYS`) and whatever extended resources the
configuration adds; the rest of a quota stays with the API server. Of a quota that several
namespaces share every extended resource is deferred, and GPU memory, because the API server charges
nothing of it. Ceilings are those of `spec.hard`, which its owner wrote: `status.hard` has the
deferred resources removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.fields import key as keyed
from webhook.quota.amounts.quantity import COUNTABLE, UNCOUNTABLE, ZERO, Quantity
from webhook.quota.amounts.resources import (
    ResourceList,
    counted,
    excess,
    mask,
    remove_zeros,
    uncountable_names,
)
from webhook.quota.charging.gpu_memory import gb_of, gpu_memory, gpu_memory_keys
from webhook.quota.charging.pod_usage import MANY_NAMES, charged_to
from webhook.quota.charging.scopes import ScopeError, is_terminating, matches
from webhook.quota.ledger.ledger import NEWEST, Claim, QuotaRevision, ReservationSource
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS, is_extended_resource
from webhook.quota.objects.qos import effective_qos_class

_REQUESTS: Final = "requests."

TOO_LARGE: Final = "is too large to be counted"

EXCLUDE_ANNOTATION: Final = "deferredquota.io/exclude"
"""Set to "true" on a ResourceQuota, it leaves all of that quota to the API server."""


class QuotaScopeError(ScopeError):
    """The scopes of one quota cannot be evaluated.

    Attributes:
        quota: The quota's name.
    """

    def __init__(self, quota: str, cause: ScopeError) -> None:
        super().__init__(cause.expression, cause.detail, field=cause.field)
        self.quota = quota


@dataclass(frozen=True, slots=True)
class DeferredQuota:
    """A quota that limits deferred resources."""

    quota: ResourceQuota
    hard: ResourceList
    observed: QuotaRevision
    """Its state, and how usage is counted for it."""
    holds_terminating: bool = False
    """A pod that is stuck terminating is charged until it is gone."""

    @property
    def name(self) -> str:
        """The quota's name."""
        return self.quota.name


@dataclass(frozen=True, slots=True)
class NamespaceQuotas:
    """The deferred quotas of one namespace, sorted by name."""

    quotas: tuple[DeferredQuota, ...]
    observed: frozenset[QuotaRevision]
    """Their states, and how usage is counted for them."""
    keys: Set[str] = frozenset()
    """What pods are charged: what the configuration defers, and what shared quotas name."""
    holds_terminating: bool = False
    """As in each of the quotas."""

    def count_as(self, other: NamespaceQuotas) -> bool:
        """Return whether usage is counted alike for other quotas: not what the platform counted."""
        return self is other or (
            self.observed == other.observed
            and self.keys == other.keys
            and self.holds_terminating == other.holds_terminating
        )

    def applying_to(self, pod: Pod) -> tuple[DeferredQuota, ...]:
        """Return the quotas whose scopes select `pod`.

        Raises:
            QuotaScopeError: A quota's scopes cannot be evaluated.
        """
        return tuple([each for each in self.quotas if selects(each.quota, pod)])


def is_excluded(quota: ResourceQuota) -> bool:
    """Return whether the quota's owner leaves it to the API server."""
    return quota.annotations.get(EXCLUDE_ANNOTATION) == "true"


def deferred_part(resources: ResourceList, keys: Set[str]) -> dict[str, Quantity]:
    """Return the deferred resources of a list, as they are counted (`resources.counted`).

    Less than nothing counts as nothing, unlike in the API server's own evaluator: a node can report
    such an amount, and where clients need no certificate a forged review can name one. It would
    give to others what the quota does not have, and no ledger with it could be read.
    """
    part = {name: amount for name, amount in resources.items() if name in keys}
    for key in gpu_memory_keys(keys):
        if key not in part and (memory := gpu_memory(resources, gb_of(key))) is not None:
            part[key] = memory.amount
    if MANY_NAMES in resources:
        part.update(dict.fromkeys(keys - DEFERRED_KEYS, UNCOUNTABLE))
    for name, amount in part.items():
        if amount.nano < 0:
            part[name] = ZERO
    return counted(part) if uncountable_names(part) else part


def limits_of(quota: ResourceQuota, keys: Set[str]) -> dict[str, Quantity]:
    """Return the deferred ceilings of a quota; none is above what is counted.

    So that what cannot be counted is above every one of them.
    """
    deferred = keys | shared_keys(quota.hard) if quota.is_shared else keys
    return {name: min(amount, COUNTABLE) for name, amount in quota.hard.items() if name in deferred}


def shared_keys(names: Iterable[str]) -> Set[str]:
    """Return those of some quota keys that a quota of several namespaces defers in any case."""
    listed = set(names)
    requests = {name for name in listed if name.startswith(_REQUESTS)}
    extended = {name for name in requests if is_extended_resource(name.removeprefix(_REQUESTS))}
    return extended.union(gpu_memory_keys(listed))


def uncountable_fields(pod: Pod, keys: Set[str]) -> tuple[str, ...]:
    """Return where a pod asks for so much of a deferred resource that it cannot be counted.

    Those are YAML paths; only the quota key where it is the sum that is too large, or where the pod
    names too many resources.
    """
    names = uncountable_names(deferred_part(charged_to(pod), keys))
    return tuple(dict.fromkeys(uncountable_places(pod, names)) or names)


def uncountable_places(pod: Pod, names: Iterable[str]) -> Iterator[str]:
    """Yield the paths of the amounts of some quota keys that are too large; one may come twice."""
    for name in names:
        resource = name.removeprefix("requests.").removeprefix("limits.")
        side = "limits" if name.startswith("limits.") else "requests"
        yield from _places(pod, side, resource)


def _places(pod: Pod, side: str, resource: str) -> Iterator[str]:
    """Yield the paths of the amounts of one resource that are too large to be counted."""
    lists = [
        (f"spec.{name}[{index}].resources.{side}", one.limits if side == "limits" else one.requests)
        for name, containers in (
            ("containers", pod.containers),
            ("initContainers", pod.init_containers),
        )
        for index, one in enumerate(containers)
        if " " not in one.name  # else it stands for several, see `keeping`
    ]
    if pod.resources is not None:
        whole = pod.resources.limits if side == "limits" else pod.resources.requests
        lists.append((f"spec.resources.{side}", whole))
    lists.append(("spec.overhead", pod.overhead))
    for path, amounts in lists:
        if resource in uncountable_names(amounts):
            yield keyed(path, resource)


def check_countable(pod: Pod, keys: Set[str]) -> None:
    """Refuse a pod that asks for more of a deferred resource than can be counted.

    Raises:
        InvalidFieldError: It does; the error has the path.
    """
    for path in uncountable_fields(pod, keys):
        raise InvalidFieldError(path, TOO_LARGE)


def deferred_quotas(
    quotas: Iterable[ResourceQuota], keys: Set[str], *, holds_terminating: bool = False
) -> NamespaceQuotas:
    """Choose the quotas of a namespace that limit resources named in `keys`."""
    chosen = [
        DeferredQuota(
            quota,
            hard,
            observed_as(quota, hard, holds_terminating=holds_terminating),
            holds_terminating,
        )
        for quota in sorted(quotas, key=lambda quota: quota.name)
        if not is_excluded(quota) and (hard := limits_of(quota, keys))
    ]
    observed = frozenset(each.observed for each in chosen)
    own = [each.hard for each in chosen if each.quota.is_shared and not each.hard.keys() <= keys]
    charged = frozenset(keys).union(*own) if own else keys
    return NamespaceQuotas(tuple(chosen), observed, charged, holds_terminating)


def observed_as(
    quota: ResourceQuota, hard: ResourceList, *, holds_terminating: bool = False
) -> QuotaRevision:
    """Return what usage is counted for: the object, its spec, and how the configuration counts.

    Replicas whose configurations differ for a while then do not decide by each other's counts.

    Args:
        hard: Those of its ceilings that are deferred.
        holds_terminating: Pods that are stuck terminating are charged until they are gone.
    """
    names = sha256(ascii(sorted(hard)).encode()).hexdigest()[:8]
    held = "-hold" if holds_terminating else ""  # the default keeps the hash that it always had
    return QuotaRevision(quota.name, quota.uid, f"{quota.spec_hash}-{names}{held}")


def claim_for_bind(
    pod: Pod,
    quotas: NamespaceQuotas,
    *,
    source: ReservationSource,
    observed_version: int,
    applying: tuple[DeferredQuota, ...] | None = None,
) -> Claim | None:
    """Return what giving `pod` a node claims; None when it takes nothing that is limited.

    Args:
        pod: The pod as it will run.
        quotas: The deferred quotas of its namespace.
        source: BIND or CREATE.
        observed_version: How far the handler had seen pods when it looked this one up
            (`Claim.observed_version`).
        applying: The quotas that apply to the pod, if the caller knows them already.

    Raises:
        QuotaScopeError: A quota's scopes cannot be evaluated.
    """
    usage = deferred_part(charged_to(pod), quotas.keys)
    if not usage or not quotas.quotas:
        return None
    if applying is None:
        applying = quotas.applying_to(pod)
    names = tuple([each.name for each in applying])
    return Claim(pod.uid, pod.name, source, usage, names, observed_version=observed_version)


def claim_for_update(
    old: Pod, new: Pod, quotas: NamespaceQuotas, *, source: ReservationSource
) -> Claim | None:
    """Return what changing a stored pod claims; None when it grows in no quota.

    Growth is what the API server counts on an update: per resource the new usage above the old
    one where the quota applied to the pod before, and all of it where it did not.

    Raises:
        QuotaScopeError: A quota's scopes cannot be evaluated.
    """
    # a verdict that a former resize cannot be granted says nothing of this one
    usage = deferred_part(charged_to(replace(new, resize_infeasible=False)), quotas.keys)
    before = deferred_part(charged_to(old), quotas.keys)
    applied = {each.name for each in quotas.applying_to(old)}
    applying = tuple([each.name for each in quotas.applying_to(new)])
    # a deadline moves the pod into quotas that may come while the update is on its way
    moves = is_terminating(old) != is_terminating(new)
    grows = excess(usage, before) or not applied.issuperset(applying)
    if not usage or not quotas.quotas or not (grows or moves):
        return None
    counted: Mapping[str, ResourceList] = {}
    if old.is_assigned:
        counted = dict.fromkeys(applied.intersection(applying), before)
    return Claim(
        uid=old.uid,
        pod=old.name,
        source=source,
        usage=usage,
        quotas=applying,
        counted=counted,
        base_version=int(old.resource_version) if old.resource_version.isdecimal() else 0,
        observed_version=NEWEST,
        is_intent=not old.is_assigned,
    )


def usage_by_quota(pod: Pod, quotas: NamespaceQuotas) -> dict[str, ResourceList]:
    """Return what a pod takes of each quota that selects it and limits some of that.

    Raises:
        QuotaScopeError: A quota's scopes cannot be evaluated.
    """
    usage = remove_zeros(deferred_part(charged_to(pod), quotas.keys))
    taken = {one.name: mask(usage, one.hard) for one in quotas.applying_to(pod)}
    return {name: amounts for name, amounts in taken.items() if amounts}


def may_increase_usage(old: Pod, new: Pod) -> bool:
    """Return whether some quota could charge a change of a stored pod, whatever is deferred.

    For one that takes no more of any resource and stays within its scopes no quota can.
    """
    usage = charged_to(replace(new, resize_infeasible=False))
    return (
        bool(excess(usage, charged_to(old)))
        or is_terminating(old) != is_terminating(new)
        or effective_qos_class(old) != effective_qos_class(new)
    )


def selects(quota: ResourceQuota, pod: Pod) -> bool:
    """Return whether the scopes of a quota match a pod.

    Raises:
        QuotaScopeError: They cannot be evaluated.
    """
    try:
        return matches(quota, pod)
    except ScopeError as err:
        raise QuotaScopeError(quota.name, err) from err
