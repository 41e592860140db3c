"""Pods that have neither a node nor a scheduling gate: they may be bound at any moment.

A door that lets new pods through without a gate has to know what those before them take, and
whether any of them waits, also while no cache shows them yet. What it let through or gated itself
is remembered until the cache shows such a pod of that name, or of names made up in the same way, or
for `LATE_SECONDS`: pods have no uid yet when they come to the door, and other webhooks may change
what they take.
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


@dataclass(frozen=True, slots=True)
class _Recent:
    """A pod that was let through, or gated, and is not seen yet.

    Attributes:
        name: Its name, or what its name will begin with.
        usage: What it takes.
        moment: When it came, on the monotonic clock.
    """

    name: str
    usage: ResourceList
    moment: float


@dataclass(slots=True)
class _Space:
    """One namespace.

    Attributes:
        waiting: How many pods wait behind our gate.
        usage: What pods take that have no gate, seen or not seen yet.
        recent: Those that are not seen yet, in their order.
        gated: Pods that wait and are not seen yet, in their order.
    """

    waiting: int = 0
    usage: ResourceList = field(default_factory=dict)
    recent: deque[_Recent] = field(default_factory=deque)
    gated: deque[_Recent] = field(default_factory=deque)

    def put(self, usage: ResourceList) -> None:
        self.usage = add(self.usage, usage)

    def take(self, usage: ResourceList) -> None:
        self.usage = remove_zeros(subtract(self.usage, usage))

    def remember(self, recent: _Recent) -> None:
        self.recent.append(recent)
        self.put(recent.usage)

    def forget(self, name: str) -> None:
        """Forget the first of a name, because it is seen now or asked about again."""
        found = _drop(self.recent, name)
        if found is not None:
            self.take(found.usage)

    def forget_late(self, now: float) -> None:
        while self.recent and now - self.recent[0].moment >= LATE_SECONDS:
            self.take(self.recent.popleft().usage)
        while self.gated and now - self.gated[0].moment >= LATE_SECONDS:
            self.gated.popleft()

    @property
    def is_empty(self) -> bool:
        return not (self.waiting or self.usage or self.recent or self.gated)


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
        pod: Pod,
        fits: Callable[[ResourceList], bool],
        *,
        is_again: bool = False,
        is_dry_run: bool = False,
    ) -> bool:
        """Say whether a new pod may do without our gate, and remember it.

        Never while pods wait in the namespace, or while what is on its way is not known.

        Args:
            namespace: The pod's namespace.
            pod: The pod.
            fits: Tells whether it fits beside what is on its way.
            is_again: It was let through a moment ago, and has been changed since.
            is_dry_run: The pod will not be created.
        """
        if not self._is_known():
            return False
        now = self._clock()
        with self._lock:
            space = self._spaces.setdefault(namespace, _Space())
            space.forget_late(now)
            if is_again and not is_dry_run:
                space.forget(_name(pod))
            may = not (space.waiting or space.gated) and fits(space.usage)
            came = _Recent(_name(pod), usage_of(pod, now=None), now)
            if may and not is_dry_run:
                space.remember(came)
            elif not is_dry_run:
                space.gated.append(came)
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
                space.take(before.usage)
            if after is not None:
                space.waiting += after.waiting
                space.put(after.usage)
            if change.old is None and change.new is not None and after is not None:
                if after.waiting:
                    _drop(space.gated, _name(change.new))
                else:
                    space.forget(_name(change.new))
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


def _drop(pods: deque[_Recent], name: str) -> _Recent | None:
    """Take the first of a name out, and return it."""
    for index, one in enumerate(pods):
        if one.name == name:
            del pods[index]
            return one
    return None


def _name(pod: Pod) -> str:
    return pod.generate_name or pod.name
