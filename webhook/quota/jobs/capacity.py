"""Whether the pods of a Job fit the quotas of their namespace: one of them, and all at a time.

Ceilings are those of `spec.hard`. Usage of other pods is no part of this, except where what is
free is asked for: pods wait for quota, so a Job that does not fit now is not wrong.

The pods are those of the template. What is added to them when they are created (defaults of a
LimitRange, overhead of a RuntimeClass, the cluster's default PriorityClass) is not known here. It
is not counted; where a default could take pods out of a quota, that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from webhook.jsonfields.fields import FieldError
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList, mask, max_of, total_of
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.charging.evaluation import over_hard
from webhook.quota.charging.pod_usage import usage_of
from webhook.quota.charging.scopes import (
    BEST_EFFORT,
    PRIORITY_CLASS,
    ScopeError,
    is_terminating,
    matches,
)
from webhook.quota.charging.workload_pods import PodSet, times
from webhook.quota.jobs.job_pods import REPLICATED_JOBS
from webhook.quota.objects.defaults import default_pod
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.qos import effective_qos_class

_NONE: Final[ResourceList] = {}


@dataclass(frozen=True, slots=True)
class Share:
    """Pods of one template, and what one of them uses."""

    count: int
    """How many run at a time."""
    pod: Pod
    """One of them, defaulted."""
    usage: ResourceList
    field: str
    """YAML path of the pod template."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A resource of a quota of which there is less than pods ask for at a time."""

    field: str
    """YAML path of the number of pods."""
    quota: str
    key: str
    """The quota key of which most pods are missing."""
    count: int
    """How many pods run at a time."""
    asked: Quantity
    """What they ask of it."""
    available: Quantity
    """What there is of it."""
    fitting: int | None
    """How many of the pods have room; None where they are not alike."""
    keys: frozenset[str]
    """All keys of the quota of which there is too little."""

    @property
    def asked_text(self) -> str:
        """How many pods ask how much."""
        pods = "1 pod asks" if self.count == 1 else f"{self.count} pods ask"
        return f"{pods} {self.key}={self.asked}"

    @property
    def limited_text(self) -> str:
        """The same, and what the quota allows."""
        return f"{self.asked_text}, quota {self.quota} limits {self.key}={self.available}"

    @property
    def error(self) -> FieldError:
        """Why the pods are refused by a rule that wants room for all of them."""
        advice = "" if self.fitting is None else f"; at most {self.fitting} fit"
        if self.fitting:
            advice += f": set it to {self.fitting}"
        return FieldError("FieldValueInvalid", self.field, f"{self.limited_text}{advice}")


