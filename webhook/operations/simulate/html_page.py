"""Results as one HTML page: a table and charts, which needs no script, no build and no other host.

Colours follow the reader's light or dark theme; modes differ by dashes too. All that comes from a
scenario is escaped, and the page's own policy lets nothing be loaded or run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from html import escape
from typing import Final

from webhook.operations.simulate.charts import Chart, Points, charts_of
from webhook.operations.simulate.figures import rows_of
from webhook.quota.simulation.statistics import Report
from webhook.quota.simulation.values import Mode

_WIDTH, _HEIGHT = 640, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 28
_TICKS: Final = 4

_STYLE: Final = """
:root { color-scheme: light dark; --native: #b3261e; --deferred: #1a56c4; --gated: #0b7a3b;
  --text: #1c1b1f; --back: #ffffff; --faint: #5f5f66; --line: #d0d0d6; }
@media (prefers-color-scheme: dark) { :root { --native: #ff8a80; --deferred: #8ab4f8;
  --gated: #6fdc9a; --text: #ececf1; --back: #17171b; --faint: #a9a9b3; --line: #3c3c44; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back);
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0 2rem; }
caption { text-align: left; font-weight: 600; padding-bottom: .5rem; }
th, td { padding: .2rem .8rem; border-bottom: 1px solid var(--line); text-align: right;
  font-variant-numeric: tabular-nums; }
th[scope=row] { text-align: left; font-weight: 400; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: 1rem; }
figure { margin: 0; }
figcaption { font-weight: 600; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; }
svg text { fill: var(--faint); font: 12px system-ui, sans-serif; }
svg .axis { stroke: var(--line); }
svg .series { fill: none; stroke-width: 2; }
.native { stroke: var(--native); } .deferred { stroke: var(--deferred); stroke-dasharray: 6 3; }
.gated { stroke: var(--gated); stroke-dasharray: 2 3; }
ul.legend { list-style: none; padding: 0; display: flex; gap: 1.5rem; flex-wrap: wrap; }
ul.legend svg { width: 2.5rem; height: .6rem; margin-right: .4rem; }
"""
_MEANING: Final = {
    Mode.NATIVE: "native: charged when a pod is created",
    Mode.DEFERRED: "deferred: charged at the bind",
    Mode.GATED: "gated: charged at the bind, behind the scheduling gate until then",
}


def html_page(title: str, reports: Sequence[Report]) -> str:
    """Return the page.

    Args:
        title: Such as the name of the scenario.
        reports: One for each mode.
    """
    charts = "\n".join(map(_figure, charts_of(reports)))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<ul class="legend">{"".join(_legend(report.mode) for report in reports)}</ul>
{_table(reports)}
<div class="charts">
{charts}
</div>
</body>
</html>
"""


def _legend(mode: Mode) -> str:
    line = f'<path class="series {mode}" d="M0 5H40"/>'
    return (
        f'<li><svg viewBox="0 0 40 10" aria-hidden="true">{line}</svg>{escape(_MEANING[mode])}</li>'
    )


def _table(reports: Sequence[Report]) -> str:
    head = "".join(f'<th scope="col">{report.mode}</th>' for report in reports)
    rows = "\n".join(
        f'<tr><th scope="row">{escape(figure.name)}</th>'
        + "".join(f"<td>{escape(figure.text(value))}</td>" for value in values)
        + "</tr>"
        for figure, values in rows_of(reports)
    )
    return (
        f"<table><caption>Figures</caption><thead><tr><td></td>{head}</tr></thead>"
        f"<tbody>\n{rows}\n</tbody></table>"
    )


def _figure(chart: Chart) -> str:
    title = escape(chart.title)
    series = "".join(
        f'<path class="series {mode}" d="{_path(points)}"><title>{mode}</title></path>'
        for mode, points in chart.lines
        if points
    )
    return (
        f"<figure><figcaption>{title}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{title}">'
        f"{''.join(_axes(chart))}{series}</svg></figure>"
    )


def _path(points: Points) -> str:
    return "M" + "L".join(f"{_x(along):.1f} {_y(up):.1f}" for along, up in points)


def _axes(chart: Chart) -> Iterator[str]:
    for tick in range(_TICKS + 1):
        part = Fraction(tick, _TICKS)
        x, y = _x(part), _y(part)
        yield f'<path class="axis" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{chart.up(part)}</text>'
        anchor = "end" if tick == _TICKS else "middle" if tick else "start"
        yield (
            f'<text x="{x:.1f}" y="{_HEIGHT - 8}" text-anchor="{anchor}">{chart.along(part)}</text>'
        )


def _x(part: Fraction) -> float:
    return float(_LEFT + part * (_WIDTH - _LEFT - _RIGHT))


def _y(part: Fraction) -> float:
    return float(_HEIGHT - _BOTTOM - min(part, Fraction(1)) * (_HEIGHT - _TOP - _BOTTOM))
