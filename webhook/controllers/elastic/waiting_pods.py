"""Pods that wait for elastic quotas alone, and advice for their conditions.

Queues report them on their threads; one controller reads them on its own, and leaves its advice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from webhook.controllers.elastic.promises import HeldPromise
from webhook.controllers.elastic.reclaim_view import ReclaimParts
from webhook.controllers.runtime.context import ControllerContext
from webhook.quota.elastic.elastic_quotas import ElasticQuota
from webhook.quota.elastic.owners_first import waiting_for_elastic
from webhook.quota.queue.queued_pods import PendingReason, PendingStatus

Advice = tuple[PendingReason, str]
"""Reason of a condition, and its text about reclaim beside the numbers."""


@dataclass(slots=True)
class WaitingPod:
    """A pod that waits for elastic quotas alone."""

    uid: str
    namespace: str
    since: float
    epoch: int
    name: str = ""
    """Of the pod, once a cache has shown it."""
    fruitless: int = 0
    """Number of plans for it in a row that came to nothing."""
    not_before: float = 0.0
    """Time of the next plan for it, at the earliest."""
    behind: frozenset[str] = frozenset()
    """Uids of such pods that are released before it."""


class WaitingPods:
    """Pods that wait for elastic quotas alone. Safe to use from several threads.

    Args:
        reconcile_after: Requeues the controller after some seconds.
    """

    def __init__(
        self,
        context: ControllerContext,
        parts: ReclaimParts,
        reconcile_after: Callable[[float], None],
    ) -> None:
        self._clock, self._epoch = context.timings.clock, context.leader_epoch
        self._parts = parts
        self._reconcile_after = reconcile_after
        self._lock = threading.Lock()
        self._waiting: dict[str, dict[str, WaitingPod]] = {}
        """Namespace → uid → a pod that waits for elastic quotas alone."""
        self._promised: dict[str, frozenset[str]] = {}
        """Namespace → uids of its pods to which something is promised."""
        self._advice: dict[str, Advice] = {}

    # -- from the queues, on their threads -----------------------------------------------------

    def on_queue(
        self, namespace: str, pending: Mapping[str, PendingStatus], _releasable: Collection[str]
    ) -> None:
        """Take the result of a cycle of a queue, see `QueueListener`."""
        quota = self._parts.quotas().get(namespace)
        uids = {} if quota is None else waiting_for_elastic(pending)
        epoch = self._epoch()
        with self._lock:
            is_released = not self._promised.get(namespace, frozenset()) <= pending.keys()
        if is_released:  # what was held for it is reserved: others need not leave it any more
            self._reconcile_after(0.0)
        with self._lock:
            known = self._waiting.pop(namespace, {})
            kept = {uid: one for uid, one in known.items() if uid in uids and one.epoch == epoch}
            new = [uid for uid in uids if uid not in kept]
            kept |= {uid: WaitingPod(uid, namespace, self._clock(), epoch) for uid in new}
            for uid, one in kept.items():
                one.behind = uids[uid]
            if kept:
                self._waiting[namespace] = kept
        if new and quota is not None:
            self._reconcile_after(self.after_seconds(quota))

    def with_advice(self, pending: Mapping[str, PendingStatus]) -> Mapping[str, PendingStatus]:
        """Return why pods wait, with the advice for them."""
        with self._lock:
            found = {uid: self._advice[uid] for uid in self._advice if uid in pending}
        advised = {
            uid: _with_advice(pending[uid], advice)
            for uid, advice in found.items()
            if pending[uid].reason in (PendingReason.QUOTA_EXCEEDED, PendingReason.BEHIND)
        }
        return {**pending, **advised} if advised else pending

    # -- on the thread of the controller -------------------------------------------------------

    def of_epoch(self, epoch: int) -> list[WaitingPod]:
        """Return the pods that wait under a leadership."""
        with self._lock:
            known = [one for pods in self._waiting.values() for one in pods.values()]
        return [one for one in known if one.epoch == epoch]

    def is_waiting(self, uid: str) -> bool:
        """Return whether a pod waits, with a promise or without."""
        with self._lock:
            return any(uid in pods for pods in (*self._waiting.values(), *self._promised.values()))

    def behind(self, promise: HeldPromise) -> frozenset[str]:
        """Return the uids of the pods that the one of a promise waits behind."""
        with self._lock:
            one = self._waiting.get(promise.namespace, {}).get(promise.uid)
        return frozenset() if one is None else one.behind

    def after_seconds(self, quota: ElasticQuota) -> float:
        """Return for how long pods of a quota wait before one is evicted for them."""
        given = quota.after_seconds
        return float(self._parts.settings().reclaim.after_seconds if given is None else given)

    def note_promised(self, promises: Iterable[HeldPromise]) -> None:
        """Note to which pods something is promised now."""
        by_namespace: dict[str, set[str]] = {}
        for one in promises:
            by_namespace.setdefault(one.namespace, set()).add(one.uid)
        with self._lock:
            self._promised = {name: frozenset(uids) for name, uids in by_namespace.items()}

    @property
    def advice(self) -> Mapping[str, Advice]:
        """Advice by the uid of the pod."""
        return self._advice  # it is replaced, on the thread that reads it, and never changed

    def advise(self, advice: Mapping[str, Advice]) -> None:
        """Replace the advice, and requeue the namespaces of pods whose own is another now."""
        with self._lock:
            former, self._advice = self._advice, dict(advice)
            changed = {uid for uid in {*former, *advice} if former.get(uid) != advice.get(uid)}
            namespaces = [
                name for name, pods in self._waiting.items() if not changed.isdisjoint(pods)
            ]
        for namespace in namespaces:
            self._parts.requeue_after(namespace, 0.0)


def _with_advice(status: PendingStatus, advice: Advice) -> PendingStatus:
    reason, text = advice
    is_promised = reason is PendingReason.RECLAIMING
    return replace(status, reason=reason if is_promised else status.reason, detail=text)
