"""Pods that are deleted before they have a node."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quota.simulation.scenarios import random_scenario
from webhook.quota.amounts.resources import ResourceList, add, exceeding, mask, subtract
from webhook.quota.charging.pod_usage import usage_of
from webhook.quota.charging.scopes import matches
from webhook.quota.simulation.simulator import simulate
from webhook.quota.simulation.statistics import Statistics
from webhook.quota.simulation.values import EventKind, Mode, Scenario

_OVER = frozenset({EventKind.ENDED, EventKind.WITHDRAWN})


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    scenario, _ = random_scenario(
        draw(st.integers(0, 10**6)), "team-a", pods=draw(st.integers(1, 30))
    )
    patience = st.sampled_from((None, 1, 1_000, 20_000))
    arrivals = [replace(one, patience=draw(patience)) for one in scenario.arrivals]
    return replace(scenario, arrivals=tuple(arrivals), gate_release=5_000)


@given(scenarios(), st.sampled_from(Mode))
def test_a_pod_ends_once_and_nothing_comes_after_it(scenario: Scenario, mode: Mode) -> None:
    over: set[str] = set()
    bound: set[str] = set()
    for event in simulate(scenario, mode):
        key, kind = event.arrival.key, event.kind
        assert key not in over
        if kind is EventKind.BOUND:
            bound.add(key)
        if kind is EventKind.WITHDRAWN:
            assert key not in bound
            assert event.at == event.arrival.at + (event.arrival.patience or 0)
        if kind in _OVER:
            over.add(key)


@given(scenarios(), st.sampled_from(Mode))
def test_what_holds_quota_never_takes_more_than_hard(scenario: Scenario, mode: Mode) -> None:
    first = EventKind.CREATED if mode is Mode.NATIVE else EventKind.BOUND
    used: dict[str, ResourceList] = defaultdict(dict)
    holding: set[str] = set()
    for event in simulate(scenario, mode):
        pod, key = event.arrival.template.pod, event.arrival.key
        is_over = event.kind in _OVER and key in holding
        if event.kind is first:
            holding.add(key)
        for quota in scenario.quotas:
            share = mask(usage_of(pod, now=None), quota.hard)
            if matches(quota, pod) and event.kind is first:
                used[quota.key] = add(used[quota.key], share)
            elif matches(quota, pod) and is_over:
                used[quota.key] = subtract(used[quota.key], share)
            assert not exceeding(used[quota.key], quota.hard)


@given(scenarios(), st.sampled_from(Mode))
def test_every_pod_is_in_one_figure_at_the_end(scenario: Scenario, mode: Mode) -> None:
    statistics = Statistics(scenario, mode)
    withdrawn = 0
    for event in simulate(scenario, mode):
        statistics.add(event)
        withdrawn += event.kind is EventKind.WITHDRAWN
    report = statistics.report()
    counted = report.ended + report.running + report.waiting + report.never_created + withdrawn
    assert counted == report.arrived == len(scenario.arrivals)
    assert report.waiting >= 0
    for meter in report.meters:
        assert meter.idle(report.end) >= 0


@pytest.mark.parametrize("mode", Mode)
def test_what_a_withdrawn_pod_held_is_free_for_others(mode: Mode) -> None:
    """No pod that fits a quota alone waits for ever behind one that was deleted."""
    for seed in range(20):
        scenario, _ = random_scenario(seed, "team-a", pods=20)
        impatient = [replace(one, patience=1_000) for one in scenario.arrivals]
        events = list(simulate(replace(scenario, arrivals=tuple(impatient)), mode))
        last = {event.arrival.key: event.kind for event in events}
        assert set(last.values()) <= _OVER
