"""The status of a ResourceQuota: without the deferred resources, and complete again.

The API server's own quota check reads `status.hard`. In a namespace that defers, the deferred
resources are not there; in one that does not, all of `spec.hard` has to be.

A status is completed by writing `used` with `hard`: for a resource that is limited and has
no `used`, the API server refuses every pod ("status unknown for quota"), and the quota controller
does not look at the quota before some pod ends or five minutes are over.

Source: kubernetes v1.36, pkg/controller/resourcequota/resource_quota_controller.go and
apiserver/pkg/admission/plugin/resourcequota/controller.go CheckRequest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime
from typing import TypeAlias

from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import (
    ResourceList,
    add_to,
    mask,
    max_of,
    subtract_non_negative,
    to_text,
    total_of,
)
from webhook.quota.charging.device_claims import DeviceClaim, least_of_pods
from webhook.quota.charging.pod_usage import usage_of
from webhook.quota.charging.scopes import matches
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS, is_deferrable, is_pod_quota_key

Patch: TypeAlias = dict[str, object]
"""A JSON merge patch of the status, that takes effect on the version it was made for only."""


def visible_keys(quota: ResourceQuota, keys: Set[str]) -> tuple[str, ...]:
    """Return which of `keys` the API server still sees in the quota's status, sorted."""
    return tuple(sorted(keys & (quota.status_hard.keys() | quota.status_used.keys())))


def masking_patch(quota: ResourceQuota, keys: Set[str]) -> Patch | None:
    """Take `keys` out of the quota's status; None when they are not there."""
    found = visible_keys(quota, keys)
    if not found:
        return None
    hard = {name: None for name in found if name in quota.status_hard}
    used = {name: None for name in found if name in quota.status_used}
    return _patch(quota, hard, used)


def native_count(
    quota: ResourceQuota,
    pods: Iterable[Pod],
    *,
    now: datetime | None = None,
    claims: Sequence[DeviceClaim] | None = (),
    claimed: Set[str] = frozenset(),
) -> ResourceList:
    """Count what the API server charges `pods` in the quota, whether they have a node or not.

    Args:
        quota: The quota.
        pods: The pods of its namespace.
        now: The API server's time; None if it is not known: a pod that is being deleted then
            counts until it is gone, which is never too little.
        claims: The ResourceClaims of its namespace; None if they are not known: what they may be
            charged to is then used up.
        claimed: What they are counted for, see `claimed_keys`.

    Returns:
        An amount for every key of `spec.hard` for which pods are charged, zero included. With
        claims it may be too much, see `device_claims`, and never too little.

    Raises:
        ScopeError: The scopes of the quota cannot be evaluated.
    """
    least = least_of_pods(claims or ())

    def beside_its_claim(pod: Pod) -> ResourceList:
        usage = usage_of(pod, now=now)
        if pod.uid not in least:
            return usage
        of_claim = dict.fromkeys(claimed & usage.keys(), Quantity.of_units(least[pod.uid]))
        return {**usage, **subtract_non_negative(mask(usage, of_claim), of_claim)}

    total = total_of(beside_its_claim(pod) for pod in pods if matches(quota, pod))
    devices = Quantity.of_units(sum(claim.devices for claim in claims or ()))
    add_to(total, dict.fromkeys(claimed, devices))
    if claims is None:
        total.update(max_of(mask(total, claimed), mask(quota.hard, claimed)))
    return {key: total.get(key, ZERO) for key in sorted(quota.hard) if is_pod_quota_key(key)}


def claimed_keys(quota: ResourceQuota, hidden: Iterable[str]) -> Set[str]:
    """Return which of `hidden`, as of `hidden_keys`, ResourceClaims may be charged to.

    The API server charges them to no quota that has scopes.
    """
    has_scopes = quota.scopes or quota.expressions
    return frozenset() if has_scopes else frozenset(hidden) - DEFERRED_KEYS


def incomplete_keys(quota: ResourceQuota) -> tuple[str, ...]:
    """Return the keys of `spec.hard` that pods are charged for and the status lacks, sorted."""
    return tuple(
        key
        for key in sorted(quota.hard)
        if is_pod_quota_key(key) and (key not in quota.status_hard or key not in quota.status_used)
    )


def hidden_keys(quota: ResourceQuota) -> tuple[str, ...]:
    """Return which of these keys a mask may have taken out, sorted.

    What cannot be deferred was never hidden: the creator of the quota waits for the quota
    controller.
    """
    return tuple(key for key in incomplete_keys(quota) if is_deferrable(key))


def restoring_patch(quota: ResourceQuota, counted: ResourceList) -> Patch | None:
    """Complete the quota's status with what was counted; None when nothing is to be said.

    Where the status says more than was counted it stays: a pod may have been charged that was
    not stored yet when the pods were listed. The quota controller corrects it.
    """
    hard: dict[str, Quantity] = {}
    used: dict[str, Quantity] = {}
    for key, amount in counted.items():
        known = quota.status_used.get(key)
        if key not in quota.status_hard:
            hard[key] = quota.hard[key]
        if known is None or known < amount:
            used[key] = amount
    if not hard and not used:
        return None
    return _patch(quota, to_text(hard), to_text(used))


def carried_over(counted: ResourceList, before: ResourceQuota, now: ResourceQuota) -> ResourceList:
    """Bring a count up to a later version of the quota, where the API server charged meanwhile.

    Args:
        counted: What was counted.
        before: The quota as it was before the pods were listed.
        now: The quota as it is.

    Returns:
        What `restoring_patch` takes for `now`. A pod that was charged between the two may count
        twice; none of those that `before` lacked is missed.
    """
    missed = subtract_non_negative(counted, before.status_used)
    return {
        key: now.status_used[key] + missed[key]
        if key in now.status_used and key in before.status_used
        else amount
        for key, amount in counted.items()
    }


def _patch(
    quota: ResourceQuota, hard: Mapping[str, str | None], used: Mapping[str, str | None]
) -> Patch:
    return {
        "metadata": {"uid": quota.uid, "resourceVersion": quota.resource_version},
        "status": {
            **({"hard": dict(hard)} if hard else {}),
            **({"used": dict(used)} if used else {}),
        },
    }
