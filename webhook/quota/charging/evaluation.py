"""Does a pod fit its quotas: the API server's own algorithm, and the pieces it is made of.

`evaluate` answers as the API server's quota check does. The other functions are that check
taken apart, for callers that charge at another moment and keep their own `used`.

Rules of the check, in this order; the first that fails is the answer:

1. An entry of `limited` that cannot be evaluated switches the whole check off.
2. For each quota, by name: its scopes can be evaluated; if it matches the pod, containers
   state what it counts, and its use has been counted.
3. The pod uses nothing negative. Nothing used always fits.
4. Keys and scopes that need a covering quota have one.
5. For each matching quota, by name: what the request adds stays within the ceiling, key by
   key. Equal fits. A key that the request adds nothing to is not looked at, even above its
   ceiling.

Ceilings and use are those of the status; of the spec only the scopes count. The platform takes
quotas in random order; by name, the same request gets the same answer.

Source: kubernetes v1.36, apiserver/pkg/admission/plugin/resourcequota/controller.go
CheckRequest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import TypeAlias, TypeVar

from webhook.jsonfields.fields import InvalidFieldError, json_type_of
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import ResourceList, add, mask, remove_zeros
from webhook.quota.charging.constraints import MUST_SPECIFY_KEYS, missing_resources
from webhook.quota.charging.denials import (
    InsufficientQuota,
    MustSpecify,
    NegativeUsage,
    QuotaExceeded,
    Refusal,
    ScopeFailure,
    StatusUnknown,
    UncoveredScopes,
    full_message,
)
from webhook.quota.charging.limited_resources import (
    LimitedResource,
    limited_keys,
    limited_scopes,
    uncovered,
)
from webhook.quota.charging.pod_usage import as_time, usage_of
from webhook.quota.charging.scopes import (
    ScopeError,
    matches,
    quota_matching_expressions,
)
from webhook.quota.objects.model import Pod, ResourceQuota, ScopeExpression
from webhook.quota.objects.names import is_pod_quota_key

_T = TypeVar("_T")

Charge: TypeAlias = tuple[ResourceQuota, ResourceList]
"""A matching quota, and what a request adds; keys that the quota does not limit may be in it."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The answer to one request."""

    allowed: bool
    message: str
    """Why not, as the API server says it to its client; empty when allowed."""
    used_after: Mapping[str, ResourceList]
    """Quota name → its use afterwards, of all quotas given; empty when refused."""
    denial: Refusal | None
    """The same reason as data; None when allowed."""


@dataclass(frozen=True, slots=True)
class PodRequest:
    """A pod to be created, and what it is charged."""

    pod: Pod
    usage: ResourceList
    growth: ResourceList
    """The same without zeros."""

    @classmethod
    def create(cls, pod: Pod, usage: ResourceList) -> PodRequest:
        """Return the request to create a pod that is charged `usage`."""
        return cls(pod, usage, remove_zeros(usage))


def evaluate(
    pod: Pod | Mapping[str, object],
    quotas: Iterable[ResourceQuota | Mapping[str, object]] | None,
    limited: _Limited = (),
    now: datetime | str | None = None,
) -> Evaluation:
    """Answer as the API server's quota check does when a pod is created.

    Args:
        pod: The API object, defaulted and with its priority resolved, as that check sees it.
        quotas: The ResourceQuotas of the pod's namespace, with their status, in any order.
            None is none.
        limited: Entries of the check's configuration, `limitedResources`, as objects in its
            shape or read; one alone may stand without a list. None is none.
        now: The present time, as in `pod_usage.pod_usage`.

    Raises:
        InvalidFieldError: A field of an object cannot be read; the path of a quota starts
            with `quotas[0]`, that of an entry with `limited[0]`.
    """
    subject = _pod(pod, "")
    request = PodRequest.create(subject, usage_of(subject, now=as_time(now)))
    return _answer(request, _read_quotas(quotas), _read_limited(limited))


def assess(
    request: PodRequest, quotas: Sequence[ResourceQuota], limited: Sequence[LimitedResource] = ()
) -> Refusal | tuple[Charge, ...]:
    """Check a request as the API server does.

    Args:
        request: What is to be created.
        quotas: The quotas of the namespace in the order in which they are to be asked.
        limited: Entries of the check's configuration.

    Returns:
        Why the request is refused, or what each quota that it concerns is to be charged.
    """
    try:
        needed = limited_scopes(limited, request.pod)
    except ScopeError:  # the platform then lets the request pass unchecked
        return ()
    if not quotas and not limited:
        return ()
    concerned = _matching_quotas(request.pod, quotas)
    if not isinstance(concerned, tuple):
        return concerned
    charges = _charges(request, concerned)
    if not isinstance(charges, tuple):
        return charges
    if not (any(charge for _, charge in charges) if charges else request.growth):
        return ()
    uncovered_part = _uncovered(request, needed, limited, concerned, quotas)
    return uncovered_part or _first_exceeded(charges) or charges


