"""Pods that have neither a node nor a scheduling gate: they may be bound at any moment.

A door that lets new pods through without a gate has to know what those before them take, also
while no cache shows them yet. What it let through itself is remembered until the cache shows a pod
that takes the same, or for `LATE_SECONDS`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from webhook.cluster.informer import Change, Informer
from webhook.quota.line import is_underway, waits
from webhook.quota.objects import Pod
from webhook.quota.pods import usage_of
from webhook.quota.resources import ResourceList, add, remove_zeros, subtract
from webhook.state.names import GATE
from webhook.state.view import STALE_SECONDS

LATE_SECONDS: Final = 5.0
"""How late a cache is expected to show a new pod at most."""


@dataclass(slots=True)
class _Space:
    """One namespace.

    Attributes:
        waiting: How many pods wait behind our gate.
        usage: What the pods take that the cache shows without a gate.
        recent: When a pod was let through that it does not show yet, and what it takes.
        gated_at: When a pod was last gated here, on the monotonic clock.
    """

    waiting: int = 0
    usage: ResourceList = field(default_factory=dict)
    recent: deque[tuple[float, ResourceList]] = field(default_factory=deque)
    gated_at: float | None = None

    def forget_late(self, now: float) -> None:
        while self.recent and now - self.recent[0][0] >= LATE_SECONDS:
            self.recent.popleft()
        if self.gated_at is not None and now - self.gated_at >= LATE_SECONDS:
            self.gated_at = None

    @property
    def is_empty(self) -> bool:
        return not (self.waiting or self.usage or self.recent or self.gated_at is not None)


class Underway:
    """What is on its way in every namespace. Safe to use from several threads.

    Args:
        pods: The cached pods without a node; not started yet.
        clock: The monotonic clock.
    """

    def __init__(self, pods: Informer[Pod], clock: Callable[[], float] = time.monotonic) -> None:
        self._pods = pods
        self._clock = clock
        self._lock = threading.Lock()
        self._spaces: dict[str, _Space] = {}
        pods.add_handler(self._on_pod)

    def let_through(
        self,
        namespace: str,
        usage: ResourceList,
        fits: Callable[[ResourceList], bool],
        *,
        is_dry_run: bool = False,
    ) -> bool:
        """Say whether a new pod may do without our gate, and remember it.

        Never while pods wait in the namespace, or while what is on its way is not known.

        Args:
            namespace: The pod's namespace.
            usage: What it takes.
            fits: Tells whether it fits beside what is on its way.
            is_dry_run: The pod will not be created.
        """
        if not self._is_known():
            return False
        now = self._clock()
        with self._lock:
            space = self._spaces.setdefault(namespace, _Space())
            space.forget_late(now)
            may = not space.waiting and space.gated_at is None and fits(_total(space))
            if not is_dry_run:
                if may:
                    space.recent.append((now, usage))
                else:
                    space.gated_at = now
            self._tidy(namespace, space)
        return may

    def _is_known(self) -> bool:
        pods = self._pods
        is_fresh = pods.is_following and pods.last_event_age_seconds <= STALE_SECONDS
        return pods.has_synced and is_fresh

    def _on_pod(self, change: Change[Pod]) -> None:
        before, after = _share(change.old), _share(change.new)
        if before == after:
            return
        namespace = change.key.partition("/")[0]
        with self._lock:
            space = self._spaces.setdefault(namespace, _Space())
            if before is not None:
                space.waiting -= before.waiting
                space.usage = remove_zeros(subtract(space.usage, before.usage))
            if after is not None:
                space.waiting += after.waiting
                space.usage = remove_zeros(add(space.usage, after.usage))
            if change.old is None and after is not None and not after.waiting:
                _show(space, after.usage)
            self._tidy(namespace, space)

    def _tidy(self, namespace: str, space: _Space) -> None:
        if space.is_empty:
            self._spaces.pop(namespace, None)


@dataclass(frozen=True, slots=True)
class _Share:
    """What a pod adds to its namespace."""

    waiting: int
    usage: ResourceList


def _share(pod: Pod | None) -> _Share | None:
    """Return what a pod adds; None of one that is not on its way."""
    if pod is None:
        return None
    if waits(pod, GATE):
        return _Share(1, {})
    return _Share(0, usage_of(pod, now=None)) if is_underway(pod) else None


def _show(space: _Space, usage: ResourceList) -> None:
    """Note that the cache shows a pod that takes so much."""
    for index, (_, expected) in enumerate(space.recent):
        if expected == usage:
            del space.recent[index]
            return


def _total(space: _Space) -> ResourceList:
    total = space.usage
    for _, usage in space.recent:
        total = add(total, usage)
    return total
