"""In-flight pods, without node and scheduling gate: usage that may be bound at any moment.

A handler that admits new pods without a gate has to know what earlier ones take, even before a
cache shows them. Pods have no uid when the handler sees them, so each gets a token. An admitted pod
is remembered until the cache shows its token, or should have shown it.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from typing import Final

from webhook.kube.informer import Change, Informer
from webhook.kube.informer_types import STALE_SECONDS
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList, add, add_to, equal, is_within, take_from
from webhook.quota.charging.pod_usage import usage_of
from webhook.quota.ledger.ledger import EMPTY
from webhook.quota.objects.compact import new_pod_size, without_unused
from webhook.quota.objects.model import Pod
from webhook.quota.queue.queued_pods import is_in_flight, is_queued
from webhook.state.well_known import SCHEDULING_GATE, UNGATED_ANNOTATION

CACHE_LAG_SECONDS: Final = 5.0
"""How late a cache that hears of the API server is expected to show a new pod at most."""
_MAX_COMPARED: Final = 20
"""Of the pods that wait in a namespace; where more do, a new one is taken to stand behind them."""
_MAX_SIZE: Final = 32 * 2**20
"""Bytes that all pods take that are not seen yet: some 10,000 usual ones."""


@dataclass(frozen=True, slots=True)
class _UnseenPod:
    """A pod that is not seen yet."""

    pod: Pod
    """The pod as it came, without what nothing is decided by."""
    usage: ResourceList
    created_at: float
    """When it came, on the monotonic clock."""
    size: int
    """How many bytes it takes, roughly."""
    is_again: bool = False
    """Whether it was asked about again: no webhook is called more than twice for one pod."""

    def may_be(self, pod: Pod, usage: ResourceList) -> bool:
        """Return whether the pod that is asked about can be this one, which has the same mark."""
        is_same = (self.pod.name, self.pod.generate_name) == (pod.name, pod.generate_name)
        return is_same and not self.is_again and is_within(self.usage, usage)


@dataclass(slots=True)
class _Namespace:
    """One namespace."""

    waiting: dict[str, tuple[Pod, ResourceList]] = field(default_factory=dict)
    """The pods that wait behind our gate alone, by name, and what each takes."""
    usage: dict[str, Quantity] = field(default_factory=dict)
    """What pods take that have no gate, seen or not seen yet."""
    queued: dict[str, Quantity] = field(default_factory=dict)
    """What those take that wait, seen or not seen yet."""
    recent: dict[str, _UnseenPod] = field(default_factory=dict)
    """Token → a pod that was let through and is not seen yet, in their order."""
    gated: list[_UnseenPod] = field(default_factory=list)
    """Pods that were gated and are not seen yet, in their order."""
    size: int = 0
    """How many bytes those take that are not seen yet, roughly."""

    def enqueue(self, name: str, pod: Pod) -> None:
        """A pod that waits is seen."""
        usage = usage_of(pod, now=None)
        self.waiting[name] = pod, usage
        add_to(self.queued, usage)

    def dequeue(self, name: str) -> None:
        """It does not wait any more, or not as it did."""
        found = self.waiting.pop(name, None)
        if found is not None:
            take_from(self.queued, found[1])

    def remember_gated(self, recent: _UnseenPod) -> None:
        self.gated.append(recent)
        self.size += recent.size
        add_to(self.queued, recent.usage)

    def remember(self, token: str, recent: _UnseenPod) -> None:
        self.recent[token] = recent
        self.size += recent.size
        add_to(self.usage, recent.usage)

    def forget(self, token: str) -> None:
        """Forget a pod that is seen now or asked about again."""
        found = self.recent.pop(token, None)
        if found is not None:
            self.size -= found.size
            take_from(self.usage, found.usage)

    def forget_gated(self, pod: Pod) -> None:
        """Forget the one that is seen now: of its name, or of one made up in the same way.

        Of several the first that takes as much, or else the first of all.
        """
        name, usage = _name(pod), usage_of(pod, now=None)
        found = None
        for index, one in enumerate(self.gated):
            if _name(one.pod) == name:
                found = index if found is None else found
                if equal(one.usage, usage):
                    found = index
                    break
        if found is not None:
            self._forget_gated(found)

    def forget_late(self, heard: float) -> None:
        """Forget pods that the cache should have shown by a moment."""
        while self.recent:
            token, first = next(iter(self.recent.items()))
            if heard - first.created_at < CACHE_LAG_SECONDS:
                break
            self.forget(token)
        while self.gated and heard - self.gated[0].created_at >= CACHE_LAG_SECONDS:
            self._forget_gated(0)

    def _forget_gated(self, index: int) -> None:
        found = self.gated.pop(index)
        self.size -= found.size
        take_from(self.queued, found.usage)

    @property
    def is_empty(self) -> bool:
        return not (self.waiting or self.usage or self.recent or self.gated)

    def has_room(
        self,
        fits: Callable[[ResourceList, ResourceList], bool],
        is_ahead: Callable[[Pod], bool],
    ) -> bool:
        """Return whether a pod that passes delays no queued pod: there is room for them too.

        Those that it would not stand behind need none.
        """
        if self.queued and fits(self.usage, self.queued):
            return True
        if len(self.waiting) + len(self.gated) > _MAX_COMPARED:
            return False
        unseen = ((one.pod, one.usage) for one in self.gated)
        compared = chain(self.waiting.values(), unseen)
        before = [usage for pod, usage in compared if is_ahead(pod)]
        return fits(self.usage, reduce(add, before, EMPTY))


class InFlightPods:
    """Pods that are on their way in every namespace. Safe to use from several threads.

    Args:
        pods: The cached pods without a node; not started yet.
        clock: The monotonic clock.
    """

    def __init__(self, pods: Informer[Pod], clock: Callable[[], float] = time.monotonic) -> None:
        self._pods = pods
        self._clock = clock
        self._lock = threading.Lock()
        self._namespaces: dict[str, _Namespace] = {}
        self._unseen: dict[str, None] = {}
        """Namespaces with pods that are not seen yet, in which nothing else may happen any more."""
        pods.add_handler(self._on_pod)

    def __len__(self) -> int:
        """Return in how many namespaces pods are in flight or wait."""
        return len(self._namespaces)

    def try_admit(
        self,
        namespace: str,
        pod: Pod,
        *,
        fits: Callable[[ResourceList, ResourceList], bool],
        is_ahead: Callable[[Pod], bool],
        is_dry_run: bool = False,
    ) -> str:
        """Return the mark of a new pod that may do without our gate; empty if it may not.

        Never while what is on its way is not known, or more than can be remembered. Nor is one
        remembered that the API server refuses only after this, because it takes less than nothing,
        which would make room for others, or has a name of megabytes.

        Args:
            pod: The pod; one that was marked a moment ago is asked about again. Creators can read
                the mark and write it on other pods, which count besides.
            fits: Tells whether it fits beside what is on its way, and what waits before it.
            is_ahead: Tells of a pod that waits whether this one would stand behind it.
            is_dry_run: The pod will not be created.
        """
        kept = without_unused(pod)
        usage, size = usage_of(kept, now=None), new_pod_size(kept)
        if size is None or not self._is_known() or any(one.nano < 0 for one in usage.values()):
            return ""
        now = self._clock()
        token = pod.annotations.get(UNGATED_ANNOTATION, "")
        with self._lock:
            self._forget_late(self._heard(now))
            if sum(self._namespaces[one].size for one in self._unseen) > _MAX_SIZE:
                return ""
            space = self._namespaces.setdefault(namespace, _Namespace())
            former = None if is_dry_run else space.recent.get(token)
            is_again = former is not None and former.may_be(kept, usage)
            if is_again:
                space.forget(token)
            may = space.has_room(fits, is_ahead)
            came = _UnseenPod(kept, usage, now, size, is_again)
            if not is_again:
                token = secrets.token_hex(8)
            if may and not is_dry_run:
                space.remember(token, came)
            elif not is_dry_run:
                space.remember_gated(came)
            self._unseen[namespace] = None
            self._tidy(namespace, space)
        return token if may else ""

    def _is_known(self) -> bool:
        pods = self._pods
        is_fresh = pods.is_following and pods.last_event_age_seconds <= STALE_SECONDS
        return pods.has_synced and is_fresh

    def _heard(self, now: float) -> float:
        """Return when the API server was last heard of."""
        return now - self._pods.last_event_age_seconds

    def _on_pod(self, change: Change[Pod]) -> None:
        namespace, _, name = change.key.partition("/")
        heard = self._heard(self._clock())
        with self._lock:
            self._forget_late(heard)
            space = self._namespaces.setdefault(namespace, _Namespace())
            if change.old is not None:
                space.dequeue(name)
                take_from(space.usage, _usage(change.old))
            if change.new is not None:
                self._put(space, name, change.new, is_first=change.old is None)
            self._tidy(namespace, space)

    @staticmethod
    def _put(space: _Namespace, name: str, pod: Pod, *, is_first: bool) -> None:
        add_to(space.usage, _usage(pod))
        if _is_held_by_us(pod):
            space.enqueue(name, pod)
        if is_first and SCHEDULING_GATE in pod.scheduling_gates:
            space.forget_gated(pod)
        elif is_first:
            space.forget(pod.annotations.get(UNGATED_ANNOTATION, ""))

    def _forget_late(self, heard: float) -> None:
        for namespace in list(self._unseen):
            space = self._namespaces.get(namespace)
            if space is not None:
                space.forget_late(heard)
                self._tidy(namespace, space)
            if space is None or not (space.recent or space.gated):
                del self._unseen[namespace]

    def _tidy(self, namespace: str, space: _Namespace) -> None:
        if space.is_empty:
            self._namespaces.pop(namespace, None)


def _is_held_by_us(pod: Pod) -> bool:
    """Return whether nothing but our gate holds a pod."""
    return is_queued(pod, SCHEDULING_GATE) and len(pod.scheduling_gates) == 1


def _usage(pod: Pod) -> ResourceList:
    """Return what a pod adds to what is on its way: also what no node has taken so far."""
    return usage_of(pod, now=None) if is_in_flight(pod) else {}


def _name(pod: Pod) -> str:
    return pod.generate_name or pod.name
