"""Pods without gates for which the scheduler has found no node, by namespace, in their order.

Why it found none is not kept with a pod; here is what was read of it, and in which version.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from webhook.controllers.runtime.rate_limit import ExponentialBackoff
from webhook.quota.charging.pod_usage import is_terminal
from webhook.quota.ledger.ledger import Claim, Ledger, exceeded_quotas
from webhook.quota.objects.model import Pod
from webhook.quota.queue.queued_pods import QueueCriteria, QueuedPod, to_queued_pod
from webhook.state.well_known import SCHEDULING_GATE

BIND_LAG_SECONDS: Final = 1.0
"""From the sight of a pod's node to that of the ledger that has its reservation."""
_MAX_FAILED_SECONDS: Final = 300.0
"""As long as a scheduler itself leaves a pod alone that it has found no node for.

Source: kubernetes v1.36, pkg/scheduler/backend/queue/scheduling_queue.go
DefaultPodMaxInUnschedulablePodsDuration.
"""
_IN_VAIN: Final = ExponentialBackoff(1.0, _MAX_FAILED_SECONDS)
"""Pauses of a pod that was requeued in vain."""
_IN_VAIN_BEFORE_CHANGE: Final = ExponentialBackoff(1.0, 15.0)
"""The same once the ledger or a grant has changed since."""
_OTHER_REASON: Final = ExponentialBackoff(1.0, 60.0)
"""Pauses between two reads of a pod whose reason was not its quota."""
_POD_FAILED: Final = ExponentialBackoff(2.0, _MAX_FAILED_SECONDS)
"""The first is longer than that of its namespace, so that another pod is tried before it."""
_NAMESPACE_FAILED: Final = ExponentialBackoff(1.0, 30.0)


@dataclass(slots=True)
class Pause:
    """Pause after failures in a row."""

    until: float = 0.0
    failures: int = 0

    def extend(self, now: float, backoff: ExponentialBackoff) -> None:
        """Pause from now on, longer with each failure."""
        self.failures += 1
        self.until = now + backoff.seconds(self.failures)


@dataclass(slots=True)
class RequeuedPod:
    """A pod that was requeued."""

    claim: Claim | None
    """What it takes, if anything."""
    version: int
    """The pod's version by that write."""
    requeued_at: float
    """When."""
    until: float
    """It is left alone until then."""
    times: int = 1
    """How often in a row."""
    holds_quota: bool = True
    """What it takes is kept for it meanwhile."""
    snapshot_version: object = None
    """By what it was decided, see `RequeueSnapshot.version`."""

    def mark_failed(self, now: float) -> None:
        """Record that it was tried in vain: it may be requeued again after a pause."""
        if self.holds_quota:
            self.holds_quota = False
            self._pause(now, _IN_VAIN)

    def retry_on_change(self, snapshot_version: object, now: float) -> None:
        """Let it be requeued again soon if it was tried in vain and something has changed since."""
        if not self.holds_quota and snapshot_version != self.snapshot_version:
            self._pause(now, _IN_VAIN_BEFORE_CHANGE)

    def _pause(self, now: float, backoff: ExponentialBackoff) -> None:
        pause_ends = self.requeued_at + backoff.seconds(self.times)
        self.until = min(self.until, max(now, pause_ends))


