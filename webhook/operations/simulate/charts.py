"""Charts of results: what every way of charging quota gives over time, and how long pods waited."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from webhook.operations.simulate.figures import duration_text
from webhook.quota.simulation.statistics import Report
from webhook.quota.simulation.timeline import Timeline
from webhook.quota.simulation.values import Mode

Points: TypeAlias = Sequence[tuple[Fraction, Fraction]]
"""Points of a line: along and up, both from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines of all modes."""

    title: str
    lines: Sequence[tuple[Mode, Points]]
    up: Callable[[Fraction], str]
    """The label at a height."""
    along: Callable[[Fraction], str]
    """The label at a place on the axis below."""


def charts_of(reports: Sequence[Report]) -> Iterator[Chart]:
    """Yield the charts of reports on one scenario: waiting pods, waits, then quotas and nodes."""
    end = max(report.end for report in reports)

    def along(part: Fraction) -> str:
        return duration_text(int(part * end))

    most = max(1, *[report.backlog.peak for report in reports])
    backlog = [
        (report.mode, _over_time(report.backlog, report.end, end=end, most=most))
        for report in reports
    ]
    yield Chart("Pods that wait", backlog, lambda part: f"{int(part * most):,}", along)
    yield _waits(reports)
    for index in range(len(reports[0].meters)):
        meters = [(report, report.meters[index]) for report in reports]
        name = meters[0][1].name
        lines = [
            (report.mode, _over_time(meter.running, report.end, end=end, most=meter.limit))
            for report, meter in meters
        ]
        if any(meter.running.peak for _, meter in meters):
            yield Chart(f"{name}, running", lines, _percent, along)
        held = [
            (report.mode, _over_time(meter.held, report.end, end=end, most=meter.limit))
            for report, meter in meters
            if meter.held is not None
        ]
        if any(meter.idle(report.end) for report, meter in meters):
            yield Chart(f"{name}, running or held idle", held, _percent, along)


def _percent(part: Fraction) -> str:
    return f"{int(part * 100)}%"


def _waits(reports: Sequence[Report]) -> Chart:
    longest = max(1, *[report.wait_at(100) or 0 for report in reports])
    lines = [
        (
            report.mode,
            [
                (Fraction(percent, 100), Fraction(wait, longest))
                for percent in range(101)
                if (wait := report.wait_at(percent)) is not None
            ],
        )
        for report in reports
    ]
    return Chart(
        "Waits by percentile",
        lines,
        lambda part: duration_text(int(part * longest)),
        lambda part: f"p{int(part * 100)}",
    )


def _over_time(line: Timeline, until: int, *, end: int, most: int) -> Points:
    length, parts = line.means(until)
    return [
        (Fraction(index * length + lasts // 2, end), Fraction(amount, lasts * most))
        for index, (amount, lasts) in enumerate(parts)
        if most
    ]
