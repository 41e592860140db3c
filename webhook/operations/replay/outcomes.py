"""Outcomes of workloads: as they were recorded, and as they would have been."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from webhook.kube.metadata import object_namespace
from webhook.operations.replay.history import History
from webhook.quota.simulation.simulator import simulate
from webhook.quota.simulation.values import Event, EventKind, Mode, Scenario

_REFUSED = frozenset({EventKind.CREATE_REFUSED, EventKind.BIND_REFUSED})


@dataclass(slots=True)
class Outcome:
    """One workload under one way of charging quota. Times are milliseconds."""

    refused: int = 0
    """Creations and binds."""
    waits: list[int] = field(default_factory=list)
    """Of the pods that have started, from their arrival to their bind."""

    @property
    def started(self) -> int:
        """Pods that were bound."""
        return len(self.waits)

    def wait_at(self, percent: int) -> int | None:
        """Return a percentile of the waits, the nearest rank; None if no pod has started."""
        waits = sorted(self.waits)
        return waits[max(0, -(-percent * len(waits) // 100) - 1)] if waits else None


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload."""

    name: str
    """`namespace/Kind/name`."""
    pods: int
    recorded: Outcome
    simulated: Mapping[Mode, Outcome]


def outcomes(history: History, scenario: Scenario, modes: Sequence[Mode]) -> list[Workload]:
    """Return what became of every workload, those whose pods waited longest first.

    Raises:
        ScopeError: The scopes of a quota cannot be evaluated.
    """
    recorded = _recorded(history)
    simulated = {mode: _simulated(simulate(scenario, mode)) for mode in modes}
    pods: dict[str, int] = defaultdict(int)
    for arrival in scenario.arrivals:
        if arrival.group:
            pods[arrival.group] += 1
    found = [
        Workload(
            name,
            number,
            recorded.get(name, Outcome()),
            {mode: by_name.get(name, Outcome()) for mode, by_name in simulated.items()},
        )
        for name, number in pods.items()
    ]
    return sorted(
        found, key=lambda one: (-sum(one.recorded.waits), -one.recorded.refused, one.name)
    )


def _recorded(history: History) -> Mapping[str, Outcome]:
    found: dict[str, Outcome] = defaultdict(Outcome)
    for one in history.pods:
        if one.was_there:
            continue
        namespace = object_namespace(one.pod)
        outcome = found[f"{namespace}/{one.workload}"]
        outcome.refused += one.refusals
        if one.bound is not None:
            outcome.waits.append(one.bound - one.arrived)
    return found


def _simulated(events: Iterable[Event]) -> Mapping[str, Outcome]:
    found: dict[str, Outcome] = defaultdict(Outcome)
    for event in events:
        outcome = found[event.arrival.group]
        if event.kind in _REFUSED:
            outcome.refused += 1
        elif event.kind is EventKind.BOUND:
            outcome.waits.append(event.at - event.arrival.at)
    return found