@dataclass(slots=True, eq=False)
class UnschedulablePods:
    """Unschedulable pods of one namespace. Not safe to use from several threads."""

    pods: dict[str, Pod] = field(default_factory=dict)
    """Uid → a pod that no node takes."""
    requeued: dict[str, RequeuedPod] = field(default_factory=dict)
    """Uid → a pod that was requeued, also for a moment after it got its node."""
    verdicts: dict[str, tuple[int, bool]] = field(default_factory=dict)
    """Uid → in which version it was read, and whether its quota was the reason."""
    revision: int = 0
    """Grows with every change."""
    last_seen: object = None
    """What there was when they were looked at last."""
    next_at: float = 0.0
    """When to look again though nothing changes."""
    criteria: QueueCriteria | None = None
    """What they were judged by last."""
    pod_pauses: dict[str, Pause] = field(default_factory=dict)
    """Uid → for how long a pod is left alone because its request failed, or because it said
    something else when it was read."""
    pause: Pause = field(default_factory=Pause)
    """For how long all of them are left alone, because the API server did not do it."""
    rests_until: float = 0.0
    """Until when they are not looked at again: while very many are, the informer of all pods
    waits."""
    was_managed: bool = False
    """The namespace was opted in when it was looked at last."""
    opted_out: set[str] | None = None
    """Uids of the pods that were there when it opted out, to be requeued once for that; None while
    it is opted in, or nothing is known of that."""
    _first_seen: dict[str, int] = field(default_factory=dict)
    _queued: dict[str, QueuedPod] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known that could matter later."""
        return not self._first_seen and not self.requeued

    def put(self, pod: Pod, now: float) -> None:
        """Note a pod that is new or has changed."""
        if pod.is_assigned:
            self.remove(pod.uid, is_bound=True, now=now)
        elif pod.is_gated or pod.is_deleting or is_terminal(pod):
            self.remove(pod.uid, is_bound=False, now=now)
        else:
            self._first_seen.setdefault(pod.uid, int(pod.resource_version or 0))
            if pod.is_unplaced:
                self.pods[pod.uid] = pod
                self._queued.pop(pod.uid, None)
                self.revision += 1
            elif self.pods.pop(pod.uid, None) is not None:
                self.revision += 1

    def remove(self, uid: str, *, is_bound: bool, now: float) -> None:
        """Forget a pod; what it was requeued for is kept for a moment if it has its node."""
        self._first_seen.pop(uid, None)
        if self.pods.pop(uid, None) is not None:
            self.revision += 1
        self.verdicts.pop(uid, None)
        self.pod_pauses.pop(uid, None)
        self._queued.pop(uid, None)
        self._discard_opted_out(uid)
        requeued = self.requeued.get(uid)
        if requeued is not None and is_bound:
            requeued.until = min(requeued.until, now + BIND_LAG_SECONDS)
            self.next_at = min(self.next_at, requeued.until)
        elif requeued is not None:
            del self.requeued[uid]
            self.revision += 1

    def reset(self) -> None:
        """Forget what was read and done: others may have led since."""
        self.requeued.clear()
        self.verdicts.clear()
        self.pod_pauses.clear()
        self.pause = Pause()
        self.last_seen = self.criteria = self.opted_out = None
        self.was_managed = False
        self.next_at = 0.0

    # -- whether the namespace is opted in -----------------------------------------------------

    def mark_managed(self) -> None:
        """Record that the namespace is opted in."""
        self.was_managed = True
        self.opted_out = None

    def mark_opted_out(self) -> bool:
        """Record that it is not; return whether some are still to be requeued for that."""
        if self.was_managed:
            self.was_managed = False
            self.opted_out = set(self.pods)
            self.requeued.clear()
        return bool(self.opted_out)

    def _discard_opted_out(self, uid: str) -> None:
        if self.opted_out is not None:
            self.opted_out.discard(uid)

    # -- what was done -------------------------------------------------------------------------

    def record_read(self, uid: str, version: int, now: float, *, is_ours: bool) -> None:
        """Record what a pod says; one that says something else is not read at every change."""
        if uid not in self._first_seen:
            return  # it went meanwhile
        self.verdicts[uid] = (version, is_ours)
        if is_ours:
            self.pod_pauses.pop(uid, None)
        else:
            self.pod_pauses.setdefault(uid, Pause()).extend(now, _OTHER_REASON)
            self._discard_opted_out(uid)

    def record_gone(self, pod: Pod) -> None:
        """Record that a pod is not there any more."""
        if pod.uid in self._first_seen:
            self.verdicts[pod.uid] = (int(pod.resource_version or 0), False)
        self._discard_opted_out(pod.uid)

    def record_requeue(self, uid: str, requeued: RequeuedPod) -> None:
        """Record that a pod was requeued; where nothing is counted, that was all."""
        if uid in self._first_seen:
            self.verdicts[uid] = (requeued.version, True)
        self.pod_pauses.pop(uid, None)
        if self.opted_out is None:
            self.requeued[uid] = requeued
        self._discard_opted_out(uid)

    def back_off_pod(self, uid: str, now: float) -> None:
        """Let a pod rest whose request failed."""
        if uid in self._first_seen:
            self.pod_pauses.setdefault(uid, Pause()).extend(now, _POD_FAILED)

    def back_off(self, now: float) -> None:
        """Let all pods of the namespace rest."""
        self.pause.extend(now, _NAMESPACE_FAILED)

    def finish_pass(self, seen: object, now: float) -> None:
        """Record that all had their turn."""
        self.last_seen = seen
        moments = [entry.until for entry in self.requeued.values()]
        moments += [
            pause.until
            for uid, pause in self.pod_pauses.items()
            if uid in self.pods and self.is_rejected_by_quota(self.pods[uid]) is not False
        ]
        self.next_at = min([entry for entry in moments if entry > now], default=math.inf)

    def update_requeued(self, ledger: Ledger | None, snapshot_version: object, now: float) -> None:
        """Keep no room for requeued pods that no longer need it, and forget those that are gone."""
        for uid, requeued in list(self.requeued.items()):
            pod = self.pods.get(uid)
            if pod is None:
                if requeued.until <= now:
                    del self.requeued[uid]
            elif int(pod.resource_version or 0) > requeued.version:
                requeued.mark_failed(now)
                if self.is_rejected_by_quota(pod) is False:
                    del self.requeued[uid]
            elif (
                ledger is not None
                and requeued.claim is not None
                and exceeded_quotas(ledger, requeued.claim)
            ):
                requeued.mark_failed(now)  # others were quicker
            requeued.retry_on_change(snapshot_version, now)

    def excluded(self, now: float) -> set[str]:
        """Return the uids of pods that are not to be touched now."""
        excluded = {uid for uid, entry in self.requeued.items() if entry.until > now}
        excluded.update([uid for uid, entry in self.pod_pauses.items() if entry.until > now])
        if self.opted_out is not None:
            excluded.update(self.pods.keys() - self.opted_out)
        return excluded

    # -- their order ---------------------------------------------------------------------------

    def candidates(
        self, criteria: QueueCriteria, *, excluded: Collection[str]
    ) -> tuple[QueuedPod, ...]:
        """Return the pods that may have been rejected for their quota, in their order.

        Args:
            criteria: What they are judged by.
            excluded: Uids of pods that are left out.
        """
        if criteria is not self.criteria:
            self._queued.clear()
            self.criteria = criteria
        candidates = [
            self._evaluate(uid, criteria)
            for uid, pod in self.pods.items()
            if uid not in excluded and self.is_rejected_by_quota(pod) is not False
        ]
        return tuple(sorted(candidates, key=lambda queued: queued.sort_key))

    def is_rejected_by_quota(self, pod: Pod) -> bool | None:
        """Return whether a pod's quota is why it has no node; None if that was not read yet."""
        version, is_ours = self.verdicts.get(pod.uid, (-1, False))
        return is_ours if version >= int(pod.resource_version or 0) else None

    def _evaluate(self, uid: str, criteria: QueueCriteria) -> QueuedPod:
        queued = self._queued.get(uid)
        if queued is None:
            pod, since = self.pods[uid], self._first_seen.get(uid, 0)
            queued = self._queued[uid] = to_queued_pod(
                pod, SCHEDULING_GATE, since=since, terms=criteria
            )
        return queued
