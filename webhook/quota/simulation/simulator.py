"""Discrete events: every pod from its arrival to its end, under one way of charging quota.

How the parts of a cluster behave here:

1. API server. A creation is checked by its own quota check (`evaluation.assess`); where quota is
   deferred, on quotas without the deferred keys.
2. Controllers. A pod that is refused is created again after the back-off of its controller, each
   pod on its own. When a pod ends it is deleted.
3. Webhook. A bind is charged by `ledger.admit`, and counted at once.
4. Queue. It runs (`release_order.run_cycle`) when a gated pod arrives and when quota is given back.
5. Scheduler. A pod goes to the best node (`nodes`) when it is created or released; one whose bind
   is refused again after back-off; one that fits no node as soon as it does, by priority, then by
   arrival. It evicts no pod.

Nothing takes time but running and waiting. Of events at one moment ends come first, then
reservations that expire, then deletions of pods without a node, then creations and binds in the
order in which they became due.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from webhook.quota.charging.deferral import deferred_quotas
from webhook.quota.objects.model import ResourceQuota
from webhook.quota.objects.quota_bounds import counted_quotas, undecided_by
from webhook.quota.queue.queued_pods import QueueCriteria
from webhook.quota.simulation.deferred_charging import DeferredCharging
from webhook.quota.simulation.native_charging import NativeCharging
from webhook.quota.simulation.placement import Placement
from webhook.quota.simulation.values import (
    SCHEDULER_BACK_OFF,
    Arrival,
    Event,
    EventKind,
    Mode,
    Scenario,
)


class _Step(IntEnum):
    """Step that is due; of one moment the lower first."""

    END = 0
    EXPIRE = 1
    WITHDRAW = 2
    CREATE = 3
    BIND = 4


@dataclass(eq=False, slots=True)
class _Pod:
    """A pod that has arrived or will."""

    arrival: Arrival
    sequence: int
    priority: int
    node: str = ""
    refusals: int = 0
    """In a row, of its creation or of its bind."""
    refusal: str = ""
    refused_at: int = -1
    """The state of the namespace that its last request was refused in."""
    waits_since: int = -1
    """Since when no node fits; -1: it is not waiting for one."""
    is_withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class _Namespace:
    """Quotas of one namespace."""

    native: NativeCharging
    deferred: DeferredCharging | None

    @property
    def changes(self) -> int:
        """Number of times that quota was charged or given back."""
        return self.native.changes + (0 if self.deferred is None else self.deferred.changes)


def simulate(scenario: Scenario, mode: Mode) -> Iterator[Event]:
    """Yield what happens, in order; the same scenario always gives the same events.

    Raises:
        ScopeError: The scopes of a quota cannot be evaluated.
    """
    return _Simulation(scenario, mode).run()


class _Simulation:
    """The state of one cluster."""

    def __init__(self, scenario: Scenario, mode: Mode) -> None:
        self._scenario = scenario
        self._mode = mode
        self._now = 0
        self._sequence = len(scenario.arrivals)
        self._pods = [
            _Pod(arrival, index, arrival.template.pod.priority or 0)
            for index, arrival in enumerate(scenario.arrivals)
        ]
        self._by_arrival = {pod.arrival: pod for pod in self._pods}
        templates = dict.fromkeys(arrival.template for arrival in scenario.arrivals)
        self._placement = Placement(scenario.nodes, templates)
        self._namespaces = {
            name: self._namespace(name)
            for name in sorted({template.pod.namespace for template in templates})
        }
        self._due = [*self._coming()]
        heapq.heapify(self._due)
        self._lasting = len(self._due)
        """How many of the steps that are due are no repeated requests."""
        self._idle = 0
        """How many repeated requests were refused since anything changed."""
        self._unplaced: dict[object, list[tuple[int, int, _Pod]]] = {}
        """Pods that fit no node, by the shape of their template, each in order."""
        self._events: list[Event] = []

    def _coming(self) -> Iterator[tuple[int, _Step, int, _Pod]]:
        for pod in self._pods:
            arrival = pod.arrival
            yield arrival.at, _Step.CREATE, pod.sequence, pod
            if arrival.patience is not None:
                yield arrival.at + max(1, arrival.patience), _Step.WITHDRAW, pod.sequence, pod

    def run(self) -> Iterator[Event]:
        until = self._scenario.until
        steps = {
            _Step.END: self._end,
            _Step.EXPIRE: self._expire,
            _Step.WITHDRAW: self._withdraw,
            _Step.CREATE: self._create,
            _Step.BIND: self._place,
        }
        while self._due and (self._lasting or self._idle <= len(self._due)):
            now, step, _, pod = heapq.heappop(self._due)
            if until is not None and now > until:
                return
            self._now = now
            if step is not _Step.BIND and not (step is _Step.CREATE and pod.refusals):
                self._lasting -= 1
            steps[step](pod)
            yield from self._events
            self._events.clear()

    def _namespace(self, name: str) -> _Namespace:
        scenario = self._scenario
        quotas = tuple([quota for quota in scenario.quotas if quota.namespace == name])
        if self._mode is Mode.NATIVE:
            return _Namespace(NativeCharging(quotas, frozenset(), scenario.limited), None)
        native = NativeCharging(quotas, scenario.deferred_keys, ())
        return _Namespace(native, self._deferred(quotas))

    def _deferred(self, quotas: tuple[ResourceQuota, ...]) -> DeferredCharging:
        scenario = self._scenario
        criteria = QueueCriteria(
            deferred_quotas(counted_quotas(quotas), scenario.deferred_keys),
            quotas,
            tuple(undecided_by(quotas).values()),
            rules=scenario.policy,
        )
        return DeferredCharging(criteria, scenario.gate, scenario.max_reservations)

    def _space(self, pod: _Pod) -> _Namespace:
        return self._namespaces[pod.arrival.template.pod.namespace]

    def _create(self, pod: _Pod) -> None:
        if pod.is_withdrawn:
            return
        space, arrival = self._space(pod), pod.arrival
        refusal = self._repeated(pod, space) or self._refused_creation(space, arrival)
        if refusal:
            self._refuse(pod, EventKind.CREATE_REFUSED, refusal)
            return
        self._change(pod)
        deferred = space.deferred
        if self._mode is Mode.GATED and deferred is not None and deferred.needs_gate(arrival):
            self._note(EventKind.GATED, pod)
            deferred.enqueue(arrival, pod.sequence)
            self._release(deferred)
            return
        self._note(EventKind.CREATED, pod)
        self._place(pod)

    def _refused_creation(self, space: _Namespace, arrival: Arrival) -> str:
        by_rule = "" if space.deferred is None else space.deferred.refusal_at_creation(arrival)
        return by_rule or space.native.create(arrival)

    def _repeated(self, pod: _Pod, space: _Namespace) -> str:
        """Return the last refusal of a pod, if nothing has changed since."""
        return pod.refusal if pod.refused_at == space.changes else ""

    def _refuse(self, pod: _Pod, kind: EventKind, refusal: str) -> None:
        pod.refusals += 1
        pod.refusal, pod.refused_at = refusal, self._space(pod).changes
        self._idle += 1
        self._note(kind, pod, refusal)
        is_creation = kind is EventKind.CREATE_REFUSED
        back_off = pod.arrival.template.back_off if is_creation else SCHEDULER_BACK_OFF
        if back_off is not None:
            step = _Step.CREATE if is_creation else _Step.BIND
            self._schedule(self._now + back_off.pause(pod.refusals), step, pod)

    def _change(self, pod: _Pod) -> None:
        """Note that a request was not refused."""
        pod.refusals, pod.refusal, pod.refused_at = 0, "", -1
        self._idle = 0

    def _place(self, pod: _Pod) -> None:
        """Bind a pod, if a node fits and its quotas have room."""
        if pod.is_withdrawn:
            return
        node = self._placement.best(pod.arrival.template)
        if not node:
            self._wait_for_node(pod)
            return
        space, arrival = self._space(pod), pod.arrival
        refusal = self._repeated(pod, space)
        if not refusal and space.deferred is not None:
            refusal = space.deferred.bind(arrival)
        if refusal:
            self._refuse(pod, EventKind.BIND_REFUSED, refusal)
            return
        self._change(pod)
        pod.node, pod.waits_since = node, -1
        self._placement.add(arrival.key, arrival.template, node)
        self._note(EventKind.BOUND, pod, node)
        self._schedule(self._now + arrival.duration, _Step.END, pod)
        self._lasting += 1

    def _wait_for_node(self, pod: _Pod) -> None:
        queue = self._unplaced.setdefault(self._placement.shape(pod.arrival.template), [])
        heapq.heappush(queue, (-pod.priority, pod.sequence, pod))
        pod.waits_since = self._now
        self._idle = 0
        self._note(EventKind.UNSCHEDULABLE, pod)
        deferred = self._space(pod).deferred
        if deferred is not None and deferred.is_reserved(pod.arrival):
            self._schedule(self._now + self._scenario.gate_release, _Step.EXPIRE, pod)
            self._lasting += 1

    def _end(self, pod: _Pod) -> None:
        space, arrival = self._space(pod), pod.arrival
        self._placement.remove(arrival.key, arrival.template, pod.node)
        space.native.give_back(arrival)
        if space.deferred is not None:
            space.deferred.end(arrival)
        self._idle = 0
        self._note(EventKind.ENDED, pod)
        self._place_waiting()
        if space.deferred is not None:
            self._release(space.deferred)

    def _expire(self, pod: _Pod) -> None:
        deferred = self._space(pod).deferred
        has_waited = 0 <= pod.waits_since <= self._now - self._scenario.gate_release
        if not has_waited or deferred is None or not deferred.is_reserved(pod.arrival):
            return
        deferred.expire(pod.arrival)
        self._idle = 0
        self._note(EventKind.EXPIRED, pod)
        self._release(deferred)

    def _withdraw(self, pod: _Pod) -> None:
        if pod.node:
            return
        pod.is_withdrawn = True
        self._forget_unplaced(pod)
        space, arrival = self._space(pod), pod.arrival
        space.native.give_back(arrival)
        if space.deferred is not None:
            space.deferred.withdraw(arrival)
        self._idle = 0
        self._note(EventKind.WITHDRAWN, pod)
        if space.deferred is not None:
            self._release(space.deferred)

    def _forget_unplaced(self, pod: _Pod) -> None:
        if pod.waits_since < 0:
            return
        pod.waits_since = -1
        shape = self._placement.shape(pod.arrival.template)
        left = [entry for entry in self._unplaced[shape] if entry[2] is not pod]
        heapq.heapify(left)
        self._unplaced[shape] = left
        if not left:
            del self._unplaced[shape]

    def _release(self, deferred: DeferredCharging) -> None:
        for arrival in deferred.run_queue(self._now):
            pod = self._by_arrival[arrival]
            self._note(EventKind.RELEASED, pod)
            self._place(pod)

    def _place_waiting(self) -> None:
        """Place pods that fit no node so far, as long as one does now."""
        while True:
            fitting = [
                (queue[0], shape)
                for shape, queue in self._unplaced.items()
                if self._placement.best(queue[0][2].arrival.template)
            ]
            if not fitting:
                return
            (_, _, pod), shape = min(fitting, key=lambda item: item[0][:2])
            heapq.heappop(self._unplaced[shape])
            if not self._unplaced[shape]:
                del self._unplaced[shape]
            pod.waits_since = -1
            self._place(pod)

    def _schedule(self, at: int, step: _Step, pod: _Pod) -> None:
        self._sequence += 1
        heapq.heappush(self._due, (at, step, self._sequence, pod))

    def _note(self, kind: EventKind, pod: _Pod, detail: str = "") -> None:
        self._events.append(Event(self._now, kind, pod.arrival, detail))
