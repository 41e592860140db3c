"""Pods of one namespace that wait behind our scheduling gate, in their order.

Kept as well are pods that are underway, without a gate and a node: while others wait, quota is
reserved for them in their turn. Pods of elastic pools whose bind was denied wait, too: their gate
was removed when quota was reserved, and the reservation has ended since.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Final

from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList, add_to, take_from
from webhook.quota.charging.deferral import NamespaceQuotas
from webhook.quota.charging.pod_usage import usage_of
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.queue.preemptors import NO_PREEMPTORS, PreemptorUsage, UnboundPreemptors
from webhook.quota.queue.queued_pods import (
    QueueCriteria,
    QueuedPod,
    QueuePolicy,
    SortKey,
    is_in_flight,
    is_queued,
    to_queued_pod,
    with_pods_ahead,
    with_retried,
)
from webhook.state.quota_cache import NamespaceQuotaView
from webhook.state.well_known import SCHEDULING_GATE

_EMPTY: Final[tuple[QueuedPod, ...]] = ()


class GatedPods:
    """Gated pods, each evaluated once per change. Not safe to use from several threads."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._in_flight: dict[str, Pod] = {}
        self._in_flight_usage: dict[str, Quantity] = {}
        self._retried: set[str] = set()
        """Uids of those in flight whose bind was refused."""
        self._first_seen: dict[str, int] = {}
        self._criteria: QueueCriteria | None = None
        self._queued: dict[str, QueuedPod] = {}
        self._preempting: set[str] = set()
        """Uids of those in flight for which others may be evicted."""
        self._unjudged: set[str] = set()
        """Uids of those of them that are not in the sum yet."""
        self._preemptor_usage = PreemptorUsage()
        self._preemptors: UnboundPreemptors | None = None
        """As of the last look; None after a change."""
        self._may_preempt: set[str] = set()
        """Uids of those that wait for which others may be evicted."""
        self._ordered: tuple[QueuedPod, ...] | None = _EMPTY

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: object) -> bool:
        return uid in self._pods

    @property
    def is_empty(self) -> bool:
        """Whether no pod can be in the queue."""
        return not (self._pods or self._retried)

    def put(self, pod: Pod) -> None:
        """Note a pod that is new or has changed; only one that waits, or is underway, stays."""
        self._forget(pod.uid)
        if is_queued(pod, SCHEDULING_GATE):
            self._pods[pod.uid] = pod
            self._ordered = None
            if pod.may_preempt:
                self._may_preempt.add(pod.uid)
        elif is_in_flight(pod):
            self._in_flight[pod.uid] = pod
            add_to(self._in_flight_usage, usage_of(pod, now=None))
            if pod.is_bind_refused:
                self._retried.add(pod.uid)
            if pod.may_preempt:
                self._preempting.add(pod.uid)
                self._unjudged.add(pod.uid)
                self._preemptors = None
        else:
            self._first_seen.pop(pod.uid, None)
            return
        self._first_seen.setdefault(pod.uid, int(pod.resource_version or 0))

    def remove(self, uid: str) -> None:
        """Forget a pod."""
        self._forget(uid)
        self._first_seen.pop(uid, None)

    def ordered(self, criteria: QueueCriteria) -> tuple[QueuedPod, ...]:
        """Return all that wait in their order, judged by `criteria`."""
        self._set_criteria(criteria)
        if self._ordered is None:
            queued = [self._evaluate(uid, pod, criteria) for uid, pod in self._pods.items()]
            self._ordered = tuple(sorted(queued, key=_sort_key))
        return self._ordered

    def with_in_flight(
        self,
        criteria: QueueCriteria,
        in_flight: Container[str],
        resting: Container[str] = frozenset(),
    ) -> tuple[QueuedPod, ...]:
        """Return all that wait, and of those underway the ones that some of them stand behind.

        Those whose bind was refused are among them in any case where they take of an elastic pool.

        Args:
            criteria: What they are judged by.
            in_flight: Uids of pods for which room may be kept.
            resting: Uids of pods that have no place although their bind was refused.
        """
        queue = self.ordered(criteria)
        if any(one.is_waiting_for_quota for one in queue):
            judged = [
                self._evaluate(uid, pod, criteria)
                for uid, pod in self._in_flight.items()
                if uid in in_flight
            ]
            queue = with_pods_ahead(queue, judged)
        if not self._retried:
            return queue
        retried = [
            self._evaluate(uid, self._in_flight[uid], criteria)
            for uid in self._retried
            if uid not in resting
        ]
        return with_retried(queue, retried)

    def preemptors(self, criteria: QueueCriteria) -> UnboundPreemptors:
        """Return those without gate and node for which others may be evicted.

        They matter to pods for which others may be evicted as well: none where none such waits.
        """
        self._set_criteria(criteria)
        if not self._may_preempt:
            return NO_PREEMPTORS
        if self._preemptors is None:
            for uid in tuple(self._unjudged):
                self._preemptor_usage.add(self._evaluate(uid, self._in_flight[uid], criteria))
                self._unjudged.remove(uid)
            self._preemptors = self._preemptor_usage.unbound(criteria)
        return self._preemptors

    def in_flight(
        self, reserved: Iterable[str], keys: Iterable[str]
    ) -> tuple[ResourceList, Sequence[Pod]]:
        """Return what pods without gate and node take, and those for which quota is reserved.

        Args:
            reserved: Uids of the pods for which something is.
            keys: Quota keys that are looked at; pods may name any number of resources.
        """
        usage = {key: self._in_flight_usage.get(key, ZERO) for key in keys}
        return usage, [pod for uid in reserved if (pod := self._in_flight.get(uid)) is not None]

    def queued_pod(self, uid: str) -> QueuedPod | None:
        """Return one of them, judged by the terms of the last line; None without any."""
        pod = self._pods.get(uid)
        if self._criteria is None or pod is None:
            return None
        return self._evaluate(uid, pod, self._criteria)

    def _forget(self, uid: str) -> None:
        queued = self._queued.pop(uid, None)
        self._retried.discard(uid)
        self._may_preempt.discard(uid)
        if uid in self._preempting:
            self._preempting.remove(uid)
            self._preemptors = None
            if queued is not None and uid not in self._unjudged:
                self._preemptor_usage.remove(queued)
            self._unjudged.discard(uid)
        former = self._in_flight.pop(uid, None)
        if former is not None:
            take_from(self._in_flight_usage, usage_of(former, now=None))
        if self._pods.pop(uid, None) is not None:
            self._ordered = None

    def _set_criteria(self, criteria: QueueCriteria) -> None:
        if criteria is not self._criteria:
            self._queued.clear()
            self._ordered = self._preemptors = None
            self._unjudged = set(self._preempting)
            self._preemptor_usage = PreemptorUsage()
        self._criteria = criteria

    def _evaluate(self, uid: str, pod: Pod, criteria: QueueCriteria) -> QueuedPod:
        queued = self._queued.get(uid)
        if queued is None:
            queued = to_queued_pod(
                pod, SCHEDULING_GATE, since=self._first_seen[uid], terms=criteria
            )
            self._queued[uid] = queued
        return queued


