"""The page of a simulation: complete, self-contained, and safe with any name."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tests.quota.simulation.scenarios import random_scenario
from webhook.operations.simulate.figures import rows_of
from webhook.operations.simulate.html_page import html_page
from webhook.quota.simulation.simulator import simulate
from webhook.quota.simulation.statistics import Report, Statistics
from webhook.quota.simulation.values import Mode, Scenario

VOID = frozenset({"meta"})


class Page(HTMLParser):
    """Tags, attributes and texts of a page whose tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs
        if tag not in VOID and not (self.get_starttag_text() or "").endswith("/>"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def reports_of(scenario: Scenario, *modes: Mode) -> list[Report]:
    reports = []
    for mode in modes:
        statistics = Statistics(scenario, mode)
        for event in simulate(scenario, mode):
            statistics.add(event)
        reports.append(statistics.report())
    return reports


def test_the_page_has_every_figure_and_a_line_for_each_mode() -> None:
    scenario, _ = random_scenario(5, "team-a", pods=30)
    reports = reports_of(scenario, *Mode)
    page = Page(html_page("Simulation", reports))
    rows = list(rows_of(reports))
    assert page.tags["tr"] == len(rows) + 1
    for figure, values in rows:
        assert figure.name in page.texts
        assert all(figure.text(value) in page.texts for value in values)
    lines = [value for name, value in page.attributes if name == "class" and value]
    charts = page.tags["figure"]
    assert charts > 4
    for mode in Mode:
        assert lines.count(f"series {mode}") == charts + 1  # and one in the legend


def test_the_page_needs_no_other_host_and_runs_nothing() -> None:
    scenario, _ = random_scenario(5, "team-a")
    text = html_page("Simulation", reports_of(scenario, Mode.GATED))
    page = Page(text)
    assert {"script", "link", "img", "iframe", "object"}.isdisjoint(page.tags)
    assert {"src", "href", "srcset", "style"}.isdisjoint(name for name, _ in page.attributes)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_names_are_escaped() -> None:
    scenario, _ = random_scenario(5, "team-a")
    name = "<script>alert(1)</script>\"'&"
    arrivals = [replace(arrival, group=name) for arrival in scenario.arrivals]
    reports = reports_of(replace(scenario, arrivals=tuple(arrivals)), Mode.GATED)
    page = Page(html_page(name, reports))
    assert "script" not in page.tags
    assert page.texts.count(name) == 2  # title and heading
    assert f"wait p50 {name}" in page.texts


@pytest.mark.parametrize("mode", Mode)
def test_a_scenario_without_pods_has_a_page(mode: Mode) -> None:
    scenario, _ = random_scenario(5, "team-a", pods=0)
    assert Page(html_page("Simulation", reports_of(scenario, mode))).tags["table"] == 1
