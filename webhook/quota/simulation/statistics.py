"""Figures of a simulation, summed from its events.

Of a quota's resource, *running* is what pods on nodes take, *held* what the quota is charged: by
pods that are created, where it is charged natively; by pods that are reserved for or bound, where
it is deferred. What is held and does not run is quota that does nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from webhook.quota.amounts.resources import ResourceList
from webhook.quota.charging.pod_usage import usage_of
from webhook.quota.charging.scopes import matches
from webhook.quota.nodes.model import NodeView
from webhook.quota.nodes.requested import PODS, requested_of
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import is_pod_quota_key
from webhook.quota.simulation.timeline import Timeline
from webhook.quota.simulation.values import Arrival, Event, EventKind, Mode, PodTemplate, Scenario

_REFUSALS = frozenset({EventKind.CREATE_REFUSED, EventKind.BIND_REFUSED})


@dataclass(frozen=True, slots=True)
class Meter:
    """A quota's resource, or a resource of all nodes together."""

    name: str
    """`namespace/quota resource`, or `nodes resource`."""
    limit: int
    """In 10^-9 of a quota, in the scheduler's units of nodes."""
    running: Timeline
    held: Timeline | None
    """None of nodes."""
    is_charged_at_creation: bool = False

    def utilisation(self, end: int) -> Fraction:
        """Return which part of the limit was running, over all the time."""
        return self._part(self.running.total(end), end)

    def idle(self, end: int) -> Fraction:
        """Return which part of the limit was charged without running, over all the time."""
        if self.held is None:
            return Fraction(0)
        return self._part(self.held.total(end) - self.running.total(end), end)

    def _part(self, total: int, end: int) -> Fraction:
        return Fraction(total, self.limit * end) if self.limit and end else Fraction(0)


