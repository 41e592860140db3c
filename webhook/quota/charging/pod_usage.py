"""Charge of a quota for one pod.

Rule 1: every stored pod counts under `count/pods`, whatever its state.
Rule 2: everything else, `pods` included, is charged only while the pod is eligible: it has not
        ended and is not stuck terminating.
Rule 3: an amount of zero is charged as zero, which is not the same as a missing key.
Rule 4: where the time is not known, a pod that is being deleted stays charged.

Source: kubernetes v1.36, pkg/quota/v1/evaluator/core/pods.go PodUsageFunc, QuotaV1Pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from operator import is_
from types import MappingProxyType
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError, timestamp
from webhook.quota.amounts.quantity import UNCOUNTABLE, Quantity
from webhook.quota.amounts.resources import ResourceList, is_within, mask, max_of
from webhook.quota.charging.pod_requests import pod_limits, pod_requests, without_overhead
from webhook.quota.objects.model import (
    Container,
    ContainerStatus,
    Pod,
    PodResources,
    PodStatusResources,
)
from webhook.quota.objects.names import (
    POD_COUNT_KEY,
    cached_by_name,
    is_device_class,
    is_extended_resource,
    is_hugepages,
)

MANY_NAMES: Final = "*"
"""Stands in what a pod is charged for every extended resource; no resource has this name."""

_ONE: Final = Quantity.parse("1")
_ENDED_USAGE: Final[ResourceList] = MappingProxyType({POD_COUNT_KEY: _ONE})
ENDED_PHASES: Final = frozenset({"Succeeded", "Failed"})
_LIMIT_KEYS: Final = {
    "cpu": "limits.cpu",
    "memory": "limits.memory",
    "ephemeral-storage": "limits.ephemeral-storage",
}


def pod_usage(pod: Mapping[str, object], now: datetime | str | None = None) -> dict[str, Quantity]:
    """Return what a pod is charged: every key that the API server's own evaluator reports.

    Args:
        pod: The API object, defaulted as the API server does it; see `defaults.default_pod`
            for a manifest.
        now: The present time, with its zone, or as RFC 3339 text. It matters only for pods
            that are being deleted, which are released when their grace period is long over.
            None means not known: they are charged. The clock is never read.

    Returns:
        Quota key → amount in base units: cores, bytes, counts. A key that is missing is not
        charged.

    Raises:
        InvalidFieldError: A field of the pod has the wrong type, or `now` is not a time with
            a zone. The `field` is the YAML path, or `now`.
        InvalidQuantityError: An amount in the pod is not a quantity.
    """
    return dict(usage_of(Pod.from_object(pod), now=as_time(now)))


def as_time(now: datetime | str | None) -> datetime | None:
    """Read a present time as callers of the library give it; None stays None: not known.

    Raises:
        InvalidFieldError: Not RFC 3339 text, or a time without a zone; its `field` is `now`.
    """
    if not isinstance(now, datetime):
        return timestamp(now, "now")
    if now.utcoffset() is None:
        raise InvalidFieldError("now", "must be a time with a zone")
    return now


def usage_of(pod: Pod, *, now: datetime | None) -> ResourceList:
    """Return what a pod is charged at the time `now`; the result must not be changed.

    Args:
        pod: A pod, already defaulted.
        now: The present time, with its zone; None if it is not known (see `pod_usage`).
    """
    if not is_quota_eligible(pod, now=now):
        return _ENDED_USAGE
    usage = pod._usage  # noqa: SLF001 - the slot is there for this function
    if usage is None:
        usage = pod.summarized_usage or MappingProxyType(_eligible_usage(pod))
        object.__setattr__(pod, "_usage", usage)
    return usage


def charged_to(pod: Pod) -> ResourceList:
    """Return what a ledger charges a pod: `usage_of`, and what its node has not given back yet.

    A resize downwards takes effect when the node has carried it out. The API server's own evaluator
    reads that of containers and sidecars only (kubernetes v1.36.3), and so gives the rest away
    before: of a pod as a whole, and of init containers that run to their end.

    A pod with too many names (`Pod.has_many_names`) is charged more of every extended resource
    than can be counted: caches do not keep all that it asks for. One of zeros may run.
    """
    init = init_containers_in_force(pod)
    held = pod if init is pod.init_containers else replace(pod, init_containers=init)
    if pod.reported is not None and pod.resources is not None:
        held = replace(held, resources=_whole_in_force(pod, pod.resources, pod.reported))
    usage = usage_of(held, now=None)
    return {**usage, MANY_NAMES: UNCOUNTABLE} if pod.has_many_names else usage


def _whole_in_force(pod: Pod, wanted: PodResources, reported: PodStatusResources) -> PodResources:
    in_force = reported.requests
    if "memory" in reported.allocated:
        # a request of memory is in no cgroup, and kubelets of 1.36 go on to report the one that the
        # pod was started with as long as it runs: what they have set aside is what is in force
        in_force = {name: amount for name, amount in in_force.items() if name != "memory"}
    # an amount that the pod does not name stays that of its containers
    requests = mask(max_of(in_force, reported.allocated), wanted.requests)
    limits = mask(reported.limits, wanted.limits)
    if reported.allocated:  # as every kubelet does that reports any; others may mean the pod alone
        requests, limits = without_overhead(requests, pod), without_overhead(limits, pod)
    return PodResources(max_of(requests, wanted.requests), max_of(limits, wanted.limits))


def init_containers_in_force(pod: Pod) -> tuple[Container, ...]:
    """Return the init containers, those that run to their end as large as their node reports them.

    It is the very tuple of the pod where none of them is larger than its spec.
    """
    if not (pod.init_containers and pod.statuses):
        return pod.init_containers
    found = tuple([_in_force(one, pod.statuses.get(one.name)) for one in pod.init_containers])
    return pod.init_containers if all(map(is_, found, pod.init_containers)) else found


def _in_force(container: Container, status: ContainerStatus | None) -> Container:
    if status is None or container.restartable:
        return container
    requests, limits = container.requests, container.limits
    if (
        is_within(status.requests, requests)
        and is_within(status.allocated, requests)
        and is_within(status.limits, limits)
    ):
        return container
    return replace(
        container,
        requests=max_of(max_of(status.requests, status.allocated), requests),
        limits=max_of(status.limits, limits),
    )


def is_terminal(pod: Pod) -> bool:
    """Return whether all containers have ended and will not run again."""
    return pod.phase in ENDED_PHASES


def stuck_terminating_at(pod: Pod) -> datetime | None:
    """Return the last moment at which a pod that is being deleted is still charged.

    That is a whole grace period after `deletionTimestamp`, which is itself the end of the grace
    period. None if the pod is not being deleted, has no grace period on record, or has one
    beyond the calendar: it then stays charged until it is gone.
    """
    if pod.deletion_timestamp is None or pod.deletion_grace_period_seconds is None:
        return None
    try:
        return pod.deletion_timestamp + timedelta(seconds=pod.deletion_grace_period_seconds)
    except OverflowError:
        return None


def is_stuck_terminating(pod: Pod, *, now: datetime | None) -> bool:
    """Return whether the pod should have been gone by now; at that very moment it is charged."""
    if now is None:
        return False
    charged_until = stuck_terminating_at(pod)
    return charged_until is not None and now > charged_until


def is_quota_eligible(pod: Pod, *, now: datetime | None) -> bool:
    """Return whether the pod is charged for more than its existence.

    Time alone can make a pod ineligible, at `stuck_terminating_at`; nothing else tells.
    """
    return not is_terminal(pod) and not is_stuck_terminating(pod, now=now)


def _eligible_usage(pod: Pod) -> dict[str, Quantity]:
    usage = {POD_COUNT_KEY: _ONE, "pods": _ONE}
    for name, amount in pod_requests(pod).items():
        for key in _request_keys(name):
            usage[key] = amount
    for name, amount in pod_limits(pod).items():
        limit_key = _LIMIT_KEYS.get(name)
        if limit_key is not None:
            usage[limit_key] = amount
    return usage


@cached_by_name
def _request_keys(name: str) -> tuple[str, ...]:
    """Return the quota keys that a request is charged under; none for what quota ignores.

    Source: kubernetes v1.36, pkg/quota/v1/evaluator/core/pods.go podComputeUsageHelper.
    """
    if name in _LIMIT_KEYS or is_hugepages(name):
        return (name, f"requests.{name}")
    if is_extended_resource(name) or is_device_class(name):
        return (f"requests.{name}",)
    return ()
