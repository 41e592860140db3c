"""Which pods of an elastic quota are within it: the label `nos.nebuly.com/capacity`.

The pods are taken in order of age and added up. One is over-quota when for a resource that it asks
for and the quota names the sum up to it is above the minimum; the sum is over all pods, those
over-quota included. So a pod that does not ask for what ran out is not over-quota.

Order: creation, then the higher priority, then the smaller request, then the name; or, if so
configured, priority before creation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from webhook.quota.elastic.elastic_quotas import ElasticQuota
from webhook.quota.elastic.fair_share import Nanos

_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)


class LabelOrder(StrEnum):
    """What decides first which pods are within their quota."""

    CREATION_TIME = "CreationTime"
    PRIORITY = "Priority"


@dataclass(frozen=True, slots=True)
class ElasticPod:
    """An assigned pod, or one that is to be, as elastic quotas look at it."""

    namespace: str
    name: str
    uid: str
    created: datetime | None
    priority: int
    amounts: Nanos
    """What it takes of the resources that its quota names; only what it asks for."""
    node: str = ""
    group: str = ""
    """Pods of a namespace with one group are evicted together; empty: alone."""
    is_exempt: bool = False
    """Whether it is never evicted: mirror and DaemonSet pods, those that keep the cluster alive."""
    is_young: bool = False
    """Whether it was bound so recently that it is evicted for the minimum of an owner only."""

    @property
    def age_order(self) -> tuple[datetime, str, str, str]:
        """Return the key that sorts the oldest first."""
        return self.created or _EARLIEST, self.name, self.namespace, self.uid


def in_label_order(
    pods: Iterable[ElasticPod], order: LabelOrder = LabelOrder.CREATION_TIME
) -> list[ElasticPod]:
    """Return pods of one quota in the order in which they are added up."""
    listed = list(pods)
    names = sorted({name for pod in listed for name in pod.amounts})

    def rank(pod: ElasticPod) -> tuple[object, ...]:
        created, *names_of = pod.age_order
        first = (
            (-pod.priority, created) if order is LabelOrder.PRIORITY else (created, -pod.priority)
        )
        return (*first, tuple([pod.amounts.get(name, 0) for name in names]), *names_of)

    return sorted(listed, key=rank)


def over_quota(quota: ElasticQuota, ordered: Sequence[ElasticPod]) -> frozenset[str]:
    """Return the uids of the pods that are over a quota.

    Args:
        quota: Their quota.
        ordered: All its assigned pods, in label order.
    """
    least = dict.fromkeys(quota.max, 0) | {name: amount.nano for name, amount in quota.min.items()}
    sums = dict.fromkeys(least, 0)
    over = set()
    for pod in ordered:
        for name, amount in pod.amounts.items():
            sums[name] += amount
            if sums[name] > least[name]:
                over.add(pod.uid)
    return frozenset(over)
