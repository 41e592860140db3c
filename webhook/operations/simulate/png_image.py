"""Charts of results as one PNG image. Pillow draws it, which the extra `plots` installs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from io import BytesIO
from itertools import pairwise
from math import ceil, hypot
from typing import Final, TypeAlias

from PIL import Image, ImageDraw, ImageFont

from webhook.operations.simulate.charts import Chart, Points, charts_of
from webhook.quota.simulation.statistics import Report
from webhook.quota.simulation.values import Mode

_SCALE: Final = 2
"""Pixels of the image for each of the sizes below."""
_WIDTH, _HEIGHT, _COLUMNS = 640, 260, 2
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 20, 40, 36
_HEADER: Final = 72
_TICKS: Final = 4
_LONGEST: Final = 84
"""Characters of a title that have room."""
_BACK, _TEXT, _FAINT, _LINE = "#ffffff", "#1c1b1f", "#5f5f66", "#d0d0d6"
_COLOURS: Final = {Mode.NATIVE: "#b3261e", Mode.DEFERRED: "#1a56c4", Mode.GATED: "#0b7a3b"}
_DASHES: Final = {Mode.NATIVE: (1, 0), Mode.DEFERRED: (8, 4), Mode.GATED: (2, 4)}
"""How much of a line is drawn, and how much is left out: modes differ without colours too."""

_Place: TypeAlias = tuple[float, float]


def png_image(title: str, reports: Sequence[Report]) -> bytes:
    """Return the image.

    Args:
        title: Such as the name of the scenario.
        reports: One for each mode.
    """
    charts = tuple(charts_of(reports))
    rows = ceil(len(charts) / _COLUMNS)
    canvas = _Canvas(_WIDTH * _COLUMNS, _HEADER + _HEIGHT * rows)
    canvas.text((_LEFT, 14), title, size=20)
    for index, report in enumerate(reports):
        x = _LEFT + index * 120
        canvas.line(((x, 58), (x + 30, 58)), report.mode)
        canvas.text((x + 38, 50), str(report.mode), size=13)
    for index, chart in enumerate(charts):
        row, column = divmod(index, _COLUMNS)
        _draw(canvas, chart, column * _WIDTH, _HEADER + row * _HEIGHT)
    return canvas.png()


class _Canvas:
    """An image that is drawn on in sizes, not in pixels."""

    def __init__(self, width: int, height: int) -> None:
        self._image = Image.new("RGB", (width * _SCALE, height * _SCALE), _BACK)
        self._draw = ImageDraw.Draw(self._image)

    def text(self, at: _Place, text: str, *, size: int, anchor: str = "la") -> None:
        font = ImageFont.load_default(size * _SCALE)
        shown = "".join(one if one.isprintable() else "?" for one in text)
        shown = shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."
        colour = _FAINT if size < 13 else _TEXT
        self._draw.text(_pixels(at), shown, fill=colour, font=font, anchor=anchor)

    def axis(self, start: _Place, end: _Place) -> None:
        self._draw.line([_pixels(start), _pixels(end)], fill=_LINE, width=_SCALE)

    def line(self, places: Sequence[_Place], mode: Mode) -> None:
        for start, end in _dashes(places, *_DASHES[mode]):
            ends = [_pixels(start), _pixels(end)]
            self._draw.line(ends, fill=_COLOURS[mode], width=2 * _SCALE)

    def png(self) -> bytes:
        target = BytesIO()
        self._image.save(target, "PNG", optimize=True)
        return target.getvalue()


def _pixels(place: _Place) -> _Place:
    return place[0] * _SCALE, place[1] * _SCALE


def _draw(canvas: _Canvas, chart: Chart, left: int, top: int) -> None:
    canvas.text((left + _LEFT, top + 12), chart.title, size=14)
    for tick in range(_TICKS + 1):
        part = Fraction(tick, _TICKS)
        (x, y) = _place(part, part, left, top)
        canvas.axis((left + _LEFT, y), (left + _WIDTH - _RIGHT, y))
        canvas.text((left + _LEFT - 8, y), chart.up(part), size=12, anchor="rm")
        anchor = "ra" if tick == _TICKS else "ma" if tick else "la"
        below = top + _HEIGHT - _BOTTOM + 8
        canvas.text((x, below), chart.along(part), size=12, anchor=anchor)
    for mode, points in chart.lines:
        canvas.line(_places(points, left, top), mode)


def _places(points: Points, left: int, top: int) -> Sequence[_Place]:
    return [_place(along, up, left, top) for along, up in points]


def _place(along: Fraction, up: Fraction, left: int, top: int) -> _Place:
    x = left + _LEFT + along * (_WIDTH - _LEFT - _RIGHT)
    y = top + _HEIGHT - _BOTTOM - min(up, Fraction(1)) * (_HEIGHT - _TOP - _BOTTOM)
    return float(x), float(y)


def _dashes(places: Sequence[_Place], drawn: int, left_out: int) -> Iterator[tuple[_Place, _Place]]:
    """Yield the parts of a line that are drawn, in an even rhythm along it."""
    if not left_out:
        yield from pairwise(places)
        return
    position = 0.0
    for start, end in pairwise(places):
        length = hypot(end[0] - start[0], end[1] - start[1])
        reached = 0.0
        while reached < length:
            phase = position % (drawn + left_out)
            rest = (drawn if phase < drawn else drawn + left_out) - phase
            step = min(max(rest, 0.01), length - reached)
            if phase < drawn:
                yield (
                    _between(start, end, reached / length),
                    _between(start, end, (reached + step) / length),
                )
            reached += step
            position += step


def _between(start: _Place, end: _Place, part: float) -> _Place:
    return start[0] + (end[0] - start[0]) * part, start[1] + (end[1] - start[1]) * part
