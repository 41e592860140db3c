"""What quotas are charged for pods that run, and for pods that do not."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.quota.simulation.scenarios import a_node, a_quota_object, a_template
from webhook.quota.objects.model import ResourceQuota
from webhook.quota.simulation.simulator import simulate
from webhook.quota.simulation.statistics import Report, Statistics
from webhook.quota.simulation.values import Arrival, Mode, Scenario
from webhook.state.well_known import SCHEDULING_GATE

TEMPLATE = a_template(requests={"cpu": "1", "memory": "1Gi"})
NONE = Fraction(0)


def report_of(mode: Mode, *, until: int | None = None, cores: int = 1) -> Report:
    """Two pods of 10 s arrive at once at a node with room for `cores` of them; 4 fit the quota."""
    quota = a_quota_object("team-a", "all", {"hard": {"requests.cpu": "4", "pods": "4"}})
    scenario = Scenario(
        nodes=(a_node("node-1", cpu=cores),),
        quotas=(ResourceQuota.from_object(quota),),
        arrivals=tuple([Arrival(0, name, TEMPLATE, 10_000) for name in ("web-1", "web-2")]),
        gate=SCHEDULING_GATE,
        until=until,
    )
    statistics = Statistics(scenario, mode)
    for event in simulate(scenario, mode):
        statistics.add(event)
    return statistics.report()


IDLE = {
    # of the 20 s that it takes, one pod waits for a node for 10 s: a quarter of the quota for half
    # of the time
    Mode.NATIVE: Fraction(1, 8),
    Mode.DEFERRED: NONE,
    Mode.GATED: Fraction(1, 8),
}


@pytest.mark.parametrize(("mode", "idle"), IDLE.items())
def test_quota_is_held_idle_from_its_charge_to_the_bind(mode: Mode, idle: Fraction) -> None:
    report = report_of(mode)
    cpu, pods = report.meters[:2]
    assert (cpu.name, pods.name) == ("team-a/all requests.cpu", "team-a/all pods")
    assert cpu.utilisation(report.end) == Fraction(1, 4)
    assert cpu.idle(report.end) == idle
    # pods are never deferred: they are charged when they are created, in every mode
    assert pods.idle(report.end) == Fraction(1, 8)


def test_nodes_are_used_by_what_runs() -> None:
    report = report_of(Mode.NATIVE, cores=2)
    nodes = {meter.name: meter.utilisation(report.end) for meter in report.meters[2:]}
    assert nodes == {"nodes cpu": Fraction(1), "nodes memory": Fraction(1, 4)}


def test_percentiles_are_those_of_the_nearest_rank() -> None:
    report = report_of(Mode.GATED)
    assert [report.wait_at(percent) for percent in (0, 50, 51, 100)] == [0, 0, 10_000, 10_000]


def test_where_no_pod_has_started_there_is_no_wait() -> None:
    assert report_of(Mode.GATED).wait_at(50, "none") is None


@pytest.mark.parametrize("mode", Mode)
def test_what_is_not_over_at_the_end_is_counted_as_it_is(mode: Mode) -> None:
    report = report_of(mode, until=5_000)
    assert (report.end, report.running, report.ended, report.waiting) == (5_000, 1, 0, 1)
    assert report.backlog.total(report.end) == 5_000
