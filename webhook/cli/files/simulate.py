"""`deferred-quota simulate`: a scenario under each way of charging quota."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Protocol

import click

from webhook.cli.exit_codes import InputError
from webhook.cli.printing.output import print_json, print_table
from webhook.jsonfields.fields import InvalidFieldError
from webhook.operations.simulate.figures import rows_of
from webhook.operations.simulate.html_page import html_page
from webhook.operations.simulate.scenario_files import ScenarioError, read_scenario
from webhook.quota.charging.scopes import ScopeError
from webhook.quota.simulation.simulator import simulate
from webhook.quota.simulation.statistics import Report, Statistics
from webhook.quota.simulation.values import Mode, Scenario

SCHEMA_VERSION: Final = 1


class _Writer(Protocol):
    def writerow(self, row: Iterable[object], /) -> object: ...


def run(
    file: Path,
    modes: tuple[str, ...],
    seed: int | None,
    output: str,
    events: Path | None,
    html: Path | None,
    png: Path | None,
) -> None:
    """Simulate a scenario in every mode and report."""
    draw = None if png is None else _drawing()
    try:
        scenario = read_scenario(file, seed=seed)
    except ScenarioError as err:
        raise InputError(str(err)) from err
    except OSError as err:
        raise InputError(f"{err.filename}: {err.strerror}") from err
    wanted = [mode for mode in Mode if not modes or mode in modes]
    with ExitStack() as stack:
        writer = None
        if events is not None:
            target = stack.enter_context(events.open("w", newline="", encoding="utf-8"))
            writer = csv.writer(target)
            writer.writerow(("mode", "milliseconds", "event", "pod", "detail"))
        reports = [_simulate(scenario, mode, writer) for mode in wanted]
    if html is not None:
        html.write_text(html_page(f"Simulation of {file.name}", reports), encoding="utf-8")
    if png is not None and draw is not None:
        png.write_bytes(draw(f"Simulation of {file.name}", reports))
    {"text": _print_text, "csv": _print_csv, "json": _print_json}[output](reports)


def _drawing() -> Callable[[str, Sequence[Report]], bytes]:
    """Return what draws an image; before anything is simulated, which takes its time.

    Raises:
        InputError: What it needs is not installed.
    """
    try:
        from webhook.operations.simulate.png_image import png_image  # noqa: PLC0415 - optional
    except ImportError as err:
        raise InputError(
            f"--png needs Pillow, of the extra 'plots': pip install pillow ({err})"
        ) from err
    return png_image


def _simulate(scenario: Scenario, mode: Mode, writer: _Writer | None) -> Report:
    statistics = Statistics(scenario, mode)
    try:
        for event in simulate(scenario, mode):
            statistics.add(event)
            if writer is not None:
                writer.writerow((mode, event.at, event.kind, event.arrival.key, event.detail))
    except (InvalidFieldError, ScopeError) as err:
        raise InputError(f"the scenario cannot be simulated: {err}") from err
    return statistics.report()


def _print_text(reports: Sequence[Report]) -> None:
    rows = [(figure.name, *map(figure.text, values)) for figure, values in rows_of(reports)]
    head = ("", *[str(report.mode) for report in reports])
    print_table(head, rows, right=range(1, len(head)))


def _print_csv(reports: Sequence[Report]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("figure", "unit", *[str(report.mode) for report in reports]))
    for figure, values in rows_of(reports):
        writer.writerow((figure.name, figure.unit, *map(figure.plain, values)))
    click.echo(text.getvalue(), nl=False)


def _print_json(reports: Sequence[Report]) -> None:
    modes = {
        str(report.mode): {
            figure.name: figure.plain(values[index]) for figure, values in rows_of(reports)
        }
        for index, report in enumerate(reports)
    }
    units = {figure.name: figure.unit for figure, _ in rows_of(reports)}
    print_json({"schemaVersion": SCHEMA_VERSION, "units": units, "modes": modes})
