"""Entries of the page, as plain values for JSON: amounts as text, bars as thousandths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from webhook.controllers.overview import NamespaceSnapshot
from webhook.kube.metadata import time_text
from webhook.page.history import WINDOW_SECONDS, Sample, SeriesKey
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList, to_text
from webhook.quota.explaining.values import Consumer
from webhook.quota.ledger.ledger import Account, Ledger
from webhook.quota.objects.names import SHARED_PREFIX
from webhook.quota.queue.queued_pods import CycleResult, QueuedPod
from webhook.quota.shared.cluster_quotas import own_name

Entry: TypeAlias = dict[str, object]

MOST_QUEUED: Final = 200
"""Pods of a queue that are shown; the others are counted."""
_THOUSAND: Final = 1000


def summary_entry(namespace: str, ledger: Ledger | None, queued: int) -> Entry:
    """Return one namespace of the list: its fullest resource, and how many pods wait."""
    fullest = max(_fullness(ledger), default=None)
    return {
        "name": namespace,
        "quotas": 0 if ledger is None else len(ledger.accounts),
        "queued": queued,
        "fullest": None
        if fullest is None
        else {"permille": fullest[0], "quota": fullest[1], "resource": fullest[2]},
    }


def _fullness(ledger: Ledger | None) -> Iterator[tuple[int, str, str]]:
    if ledger is None:
        return
    for name, account in ledger.accounts.items():
        for resource, hard in account.hard.items():
            yield _permille(_taken(account, resource), hard), name, resource


def snapshot_entry(
    snapshot: NamespaceSnapshot, series: Mapping[SeriesKey, Sequence[Sample]], now: float
) -> Entry:
    """Return one namespace: quotas, queue, consumers, and the last hour.

    Args:
        series: The samples of the namespace.
        now: The moment on their clock.
    """
    accounts = {} if snapshot.ledger is None else snapshot.ledger.accounts
    return {
        "name": snapshot.name,
        "asOf": time_text(snapshot.at),
        "undecided": snapshot.undecided,
        "conditions": _conditions(snapshot.ledger),
        "quotas": [_quota_entry(name, accounts[name]) for name in sorted(accounts)],
        "queue": _queue_entry(snapshot),
        "consumers": [_consumer_entry(one) for one in snapshot.consumers],
        "history": [_series_entry(key, samples, now) for key, samples in series.items()],
    }


def _conditions(ledger: Ledger | None) -> list[Entry]:
    """Return the conditions of the ledger that are not as they should be."""
    return [
        {"type": one.type, "reason": one.reason, "message": one.message}
        for one in (() if ledger is None else ledger.conditions)
        if one.status != "True"
    ]


def _quota_entry(name: str, account: Account) -> Entry:
    return {
        "name": own_name(name),
        "kind": "ClusterDeferredQuota" if name.startswith(SHARED_PREFIX) else "ResourceQuota",
        "resources": [_resource_entry(account, name) for name in sorted(account.hard)],
    }


def _resource_entry(account: Account, resource: str) -> Entry:
    hard = account.hard[resource]
    used, elsewhere = _of(account.used, resource), _of(account.used_elsewhere, resource)
    reserved, pending = _of(account.reserved, resource), _of(account.pending, resource)
    taken = _taken(account, resource)
    # what is pending has the pods in it that quota is reserved for already
    waiting = max(ZERO, pending - reserved)
    # and may be any number of times the limit: the bar ends at twice the limit
    scale = max(hard, taken, min(taken + waiting, hard + hard))
    return {
        "resource": resource,
        "used": str(used),
        "elsewhere": str(elsewhere),
        "reserved": str(reserved),
        "pending": str(pending),
        "hard": str(hard),
        "permille": _permille(taken, hard),
        "bar": {
            "used": _permille(used, scale),
            "elsewhere": _permille(elsewhere, scale),
            "reserved": _permille(reserved, scale),
            "pending": min(_permille(waiting, scale), _THOUSAND - _permille(taken, scale)),
            "hard": _permille(hard, scale),
        },
    }


def _queue_entry(snapshot: NamespaceSnapshot) -> Entry:
    gated = [one for one in snapshot.queue if one.is_gated]
    return {
        "total": len(gated),
        "pods": [_queued_entry(one, snapshot.cycle) for one in gated[:MOST_QUEUED]],
    }


def _queued_entry(queued: QueuedPod, cycle: CycleResult) -> Entry:
    status = cycle.pending.get(queued.uid)
    entry: Entry = {"pod": queued.pod.name, "priority": queued.pod.priority or 0}
    if queued.pod.created is not None:
        entry["created"] = time_text(queued.pod.created)
    if status is None:
        return {**entry, "reason": "Released", "message": "fits: its gate is about to be removed"}
    return {
        **entry,
        "place": status.position,
        "reason": status.reason.value,
        "message": status.message,
        "holder": status.blocked_by,
    }


def _consumer_entry(consumer: Consumer) -> Entry:
    return {
        "pod": consumer.pod,
        "state": consumer.state.value,
        "amounts": to_text(consumer.amounts),
    }


def _series_entry(key: SeriesKey, samples: Sequence[Sample], now: float) -> Entry:
    quota, resource = key
    scale = max(max(one.hard, one.used + one.reserved) for one in samples)
    taken = [one.used + one.reserved for one in samples]
    return {
        "quota": own_name(quota),
        "resource": resource,
        "windowSeconds": int(WINDOW_SECONDS),
        "scale": str(scale),
        "least": str(min(taken)),
        "most": str(max(taken)),
        "last": str(taken[-1]),
        "points": [
            [
                min(int(WINDOW_SECONDS), max(0, round(now - one.at))),
                _permille(one.used, scale),
                _permille(one.used + one.reserved, scale),
                _permille(one.hard, scale),
            ]
            for one in samples
        ],
    }


def _taken(account: Account, resource: str) -> Quantity:
    return (
        _of(account.used, resource)
        + _of(account.used_elsewhere, resource)
        + _of(account.reserved, resource)
    )


def _permille(amount: Quantity, whole: Quantity) -> int:
    """Return the part in thousandths, rounded down; all of it where nothing is allowed."""
    if whole <= ZERO:
        return _THOUSAND if amount > ZERO else 0
    return amount.nano * _THOUSAND // whole.nano


def _of(amounts: ResourceList, resource: str) -> Quantity:
    return amounts.get(resource, ZERO)
