"""Figures of simulations as people and programs read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

from webhook.quota.simulation.statistics import Report
from webhook.quota.simulation.values import EventKind

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))
_TENTHS: Final = 1_000
_MOST_GROUPS: Final = 20


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the table."""

    name: str
    unit: Literal["pods", "requests", "ms", "percent"]

    def plain(self, value: Fraction | None) -> int | str | None:
        """Return a value for programs: a whole number, or a percentage with one decimal."""
        if value is None:
            return None
        return _percent(value) if self.unit == "percent" else int(value)

    def text(self, value: Fraction | None) -> str:
        """Return a value for people."""
        if value is None:
            return "-"
        if self.unit == "ms":
            return duration_text(int(value))
        return f"{_percent(value)}%" if self.unit == "percent" else f"{int(value):,}"


def rows_of(reports: Sequence[Report]) -> Iterator[tuple[Figure, tuple[Fraction | None, ...]]]:
    """Yield the figures, each with its values of all modes; None is a wait of no pod."""
    for figure, value in _PLAIN:
        yield figure, tuple([_fraction(value(report)) for report in reports])
    groups = sorted({group for report in reports for group in report.waits if group})
    for group in groups if len(groups) <= _MOST_GROUPS else ():
        for percent in (50, 99):
            waits = [_fraction(report.wait_at(percent, group)) for report in reports]
            yield Figure(f"wait p{percent} {group}", "ms"), tuple(waits)
    for index, meter in enumerate(reports[0].meters):
        values = [report.meters[index].utilisation(report.end) for report in reports]
        if any(values):
            yield Figure(f"{meter.name} running", "percent"), tuple(values)
        idle = [report.meters[index].idle(report.end) for report in reports]
        if any(idle):
            yield Figure(f"{meter.name} held idle", "percent"), tuple(idle)


def duration_text(milliseconds: int) -> str:
    """Return a time with the two largest units that it has, such as `1h5m`."""
    if milliseconds < _UNITS[-1][1]:
        return f"{milliseconds}ms" if milliseconds else "0s"
    parts: list[str] = []
    rest = milliseconds
    for unit, length in _UNITS:
        count, rest = divmod(rest, length)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
        if len(parts) == 2:
            break
    return "".join(parts)


def _fraction(value: int | None) -> Fraction | None:
    return None if value is None else Fraction(value)


def _percent(value: Fraction) -> str:
    tenths = round(value * _TENTHS)
    return f"{tenths // 10}.{tenths % 10}"


_PLAIN: Final[tuple[tuple[Figure, Callable[[Report], int | None]], ...]] = (
    (Figure("pods arrived", "pods"), lambda report: report.arrived),
    (Figure("pods started", "pods"), lambda report: report.started),
    (Figure("pods ended", "pods"), lambda report: report.ended),
    (Figure("running at the end", "pods"), lambda report: report.running),
    (Figure("waiting at the end", "pods"), lambda report: report.waiting),
    (Figure("never created", "pods"), lambda report: report.never_created),
    (Figure("simulated time", "ms"), lambda report: report.end),
    (Figure("wait p50", "ms"), lambda report: report.wait_at(50)),
    (Figure("wait p99", "ms"), lambda report: report.wait_at(99)),
    (
        Figure("creations refused", "requests"),
        lambda report: report.counts.get(EventKind.CREATE_REFUSED, 0),
    ),
    (
        Figure("binds refused", "requests"),
        lambda report: report.counts.get(EventKind.BIND_REFUSED, 0),
    ),
    (Figure("retries", "requests"), lambda report: report.retries),
)
