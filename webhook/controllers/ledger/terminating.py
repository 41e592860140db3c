"""Pods that are being deleted, and when the platform stops charging them though they are there.

It charges a pod until twice its grace period has passed since the deletion was asked for. By its
rule that is told from a time that another machine wrote. Here it is measured from when this process
saw the deletion, which was no earlier, so that no clock has to agree.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping

from webhook.controllers.ledger.namespace_state import NamespaceState
from webhook.quota.objects.model import Pod


class TerminatingPods:
    """The deleted pods of all namespaces. Not safe to use from several threads."""

    def __init__(self) -> None:
        self._due: list[tuple[float, str, str]] = []
        """A heap of when, namespace and uid; what `uncharge_at` does not say is over."""

    def __len__(self) -> int:
        return len(self._due)

    def track(self, namespace: str, state: NamespaceState, pod: Pod, now: float) -> None:
        """Note until when a pod is charged, if it is being deleted; a later time changes nothing.

        Args:
            namespace: Where the pod is.
            state: The same.
            pod: The pod as it is now.
            now: The moment, on the monotonic clock.
        """
        grace = pod.deletion_grace_period_seconds
        if not pod.is_deleting or grace is None:
            return
        release = now + 2 * max(grace, 0) + 1
        if release < state.uncharge_at.get(pod.uid, math.inf):
            state.uncharge_at[pod.uid] = release
            heapq.heappush(self._due, (release, namespace, pod.uid))

    def pop_due(self, state: Mapping[str, NamespaceState], now: float) -> list[tuple[str, str]]:
        """Take out those that are not charged any more: namespace and uid, the earliest first."""
        due: list[tuple[str, str]] = []
        while self._due and self._due[0][0] <= now:
            release, namespace, uid = heapq.heappop(self._due)
            place = state.get(namespace)
            if place is not None and place.uncharge_at.get(uid) == release:
                due.append((namespace, uid))
        return due
