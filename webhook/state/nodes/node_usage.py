"""Sum of what pods take of each node: cached ones, and those whose bind was let through.

A cache shows a bind some time after it was answered. Until then the pod is in flight: it is counted
for its node by what the answer was given for. That ends when the cache shows the pod with a node,
when the pod is gone, or after `IN_FLIGHT_SECONDS`, because a bind may fail after its admission. A
pod whose bind fails is counted for no longer in all, however often the bind is tried again: else it
would keep a node from others for good.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from webhook.kube.informer import Change
from webhook.quota.nodes.host_ports import HostPort
from webhook.quota.nodes.kubelet_admission import KubeletPod, NodeLoad
from webhook.quota.nodes.requested import Amounts

IN_FLIGHT_SECONDS: Final = 10.0
MAX_FAILED: Final = 4_000
"""Pods whose binds failed that are remembered: one that went before its bind is shown no more."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _InFlightPod:
    """A pod whose bind was let through and is not seen yet."""

    pod: KubeletPod
    admitted_at: float
    """When its first bind was let through, on the monotonic clock."""


@dataclass(slots=True)
class _Node:
    """One node."""

    requested: dict[str, int] = field(default_factory=dict)
    ports: dict[str, tuple[HostPort, ...]] = field(default_factory=dict)
    """Uid of each pod that has some → its ports."""
    count: int = 0
    """Pods that are seen on it."""
    in_flight: dict[str, _InFlightPod] = field(default_factory=dict)
    """Pods that are being bound to it, by uid."""

    def put(self, pod: KubeletPod) -> None:
        self.count += 1
        _add(self.requested, pod.amounts)
        if pod.ports:
            self.ports[pod.uid] = pod.ports

    def take(self, pod: KubeletPod) -> None:
        self.count -= 1
        for name, amount in pod.amounts.items():
            rest = self.requested.pop(name, 0) - amount
            if rest:  # pods that come and go name any number of resources
                self.requested[name] = rest
        self.ports.pop(pod.uid, None)


@dataclass(frozen=True, slots=True)
class Loads:
    """Usage of a node."""

    seen: NodeLoad
    """By pods that are there."""
    expected: NodeLoad
    """By these, and by those that are being bound."""
    in_flight: int
    """How many are being bound."""