def usage_without(usage: ResourceList, pods: Iterable[Pod]) -> ResourceList:
    """Return usage without what some pods take of it."""
    rest = dict(usage)
    for pod in pods:
        for name, amount in usage_of(pod, now=None).items():
            if name in rest:
                rest[name] -= amount
    return rest


def _sort_key(queued: QueuedPod) -> SortKey:
    return queued.sort_key


def next_criteria(
    former: QueueCriteria | None,
    quotas: NamespaceQuotas,
    seen: NamespaceQuotaView,
    policy: QueuePolicy,
) -> QueueCriteria:
    """Return what a namespace's waiting pods are judged by; `former` itself if nothing changed.

    What the platform counts in a quota's status changes nothing: it does so as often as a tenant
    creates objects, and all waiting pods would be judged anew each time.

    Args:
        former: What they were judged by.
        quotas: The quotas as they are counted.
        seen: The quotas as they are cached.
    """
    needs_all = bool(policy.coverage.limited or policy.coverage.required)
    every = seen.all_quotas if needs_all else ()
    if (
        former is not None
        and former.quotas.count_as(quotas)
        and _cover_as(former.all_quotas, every)
        and former.unreadable == seen.errors
        and former.rules == policy
    ):
        return former
    return QueueCriteria(quotas, every, seen.errors, policy)


def _cover_as(former: tuple[ResourceQuota, ...], quotas: tuple[ResourceQuota, ...]) -> bool:
    """Return whether the same pods are covered by quotas as before, see `charging.coverage`."""
    return former is quotas or [*map(_coverage, former)] == [*map(_coverage, quotas)]


def _coverage(quota: ResourceQuota) -> object:
    return quota.name, quota.hard.keys(), quota.scopes, quota.expressions