def over_hard(
    quota: str, requested: ResourceList, used: ResourceList, hard: ResourceList
) -> QuotaExceeded | None:
    """Compare what a request would make of a quota's use with its ceilings.

    Only keys that are requested, not zero, and limited are looked at; equal fits.

    Args:
        quota: Name of the quota.
        requested: What the request adds; zeros and keys that are not limited may be in it.
        used: Use so far; a key that is missing is not used.
        hard: Ceilings.

    Returns:
        The keys that would be above their ceiling, with their amounts; None if all fits.
    """
    over = [
        key
        for key, limit in hard.items()
        if (amount := requested.get(key)) is not None
        and amount.nano
        and used.get(key, ZERO).nano + amount.nano > limit.nano
    ]
    if not over:
        return None
    return QuotaExceeded(
        quota,
        requested={key: requested[key] for key in over},
        used={key: used.get(key, ZERO) for key in over},
        limited={key: hard[key] for key in over},
    )


_Limited: TypeAlias = (
    Iterable[LimitedResource | Mapping[str, object]] | LimitedResource | Mapping[str, object] | None
)


def _answer(
    request: PodRequest, quotas: Sequence[ResourceQuota], limited: Sequence[LimitedResource]
) -> Evaluation:
    outcome = assess(request, quotas, limited)
    if not isinstance(outcome, tuple):
        name = request.pod.name or request.pod.generate_name or "Unknown"
        return Evaluation(False, full_message(outcome, name), {}, outcome)
    used = {quota.name: quota.status_used for quota in quotas}
    for quota, charge in outcome:
        used[quota.name] = add(quota.status_used, mask(charge, quota.status_hard))
    return Evaluation(True, "", used, None)


def _matching_quotas(
    pod: Pod, quotas: Iterable[ResourceQuota]
) -> tuple[ResourceQuota, ...] | Refusal:
    """Return the quotas that match a pod and limit something of it, all fit to be compared."""
    missing = missing_resources(pod, MUST_SPECIFY_KEYS)
    found = []
    for quota in quotas:
        matched = _matches(quota, pod)
        if isinstance(matched, ScopeFailure):
            return matched
        keys = _pod_keys(quota.status_hard)
        if not matched or not keys:
            continue
        if missing and not keys.isdisjoint(missing):
            return MustSpecify(quota.name, {key: missing[key] for key in missing if key in keys})
        if not keys <= quota.status_used.keys():
            return StatusUnknown(quota.name, tuple(sorted(keys)))
        found.append(quota)
    return tuple(found)


def _matches(quota: ResourceQuota, pod: Pod) -> bool | ScopeFailure:
    try:
        return matches(quota, pod)
    except ScopeError as err:
        return ScopeFailure(quota.name, err.expression, err.detail)


def _charges(
    request: PodRequest, concerned: Iterable[ResourceQuota]
) -> tuple[Charge, ...] | Refusal:
    negative = tuple([key for key, amount in request.usage.items() if amount.nano < 0])
    if negative:
        return NegativeUsage(tuple(sorted(negative)))
    return tuple([(quota, request.growth) for quota in concerned])


def _uncovered(
    request: PodRequest,
    needed: tuple[ScopeExpression, ...],
    limited: Sequence[LimitedResource],
    concerned: Iterable[ResourceQuota],
    quotas: Iterable[ResourceQuota],
) -> Refusal | None:
    """Look for keys and scopes that only a covering quota allows."""
    if not limited:
        return None
    covered = {key for quota in concerned for key in _pod_keys(quota.status_hard)}
    keys = limited_keys(limited, request.usage) - covered
    if keys:
        return InsufficientQuota(tuple(sorted(keys)))
    matched = [each for quota in quotas for each in quota_matching_expressions(quota, request.pod)]
    missing = uncovered(needed, [each.scope_name for each in matched])
    return UncoveredScopes(missing) if missing else None


def _first_exceeded(charges: Iterable[Charge]) -> QuotaExceeded | None:
    for quota, charge in charges:
        exceeded = over_hard(quota.name, charge, quota.status_used, quota.status_hard)
        if exceeded is not None:
            return exceeded
    return None


def _pod_keys(keys: Iterable[str]) -> frozenset[str]:
    return frozenset(filter(is_pod_quota_key, keys))


def _pod(pod: Pod | Mapping[str, object], field: str) -> Pod:
    return pod if isinstance(pod, Pod) else Pod.from_object(pod, field=field)


def _read_quotas(
    quotas: Iterable[ResourceQuota | Mapping[str, object]] | None,
) -> tuple[ResourceQuota, ...]:
    read = [
        each
        if isinstance(each, ResourceQuota)
        else ResourceQuota.from_object(each, field=f"quotas[{index}]")
        for index, each in enumerate(_items(quotas, "quotas"))
    ]
    return tuple(sorted(read, key=attrgetter("name")))


def _read_limited(limited: _Limited) -> tuple[LimitedResource, ...]:
    if isinstance(limited, (LimitedResource, Mapping)):
        limited = (limited,)
    return tuple(
        each
        if isinstance(each, LimitedResource)
        else LimitedResource.from_object(each, field=f"limited[{index}]")
        for index, each in enumerate(_items(limited, "limited"))
    )


def _items(given: Iterable[_T] | None, field: str) -> Iterable[_T]:
    if given is None:
        return ()
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise InvalidFieldError(field, f"must be a list, not {json_type_of(given)}")
    return given