class NodeUsage:
    """Usage of every node. Safe to use from several threads.

    Args:
        clock: The monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._nodes: dict[str, _Node] = {}
        self._node_of: dict[str, str] = {}
        """Uid of each pod that is being bound → its node."""
        self._failed: dict[str, None] = {}
        """Uids of pods that have no node after having been counted for as long as is allowed."""

    def on_pod(self, change: Change[KubeletPod]) -> None:
        """Take in what an informer of all pods shows."""
        old, new = change.old, change.new
        with self._lock:
            if old is not None and _is_on_node(old):
                self._take(old)
            if new is not None and _is_on_node(new):
                self._nodes.setdefault(new.node, _Node()).put(new)
            if new is None or new.node:
                self._land(change.uid)
                self._failed.pop(change.uid, None)

    def requested(self, node: str) -> Amounts:
        """Return what the pods request that are seen on a node."""
        with self._lock:
            known = self._nodes.get(node)
            return {} if known is None else dict(known.requested)

    def in_flight(self, node: str) -> dict[str, KubeletPod]:
        """Return the pods that are being bound to a node, by uid."""
        with self._lock:
            return self._in_flight_to(node)

    def admit(
        self,
        node: str,
        pod: KubeletPod,
        judge: Callable[[Loads], tuple[_T, ...]],
        *,
        is_dry_run: bool = False,
    ) -> tuple[_T, ...]:
        """Judge a bind by the cached pods; where nothing is against it, the pod is in flight.

        No two binds are judged at once, so that both are not given what is left for one.

        Args:
            node: The name of the node.
            pod: The pod.
            judge: Returns what is against it.
            is_dry_run: The pod will not be bound.
        """
        with self._lock:
            seen = self._nodes.get(node) or _Node()
            taken = seen.ports.values() if pod.ports else ()
            load = NodeLoad(seen.requested, [port for ports in taken for port in ports])
            flying = self._in_flight_to(node)
            return self._judged(node, pod, judge, load, flying, is_dry_run=is_dry_run)

    def admit_among(
        self,
        node: str,
        pod: KubeletPod,
        judge: Callable[[Loads], tuple[_T, ...]],
        *,
        stored: Collection[KubeletPod],
        in_flight: Mapping[str, KubeletPod],
        is_dry_run: bool = False,
    ) -> tuple[_T, ...]:
        """Judge a bind as `admit` does, by pods that were just read.

        Args:
            node: The name of the node.
            pod: The pod.
            judge: Returns what is against it.
            stored: The pods of the node as the API server has them.
            in_flight: Those that were being bound before they were read: since then the cache may
                have shown them.
            is_dry_run: The pod will not be bound.
        """
        there = {one.uid for one in stored}
        load = _sum(one for one in stored if _is_on_node(one))
        with self._lock:
            # what is stored stays in flight until the cache shows it, for those that judge by that
            flying = {**in_flight, **self._in_flight_to(node)}
            unseen = {uid: one for uid, one in flying.items() if uid not in there}
            return self._judged(node, pod, judge, load, unseen, is_dry_run=is_dry_run)

    def forget(self, uid: str) -> None:
        """Count a pod no more as being bound: its bind was refused after all."""
        with self._lock:
            self._land(uid)

    def _judged(
        self,
        node: str,
        pod: KubeletPod,
        judge: Callable[[Loads], tuple[_T, ...]],
        seen: NodeLoad,
        in_flight: Mapping[str, KubeletPod],
        *,
        is_dry_run: bool,
    ) -> tuple[_T, ...]:
        others = [one for uid, one in in_flight.items() if uid != pod.uid]
        expected = _sum(others, seen) if others else seen
        against = judge(Loads(seen, expected, len(others)))
        if not against and not is_dry_run:
            self._fly(node, pod)
        return against

    def _fly(self, node: str, pod: KubeletPod) -> None:
        """Count a pod for its node, as long as is left since its first bind was let through."""
        self._in_flight_to(self._node_of.get(pod.uid, node))  # ends what is over
        former = self._land(pod.uid)
        if pod.uid not in self._failed:
            admitted_at = self._clock() if former is None else former.admitted_at
            flight = _InFlightPod(pod, admitted_at)
            self._nodes.setdefault(node, _Node()).in_flight[pod.uid] = flight
            self._node_of[pod.uid] = node

    def _in_flight_to(self, name: str) -> dict[str, KubeletPod]:
        node = self._nodes.get(name)
        if node is None:
            return {}
        oldest = self._clock() - IN_FLIGHT_SECONDS
        for uid in [uid for uid, one in node.in_flight.items() if one.admitted_at < oldest]:
            self._land(uid)
            self._failed[uid] = None
            if len(self._failed) > MAX_FAILED:
                del self._failed[next(iter(self._failed))]
        return {uid: one.pod for uid, one in node.in_flight.items()}

    def _land(self, uid: str) -> _InFlightPod | None:
        """End the flight of a pod, and return it if there was one."""
        name = self._node_of.pop(uid, None)
        if name is None:
            return None
        flight = self._nodes[name].in_flight.pop(uid)
        self._tidy(name)
        return flight

    def _take(self, pod: KubeletPod) -> None:
        self._nodes[pod.node].take(pod)
        self._tidy(pod.node)

    def _tidy(self, name: str) -> None:
        node = self._nodes[name]
        if not (node.count or node.in_flight):
            del self._nodes[name]


def _is_on_node(pod: KubeletPod) -> bool:
    return bool(pod.node) and not pod.has_ended


def _sum(pods: Iterable[KubeletPod], load: NodeLoad | None = None) -> NodeLoad:
    requested: dict[str, int] = {} if load is None else dict(load.requested)
    ports: list[HostPort] = [] if load is None else list(load.ports)
    for pod in pods:
        _add(requested, pod.amounts)
        ports.extend(pod.ports)
    return NodeLoad(requested, ports)


def _add(total: dict[str, int], amounts: Amounts) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount
