"""Pods within and over their elastic quota: the label `nos.nebuly.com/capacity`.

The pods are taken in order of age and added up. One is over-quota when for a resource that it asks
for and the quota names the sum up to it is above the minimum; the sum is over all pods, those
over-quota included. So a pod that does not ask for what ran out is not over-quota.

Order: creation, then the higher priority, then the smaller request, then the name; or, if so
configured, priority before creation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from itertools import accumulate
from typing import Final

from webhook.jsonfields.reader import FieldReader
from webhook.quota.elastic.elastic_quotas import ElasticQuota
from webhook.quota.elastic.fair_share import Nanos, nanos
from webhook.quota.objects.model import Pod

_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
_MOST_GRACE: Final = (2**63 - 1) // 10**9
"""Seconds that a Go `time.Duration` holds."""
_REMOVAL: Final = timedelta(seconds=30)
"""How long after its grace period a pod may be there without being kept."""


class LabelOrder(StrEnum):
    """Order in which pods are counted into their quota."""

    CREATION_TIME = "CreationTime"
    PRIORITY = "Priority"


class PodHealth(Enum):
    """Health of an assigned pod."""

    READY = "ready"
    UNREADY = "unready"
    IGNORED = "ignored"
    """It is pending on its node, or ends already: no PodDisruptionBudget is asked about it."""


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
    pod_group: str = ""
    """Name of the PodGroup that it is in; whether its pods go together is looked up for a plan."""
    is_exempt: bool = False
    """Whether it is never evicted: mirror and DaemonSet pods, those that keep the cluster alive."""
    is_young: bool = False
    """Whether it was bound so recently that it is evicted for the minimum of an owner only."""

    grace_seconds: int = 0
    """How long it may take to end once it is evicted."""
    health: PodHealth = PodHealth.READY
    """On which it depends what PodDisruptionBudgets say."""

    @property
    def age_order(self) -> tuple[datetime, str, str, str]:
        """Return the key that sorts the oldest first."""
        return self.created or _EARLIEST, self.name, self.namespace, self.uid


def ends_within(pod: Pod, seconds: int, now: datetime) -> bool:
    """Return whether a pod is being deleted and has no more time left until it is charged no more.

    One that its grace period did not end, as a finalizer keeps it or its kubelet is silent, is
    charged for as long again. One whose grace period no duration of the API server holds has time
    left: its `deletionTimestamp` has wrapped around, into a former century for instance.

    Source: kubernetes v1.36, apiserver/pkg/registry/rest/delete.go BeforeDelete.
    """
    until, grace = pod.deletion_timestamp, pod.deletion_grace_period_seconds or 0
    if until is None or grace > _MOST_GRACE:
        return False
    if until + _REMOVAL < now:
        until += timedelta(seconds=grace)
    return until <= now + timedelta(seconds=seconds)


def bound_at(pod: FieldReader) -> datetime | None:
    """Return when a pod got its node.

    Of one that was created with it no condition says so, unless a kubelet writes one.
    """
    scheduled = (
        one.timestamp("lastTransitionTime")
        for one in pod.child("status").children("conditions")
        if one.text("type") == "PodScheduled"
    )
    return next(scheduled, None) or pod.child("metadata").timestamp("creationTimestamp")


def health_of(pod: FieldReader) -> PodHealth:
    """Return whether a pod is running on, and ready, as evictions look at it.

    Source: kubernetes v1.36, pkg/registry/core/pod/storage/eviction.go canIgnorePDB.
    """
    status = pod.child("status")
    if status.text("phase") == "Pending" or pod.child("metadata").has("deletionTimestamp"):
        return PodHealth.IGNORED
    is_ready = any(
        (one.text("type"), one.text("status")) == ("Ready", "True")
        for one in status.children("conditions")
    )
    return PodHealth.READY if is_ready else PodHealth.UNREADY


def was_bound_within(bound: datetime | None, seconds: int, now: datetime) -> bool:
    """Return whether a pod was bound less than some seconds ago, however many these are.

    A time ahead counts as now, and a time that is not known too.
    """
    if not seconds:
        return False
    return bound is None or (now - min(bound, now)).total_seconds() < seconds


def is_of_daemon_set(metadata: FieldReader) -> bool:
    """Return whether a DaemonSet controls a pod.

    Those that make pods write its owners. An owner of `apps/v1` that is not there has the pod
    deleted, and one that does not select it lets it go; a kind of this name of another group, or of
    a version that no API server serves, does neither.

    Source: kubernetes v1.36, pkg/controller/garbagecollector/garbagecollector.go;
    pkg/controller/daemon/daemon_controller.go getNodesToDaemonPods.
    """
    return any(
        one.text("kind") == "DaemonSet"
        and one.text("apiVersion") == "apps/v1"
        and one.boolean("controller")
        for one in metadata.children("ownerReferences")
    )


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


class QuotaWalk:
    """The pods of a quota that are over it, while some are taken away.

    Args:
        quota: Their quota.
        ordered: All its assigned pods, in label order.
    """

    def __init__(self, quota: ElasticQuota, ordered: Sequence[ElasticPod]) -> None:
        least = dict.fromkeys(quota.max, 0) | nanos(quota.min)
        self._sums = {
            name: _PrefixSums(
                [(pod.uid, pod.amounts[name]) for pod in ordered if name in pod.amounts]
            )
            for name in least
        }
        self._least = least

    def is_over(self, pod: ElasticPod) -> bool:
        """Return whether a pod is over the quota, those that were removed not counted."""
        return any(self._sums[name].up_to(pod.uid) > self._least[name] for name in pod.amounts)

    def remove(self, pod: ElasticPod) -> None:
        """Count a pod no more."""
        for name, amount in pod.amounts.items():
            self._sums[name].subtract(pod.uid, amount)


class _PrefixSums:
    """Sums of a list up to each of its places, of which amounts are taken away (a Fenwick tree)."""

    def __init__(self, amounts: Sequence[tuple[str, int]]) -> None:
        self._places = {uid: place for place, (uid, _) in enumerate(amounts, start=1)}
        self._whole = [0, *accumulate(amount for _, amount in amounts)]
        self._removed = [0] * len(self._whole)

    def up_to(self, uid: str) -> int:
        place = self._places[uid]
        found = self._whole[place]
        while place:
            found -= self._removed[place]
            place &= place - 1
        return found

    def subtract(self, uid: str, amount: int) -> None:
        place = self._places[uid]
        while place < len(self._removed):
            self._removed[place] += amount
            place += place & -place