def shares_of(pods: Iterable[PodSet]) -> tuple[Share, ...]:
    """Read what pods use.

    Raises:
        InvalidFieldError: A field of a pod that quota reads has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    return tuple(map(_share_of, pods))


def limited(shares: Iterable[Share], quotas: Iterable[ResourceQuota]) -> tuple[Share, ...]:
    """Return pods with what some of the quotas limit of their usage alone.

    Templates may name very many resources, which are not to be added up for each of many quotas.
    """
    keys = {key for quota in quotas for key in quota.hard}
    return tuple([replace(share, usage=mask(share.usage, keys)) for share in shares])


def never_fitting(share: Share, quotas: Iterable[ResourceQuota]) -> tuple[QuotaExceeded, ...]:
    """Return for each quota that is too small for a single pod what is too large.

    How many pods run does not matter, so one that is scaled to zero is judged alike. Quotas that
    a default could take the pods out of are left out: see `perhaps_never_fitting`.
    """
    return _too_small(share, (each for each in quotas if not missing_default(each, share.pod)))


def perhaps_never_fitting(
    share: Share, quotas: Iterable[ResourceQuota]
) -> tuple[QuotaExceeded, ...]:
    """Return the same of the quotas that select by what a default may add, see `missing_default`.

    The API server writes it into pods when they are created, and they may be none of the quota's
    then.
    """
    return _too_small(share, (each for each in quotas if missing_default(each, share.pod)))


def missing_default(quota: ResourceQuota, pod: Pod) -> str:
    """Return what a pod lacks by which it may be none of the quota's; empty without such a thing.

    That is the class, for which the cluster may have a default, and requests, for which a
    LimitRange may. Neither takes anything away, so no default makes a pod BestEffort or smaller.
    """
    scopes = (*quota.scopes, *(each.scope_name for each in quota.expressions))
    if PRIORITY_CLASS in scopes and not pod.priority_class_name:
        return "a class"
    is_best_effort = BEST_EFFORT in scopes and effective_qos_class(pod) == BEST_EFFORT
    return "requests" if is_best_effort else ""


def requested_by(
    quota: ResourceQuota, shares: Iterable[Share], *, each: bool = False
) -> ResourceList:
    """Return what pods ask of a quota: all at a time, or with `each` the largest of them."""
    inside = [share for share in shares if _selects(quota, share.pod)]
    if not each:
        return _sum(inside)
    asked: ResourceList = _NONE
    for share in inside:
        asked = max_of(asked, share.usage)
    return asked


def requests_same(some: Iterable[Share], others: Iterable[Share]) -> bool:
    """Return whether two lists of pods mean the same for every quota."""
    return list(map(_meaning, some)) == list(map(_meaning, others))


def shortfalls(
    shares: Iterable[Share],
    quotas: Iterable[ResourceQuota],
    free: Mapping[str, ResourceList] | None = None,
) -> tuple[Shortfall, ...]:
    """Return one entry for each quota in which the pods do not all fit at a time.

    Args:
        shares: The pods.
        quotas: The quotas of their namespace, in the order of the answer.
        free: Quota name → what is free of it now; quotas and resources that are missing there
            are not looked at. None: what is free when nothing else runs.
    """
    quotas = [*quotas]
    wanted = [share for share in limited(shares, quotas) if share.count]
    found = []
    for quota in quotas:
        inside = [share for share in wanted if _selects(quota, share.pod)]
        available = quota.hard if free is None else free.get(quota.name, _NONE)
        short = _shortfall(quota.name, inside, available)
        if short is not None:
            found.append(short)
    return tuple(found)


def _too_small(share: Share, quotas: Iterable[ResourceQuota]) -> tuple[QuotaExceeded, ...]:
    found = (
        over_hard(quota.name, share.usage, _NONE, quota.hard)
        for quota in quotas
        if _selects(quota, share.pod)
    )
    return tuple(each for each in found if each is not None)


def _meaning(share: Share) -> object:
    """Return all of some pods that quotas look at: how many, how large, of which scopes."""
    pod = share.pod
    return (
        share.count,
        share.usage,
        pod.priority_class_name,
        is_terminating(pod),
        effective_qos_class(pod),
        pod.cross_namespace_affinity,
    )


def _shortfall(quota: str, shares: list[Share], available: ResourceList) -> Shortfall | None:
    asked = _sum(shares)
    over = [
        key
        for key, amount in asked.items()
        if key in available and amount.nano and amount.nano > available[key].nano
    ]
    if not over:
        return None
    count = sum(share.count for share in shares)
    # the share of what is asked that there is; integers, so products are compared
    worst = over[0]
    for key in over[1:]:
        if available[key].nano * asked[worst].nano < available[worst].nano * asked[key].nano:
            worst = key
    return Shortfall(
        field=_number_field(shares),
        quota=quota,
        key=worst,
        count=count,
        asked=asked[worst],
        available=max(available[worst], ZERO),
        fitting=_fitting(shares[0], available, over) if len(shares) == 1 else None,
        keys=frozenset(over),
    )


def _sum(shares: Iterable[Share]) -> ResourceList:
    return total_of(times(share.usage, share.count) for share in shares)


def _number_field(shares: list[Share]) -> str:
    if len(shares) == 1:
        return f"{shares[0].field.removesuffix('.template')}.parallelism"
    return REPLICATED_JOBS


def _fitting(share: Share, available: ResourceList, over: list[str]) -> int:
    return max(0, min(available[key].nano // share.usage[key].nano for key in over))


def _share_of(pods: PodSet) -> Share:
    pod = Pod.from_object(default_pod(pods.pod, field=pods.field), field=pods.field)
    return Share(pods.count, pod, usage_of(pod, now=None), pods.field)


def _selects(quota: ResourceQuota, pod: Pod) -> bool:
    """Return whether a quota is about a pod; one whose scopes cannot be evaluated is not looked at.

    The handlers that charge say what is wrong with it.
    """
    try:
        return matches(quota, pod)
    except ScopeError:
        return False