@dataclass(frozen=True, slots=True)
class Report:
    """Figures of one mode."""

    mode: Mode
    end: int
    """When the simulation ends, or the last event was."""
    counts: Mapping[EventKind, int]
    arrived: int
    never_created: int
    """Pods that were refused at creation, and are not stored at the end."""
    waiting: int
    """Pods that are stored and have no node at the end."""
    running: int
    retries: int
    """Requests that were made again after a refusal."""
    waits: Mapping[str, tuple[int, ...]]
    """Of the pods that have started, from arrival to bind, sorted; by group, and "" for all."""
    meters: tuple[Meter, ...]
    backlog: Timeline
    """Pods that have arrived and not started."""

    @property
    def refusals(self) -> int:
        """Requests that were refused."""
        return sum(self.counts.get(kind, 0) for kind in _REFUSALS)

    @property
    def started(self) -> int:
        """Pods that were bound."""
        return self.counts.get(EventKind.BOUND, 0)

    @property
    def ended(self) -> int:
        """Pods that have run to their end."""
        return self.counts.get(EventKind.ENDED, 0)

    def wait_at(self, percent: int, group: str = "") -> int | None:
        """Return a percentile of the waits, the nearest rank; None if no pod has started."""
        waits = self.waits.get(group, ())
        return waits[max(0, -(-percent * len(waits) // 100) - 1)] if waits else None


class Statistics:
    """Sums the events of one mode.

    Args:
        scenario: What is simulated.
        mode: How quota is charged.
    """

    def __init__(self, scenario: Scenario, mode: Mode) -> None:
        self._scenario = scenario
        self._mode = mode
        self._counts: Counter[EventKind] = Counter()
        self._states: dict[str, EventKind] = {}
        self._waits: dict[str, list[int]] = {}
        self._end = 0
        self._retries = 0
        self._backlog = Timeline()
        self._meters = list(_quota_meters(scenario, mode))
        self._nodes = list(_node_meters(scenario))
        self._shares: dict[PodTemplate, list[tuple[Meter, int]]] = {}
        self._reserved: set[str] = set()
        """Pods that what is deferred is charged for."""
        self._arrived = _Arrived(scenario.arrivals, self._backlog)

    def add(self, event: Event) -> None:
        """Sum one event; they come in their order."""
        kind, key = event.kind, event.arrival.key
        self._arrived.until(event.at)
        self._end = event.at
        self._counts[kind] += 1
        before = self._states.get(key)
        self._retries += before in _REFUSALS and kind is not EventKind.WITHDRAWN
        self._states[key] = kind
        match kind:
            case EventKind.CREATED | EventKind.GATED:
                self._hold(event, 1, at_creation=True)
            case EventKind.RELEASED:
                self._reserve(event)
            case EventKind.EXPIRED:
                self._cancel(event)
            case EventKind.BOUND:
                self._waits.setdefault(event.arrival.group, []).append(event.at - event.arrival.at)
                self._backlog.change(event.at, -1)
                self._run(event, 1)
                self._reserve(event)
            case EventKind.ENDED:
                self._run(event, -1)
                self._cancel(event)
                self._hold(event, -1, at_creation=True)
            case EventKind.WITHDRAWN:
                self._backlog.change(event.at, -1)
                if key in self._reserved:
                    self._cancel(event)
                if before is not EventKind.CREATE_REFUSED:
                    self._hold(event, -1, at_creation=True)

    def report(self) -> Report:
        """Return the figures."""
        states = Counter(self._states.values())
        if self._scenario.until is not None:
            self._end = max(self._end, self._scenario.until)
        self._arrived.until(self._end)
        ended, running = states[EventKind.ENDED], states[EventKind.BOUND]
        never_created = states[EventKind.CREATE_REFUSED]
        gone = ended + states[EventKind.WITHDRAWN]
        groups = {**self._waits, "": [wait for waits in self._waits.values() for wait in waits]}
        return Report(
            mode=self._mode,
            end=self._end,
            counts=dict(self._counts),
            arrived=self._arrived.count,
            never_created=never_created,
            waiting=self._arrived.count - gone - running - never_created,
            running=running,
            retries=self._retries,
            waits={group: tuple(sorted(waits)) for group, waits in groups.items()},
            meters=(*[meter for meter, _ in self._meters], *self._nodes),
            backlog=self._backlog,
        )

    def _reserve(self, event: Event) -> None:
        if event.arrival.key not in self._reserved:
            self._reserved.add(event.arrival.key)
            self._hold(event, 1, at_creation=False)

    def _cancel(self, event: Event) -> None:
        self._reserved.discard(event.arrival.key)
        self._hold(event, -1, at_creation=False)

    def _hold(self, event: Event, sign: int, *, at_creation: bool) -> None:
        for meter, amount in self._share(event.arrival):
            if meter.held is not None and meter.is_charged_at_creation is at_creation:
                meter.held.change(event.at, sign * amount)

    def _run(self, event: Event, sign: int) -> None:
        for meter, amount in self._share(event.arrival):
            meter.running.change(event.at, sign * amount)

    def _share(self, arrival: Arrival) -> list[tuple[Meter, int]]:
        template = arrival.template
        share = self._shares.get(template)
        if share is None:
            share = self._shares[template] = self._share_of(template)
        return share

    def _share_of(self, template: PodTemplate) -> list[tuple[Meter, int]]:
        usage = usage_of(template.pod, now=None)
        amounts = requested_of(template.raw).amounts
        quotas = [
            (meter, usage[meter.name.rpartition(" ")[2]].nano)
            for meter, quota in self._meters
            if _is_charged(quota, template.pod, usage, meter)
        ]
        nodes = [(meter, amounts.get(meter.name.rpartition(" ")[2], 0)) for meter in self._nodes]
        return [(meter, amount) for meter, amount in (*quotas, *nodes) if amount]


class _Arrived:
    """Counts the pods that have arrived, beside the events."""

    def __init__(self, arrivals: Iterable[Arrival], backlog: Timeline) -> None:
        self._times = iter([arrival.at for arrival in arrivals])
        self._next = next(self._times, None)
        self._backlog = backlog
        self.count = 0

    def until(self, at: int) -> None:
        while self._next is not None and self._next <= at:
            self._backlog.change(self._next, 1)
            self.count += 1
            self._next = next(self._times, None)


def _quota_meters(scenario: Scenario, mode: Mode) -> Iterable[tuple[Meter, ResourceQuota]]:
    for quota in scenario.quotas:
        for name, hard in quota.hard.items():
            if is_pod_quota_key(name):
                at_creation = mode is Mode.NATIVE or name not in scenario.deferred_keys
                label = f"{quota.key} {name}"
                yield Meter(label, hard.nano, Timeline(), Timeline(), at_creation), quota


def _node_meters(scenario: Scenario) -> Iterable[Meter]:
    total: dict[str, int] = {}
    for info in NodeView(scenario.nodes, ()).infos:
        for name, amount in info.allocatable.items():
            if name != PODS:
                total[name] = total.get(name, 0) + amount
    for name, amount in total.items():
        yield Meter(f"nodes {name}", amount, Timeline(), None)


def _is_charged(quota: ResourceQuota, pod: Pod, usage: ResourceList, meter: Meter) -> bool:
    name = meter.name.rpartition(" ")[2]
    return name in usage and quota.namespace == pod.namespace and matches(quota, pod)
