"""Laws of simulations, on random scenarios and in every mode."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Object, out_of_bounds
from tests.quota.simulation.scenarios import random_scenario
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import ResourceList, add, exceeding, mask, subtract
from webhook.quota.charging.pod_usage import usage_of
from webhook.quota.charging.scopes import matches
from webhook.quota.objects.model import ResourceQuota
from webhook.quota.queue.queued_pods import QueueingStrategy, QueuePolicy
from webhook.quota.simulation.simulator import simulate
from webhook.quota.simulation.statistics import Statistics
from webhook.quota.simulation.values import Arrival, Event, EventKind, Mode, Scenario

POLICIES = st.sampled_from(
    (QueuePolicy(), QueuePolicy(order=QueueingStrategy.BEST_EFFORT, max_overtakes=2))
)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    scenario, _ = random_scenario(
        draw(st.integers(0, 10**6)), "team-a", pods=draw(st.integers(1, 40)), policy=draw(POLICIES)
    )
    gate_release = draw(st.sampled_from((1_000, 60_000)))
    until = draw(st.sampled_from((None, 30_000)))
    return replace(scenario, gate_release=gate_release, until=until)


def totals(scenario: Scenario, events: list[Event], first: EventKind) -> list[ResourceList]:
    """What pods take of each quota, after each event, from their event `first` to their end."""
    used: dict[str, ResourceList] = {}
    found: list[ResourceList] = []
    for event in events:
        pod = event.arrival.template.pod
        for quota in scenario.quotas:
            share = mask(usage_of(pod, now=None), quota.hard)
            if matches(quota, pod) and event.kind is first:
                used[quota.name] = add(used.get(quota.name, {}), share)
            elif matches(quota, pod) and event.kind is EventKind.ENDED:
                used[quota.name] = subtract(used[quota.name], share)
            found.extend(
                [
                    {f"{quota.name}/{name}": amount}
                    for name, amount in used.get(quota.name, {}).items()
                ]
            )
    return found


@given(scenarios(), st.sampled_from(Mode))
def test_pods_on_nodes_never_take_more_than_hard(scenario: Scenario, mode: Mode) -> None:
    hard = {
        f"{quota.name}/{name}": amount
        for quota in scenario.quotas
        for name, amount in quota.hard.items()
    }
    events = list(simulate(scenario, mode))
    assert [
        used for used in totals(scenario, events, EventKind.BOUND) if exceeding(used, hard)
    ] == []
    if mode is Mode.NATIVE:
        created = totals(scenario, events, EventKind.CREATED)
        assert [used for used in created if exceeding(used, hard)] == []


@given(scenarios(), st.sampled_from(Mode))
def test_pods_on_a_node_never_ask_for_more_than_it_has(scenario: Scenario, mode: Mode) -> None:
    cores = {
        str(node["metadata"]["name"]): int(node["status"]["allocatable"]["cpu"])  # type: ignore[index]
        for node in scenario.nodes
    }
    taken: Counter[str] = Counter()
    places: dict[str, str] = {}
    for event in simulate(scenario, mode):
        milli = usage_of(event.arrival.template.pod, now=None)["requests.cpu"].nano // 10**6
        if event.kind is EventKind.BOUND:
            places[event.arrival.key] = event.detail
            taken[event.detail] += milli
            assert taken[event.detail] <= 1000 * cores[event.detail]
        elif event.kind is EventKind.ENDED:
            taken[places[event.arrival.key]] -= milli


FOLLOWING: dict[EventKind | None, frozenset[EventKind]] = {
    None: frozenset({EventKind.CREATED, EventKind.GATED, EventKind.CREATE_REFUSED}),
    EventKind.CREATE_REFUSED: frozenset(
        {EventKind.CREATED, EventKind.GATED, EventKind.CREATE_REFUSED}
    ),
    EventKind.CREATED: frozenset(
        {EventKind.BOUND, EventKind.BIND_REFUSED, EventKind.UNSCHEDULABLE}
    ),
    EventKind.GATED: frozenset({EventKind.RELEASED}),
    EventKind.RELEASED: frozenset({EventKind.BOUND, EventKind.UNSCHEDULABLE}),
    EventKind.UNSCHEDULABLE: frozenset(
        {EventKind.BOUND, EventKind.BIND_REFUSED, EventKind.EXPIRED}
    ),
    EventKind.EXPIRED: frozenset({EventKind.BOUND, EventKind.BIND_REFUSED}),
    EventKind.BIND_REFUSED: frozenset(
        {EventKind.BOUND, EventKind.BIND_REFUSED, EventKind.UNSCHEDULABLE}
    ),
    EventKind.BOUND: frozenset({EventKind.ENDED}),
    EventKind.ENDED: frozenset(),
}


@given(scenarios(), st.sampled_from(Mode))
def test_a_pod_starts_at_most_once_and_ends_after_its_duration(
    scenario: Scenario, mode: Mode
) -> None:
    last: dict[str, Event] = {}
    time = 0
    for event in simulate(scenario, mode):
        assert event.at >= time
        time = event.at
        before = last.get(event.arrival.key)
        assert event.kind in FOLLOWING[None if before is None else before.kind]
        if event.kind is EventKind.ENDED and before is not None:
            assert event.at == before.at + event.arrival.duration
        last[event.arrival.key] = event


@given(scenarios(), st.sampled_from(Mode))
def test_no_pod_is_lost(scenario: Scenario, mode: Mode) -> None:
    statistics = Statistics(scenario, mode)
    for event in simulate(scenario, mode):
        statistics.add(event)
    report = statistics.report()
    assert report.arrived == (report.ended + report.running + report.waiting + report.never_created)
    assert report.started == report.ended + report.running
    if scenario.until is None:
        assert report.arrived == len(scenario.arrivals)
        assert report.running == 0
    for meter in report.meters:
        assert meter.running.peak <= meter.limit
        assert 0 <= meter.utilisation(report.end) <= 1
        assert meter.idle(report.end) >= 0


@given(scenarios(), st.sampled_from(Mode))
def test_the_same_scenario_gives_the_same_events(scenario: Scenario, mode: Mode) -> None:
    first = [(one.at, one.kind, one.arrival.key, one.detail) for one in simulate(scenario, mode)]
    again = [(one.at, one.kind, one.arrival.key, one.detail) for one in simulate(scenario, mode)]
    assert first == again


@given(scenarios())
def test_every_gated_pod_that_fits_its_quotas_is_released_in_the_end(scenario: Scenario) -> None:
    scenario = replace(scenario, until=None)
    waiting: dict[Arrival, int] = defaultdict(int)
    for event in simulate(scenario, Mode.GATED):
        waiting[event.arrival] += (event.kind is EventKind.GATED) - (
            event.kind is EventKind.RELEASED
        )
    for arrival, gated in waiting.items():
        pod = arrival.template.pod
        never = any(
            exceeding(usage_of(pod, now=None), quota.hard)
            for quota in scenario.quotas
            if matches(quota, pod)
        )
        assert gated == never


@pytest.mark.parametrize("mode", Mode)
def test_a_simulation_ends_where_no_pod_ever_fits(mode: Mode) -> None:
    scenario, _ = random_scenario(1, "team-a", pods=3)
    nothing = [replace(quota, hard={"requests.cpu": ZERO}) for quota in scenario.quotas]
    kinds = Counter(
        event.kind for event in simulate(replace(scenario, quotas=tuple(nothing)), mode)
    )
    assert kinds[EventKind.BOUND] == 0


@pytest.mark.parametrize(("quotas", "reason"), out_of_bounds().values(), ids=out_of_bounds())
@pytest.mark.parametrize("mode", Mode)
def test_nothing_is_bound_beside_quotas_that_are_not_counted(
    quotas: list[Object], reason: str, mode: Mode
) -> None:
    scenario, _ = random_scenario(1, "team-a", pods=3)
    large = tuple(ResourceQuota.from_object(raw) for raw in quotas)
    events = list(simulate(replace(scenario, quotas=large), mode))
    kinds = Counter(event.kind for event in events)
    assert bool(kinds[EventKind.BOUND]) == (mode is Mode.NATIVE)
    assert (reason in {event.detail for event in events}) == (mode is Mode.DEFERRED)
