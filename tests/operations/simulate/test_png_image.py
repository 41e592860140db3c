"""The image of a simulation: complete, in the colours of the modes, and drawn with any name."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from math import ceil

import pytest
from PIL import Image

from tests.quota.simulation.scenarios import random_scenario
from webhook.operations.simulate.charts import charts_of
from webhook.operations.simulate.png_image import png_image
from webhook.quota.simulation.simulator import simulate
from webhook.quota.simulation.statistics import Report, Statistics
from webhook.quota.simulation.values import Mode, Scenario

COLOURS = {
    Mode.NATIVE: (0xB3, 0x26, 0x1E),
    Mode.DEFERRED: (0x1A, 0x56, 0xC4),
    Mode.GATED: (0x0B, 0x7A, 0x3B),
}


def a_report(scenario: Scenario, mode: Mode) -> Report:
    statistics = Statistics(scenario, mode)
    for event in simulate(scenario, mode):
        statistics.add(event)
    return statistics.report()


def colours_of(data: bytes) -> set[object]:
    with Image.open(BytesIO(data)) as image:
        image.load()
        assert image.format == "PNG"
        found = image.getcolors(1 << 24)
    assert found is not None
    return {colour for _, colour in found}


def test_there_is_room_for_every_chart_and_a_line_for_each_mode() -> None:
    scenario, _ = random_scenario(5, "team-a", pods=30)
    reports = [a_report(scenario, mode) for mode in Mode]
    data = png_image("Simulation of a.yaml", reports)
    with Image.open(BytesIO(data)) as image:
        rows = ceil(len(tuple(charts_of(reports))) / 2)
        assert image.size == (2 * 2 * 640, 2 * (72 + rows * 260))
    assert set(COLOURS.values()) <= colours_of(data)


@pytest.mark.parametrize("mode", Mode)
def test_a_mode_that_was_not_simulated_has_no_line(mode: Mode) -> None:
    scenario, _ = random_scenario(5, "team-a", pods=30)
    drawn = colours_of(png_image("a", [a_report(scenario, mode)]))
    assert drawn & set(COLOURS.values()) == {COLOURS[mode]}


def test_the_same_reports_give_the_same_bytes() -> None:
    scenario, _ = random_scenario(7, "team-a", pods=20)
    reports = [a_report(scenario, Mode.GATED)]
    assert png_image("a", reports) == png_image("a", reports)


@pytest.mark.parametrize("title", ["", "\x1b[2J\n", "x" * 4000, "näme 漢字 \N{GRINNING FACE}"])
def test_any_title_is_drawn(title: str) -> None:
    scenario, _ = random_scenario(5, "team-a", pods=5)
    data = png_image(title, [a_report(scenario, Mode.NATIVE)])
    assert colours_of(data)


def test_a_scenario_without_pods_has_an_image_too() -> None:
    scenario, _ = random_scenario(5, "team-a", pods=5)
    data = png_image("a", [a_report(replace(scenario, arrivals=()), Mode.NATIVE)])
    assert colours_of(data)
