"""Count what pods take of quotas, from a list of them, as the bind charges."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import ResourceList, add, counted, max_of
from webhook.quota.charging.deferral import DeferredQuota, NamespaceQuotas, deferred_part
from webhook.quota.charging.pod_usage import charged_to, is_quota_eligible
from webhook.quota.charging.scopes import ScopeError, matches
from webhook.quota.ledger.ledger import Account, Ledger
from webhook.quota.objects.model import Pod, ResourceQuota

_ANY_POD: Final = Pod.from_object({})
_SOME_NODE: Final = "-"
"""Name of no node: for pods to be counted as if they had one."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Usage of assigned pods of a quota: at least, and at most.

    They differ while pods are being deleted, which are charged until they are stuck unless the
    configuration holds them, and while a node has not looked at a resize yet.
    """

    least: ResourceList
    most: ResourceList


def taken_at_bind(
    quota: DeferredQuota, pods: Iterable[Pod], *, now: datetime | None = None
) -> Taken:
    """Count the assigned pods that a quota selects, in its deferred resources.

    Args:
        pods: The pods of its namespace.
        now: The API server's time; None if it is not known: pods that are being deleted then count
            at most until they are gone. It does not matter where such pods are held.

    Raises:
        ScopeError: The scopes of the quota cannot be evaluated.
    """
    least: ResourceList = dict.fromkeys(quota.hard, ZERO)
    most = least
    for pod in pods:
        moment = None if quota.holds_terminating else now
        if not pod.is_assigned or not is_quota_eligible(pod, now=moment):
            continue
        if not matches(quota.quota, pod):
            continue
        keys = quota.hard.keys()
        usage = deferred_part(charged_to(pod), keys)
        grown = deferred_part(charged_to(replace(pod, resize_infeasible=False)), keys)
        most = add(most, max_of(usage, grown))
        if quota.holds_terminating or not pod.is_deleting:
            least = add(least, usage)
    return Taken(counted(least), counted(most))


def counted_ledger(quotas: NamespaceQuotas, pods: Collection[Pod], now: datetime | None) -> Ledger:
    """Return a ledger as it is counted from the pods of a namespace, where none is stored.

    Nothing is reserved in it. Quotas whose scopes cannot be evaluated have no account. `now` is
    as in `taken_at_bind`.
    """
    waiting = [replace(pod, node_name=_SOME_NODE) for pod in pods if not pod.is_assigned]
    accounts: dict[str, Account] = {}
    for quota in quotas.quotas:
        with suppress(ScopeError):
            used = taken_at_bind(quota, pods, now=now).most
            pending = taken_at_bind(quota, waiting).least
            accounts[quota.name] = Account(quota.observed, quota.hard, used, pending=pending)
    return Ledger(accounts, {})


def scope_fault(quota: ResourceQuota) -> str:
    """Return why the scopes of a quota cannot be evaluated; empty if they can."""
    try:
        matches(quota, _ANY_POD)
    except ScopeError as err:
        return str(err)
    return ""
