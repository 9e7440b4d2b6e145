"""A small SVG sketch of a plotly figure: its panels, lines, markers, bars and heat maps, without text.

It needs no browser, and a page can show hundreds at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite, log10
from types import MappingProxyType
from typing import Any

from workbench.plots.style import PALETTE

WIDTH, HEIGHT = 240, 140
_INSET = 4
_MAX_POINTS = 60  # per line; a sketch has no more pixels
_MAX_CELLS = 24  # per side of a heat map


@dataclass(frozen=True)
class _Scale:
    """Maps values of an axis to pixels.

    Args:
        start, end: pixels of `low` and `high`.
        low, high: values, logarithms of a logarithmic axis, or positions of categories.
        log: the axis is logarithmic.
        categories: positions of texts; empty for numbers.
    """

    start: float
    end: float
    low: float
    high: float
    log: bool
    categories: dict[str, int]

    def __call__(self, value: Any) -> float | None:
        number = _number(value, self.log, self.categories)
        if number is None:
            return None
        share = (number - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + (self.end - self.start) * share


def thumbnail(figure: Any, label: str) -> str:
    """Returns an `<svg>` element, WIDTH by HEIGHT pixels.

    Args:
        figure: a plotly Figure.
        label: text for readers that do not see it.
    """
    panels: dict[tuple[str, str], list[Any]] = {}
    for trace in figure.data:
        panels.setdefault((trace.xaxis or "x", trace.yaxis or "y"), []).append(trace)
    shapes = [shape for axes, traces in panels.items() for shape in _panel(figure, *axes, traces)]
    head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
    return f'{head}aria-label="{escape(label)}">{"".join(shapes)}</svg>'


def _panel(figure: Any, x: str, y: str, traces: Sequence[Any]) -> Iterable[str]:
    stacked = figure.layout.barmode in ("stack", "relative")
    scales = _scale(figure, x, traces, stacked), _scale(figure, y, traces, stacked)
    left, right = sorted((scales[0].start, scales[0].end))
    top, bottom = sorted((scales[1].start, scales[1].end))
    yield f'<path class="axes" d="M{left:.0f} {top:.0f}V{bottom:.0f}H{right:.0f}"/>'
    bars = [trace for trace in traces if trace.type == "bar"]
    yield from _bars(bars, *scales, stacked=stacked)
    for number, trace in enumerate(traces):
        color = _color(trace, PALETTE[number % len(PALETTE)])
        if trace.type == "heatmap":
            yield from _heatmap(trace, left, right, top, bottom)
        elif trace.type in ("scatter", "scattergl"):
            yield from _scatter(trace, *scales, color)


def _scatter(trace: Any, x: _Scale, y: _Scale, color: str) -> Iterable[str]:
    pairs = [(x(a), y(b)) for a, b in zip(_places(trace.x), _places(trace.y), strict=False)]
    points = [(a, b) for a, b in pairs if a is not None and b is not None]
    points = points[:: -(-len(points) // _MAX_POINTS) or 1]
    mode = trace.mode or "lines"
    if trace.fill == "toself":
        yield f'<polygon points="{_joined(points)}" fill="{color}" opacity="0.2"/>'
    elif "lines" in mode and len(points) > 1:
        yield f'<polyline points="{_joined(points)}" stroke="{color}"/>'
    if "markers" in mode:
        yield "".join(f'<circle cx="{a:.0f}" cy="{b:.0f}" r="2" fill="{color}"/>' for a, b in points)


def _bars(bars: Sequence[Any], x: _Scale, y: _Scale, *, stacked: bool) -> Iterable[str]:
    """Bars of several traces, side by side or on top of each other."""
    if not bars:
        return
    sideways = bars[0].orientation == "h"
    along, across = (y, x) if sideways else (x, y)
    places = {str(value) for bar in bars for value in _places(bar.y if sideways else bar.x)}
    thick = max(1.0, abs(along.end - along.start) / max(1, len(places)) * 0.7 / (1 if stacked else len(bars)))
    tops: dict[str, float] = {}
    for number, bar in enumerate(bars):
        color = _color(bar, PALETTE[number % len(PALETTE)])
        for place, height in zip(*map(_places, (bar.y, bar.x) if sideways else (bar.x, bar.y)), strict=False):
            middle, base = along(place), tops.get(str(place), 0.0) if stacked else 0.0
            value = _number(height)
            if middle is None or value is None:
                continue
            tops[str(place)] = base + value
            ends = across(base) if not across.log else across.start, across(base + value)
            if None in ends:
                continue
            low, size = min(ends), abs(ends[1] - ends[0])  # pyright: ignore
            offset = middle - thick / 2 if stacked else middle + (number - len(bars) / 2) * thick
            box = (low, offset, size, thick) if sideways else (offset, low, thick, size)
            yield '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"/>'.format(*box, color)


def _heatmap(trace: Any, left: float, right: float, top: float, bottom: float) -> Iterable[str]:
    rows = [_values(row) for row in _values(trace.z)]
    rows = rows[:: -(-len(rows) // _MAX_CELLS) or 1]
    numbers = [v for row in rows for v in (_number(cell) for cell in row) if v is not None]
    high = max(map(abs, numbers), default=0) or 1
    for i, row in enumerate(rows):
        cells = row[:: -(-len(row) // _MAX_CELLS) or 1]
        width, height = (right - left) / max(1, len(cells)), (bottom - top) / len(rows)
        for j, cell in enumerate(cells):
            share = abs(_number(cell) or 0) / high
            box = left + j * width, top + i * height, width, height
            yield '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}" opacity="{:.2f}"/>'.format(
                *box, PALETTE[0], share
            )


def _scale(figure: Any, name: str, traces: Sequence[Any], stacked: bool) -> _Scale:
    """The scale of an axis, from its domain, its type and the values of its traces."""
    letter = name[0]
    axis = figure.layout[f"{letter}axis{name[1:]}"]
    low, high = axis.domain or (0, 1)
    inner = (WIDTH if letter == "x" else HEIGHT) - 2 * _INSET
    start, end = (_INSET + inner * (at if letter == "x" else 1 - at) for at in (low, high))
    values = [value for trace in traces for value in _places(getattr(trace, letter, None))]
    log = axis.type == "log"
    texts = dict.fromkeys(str(value) for value in values) if _are_texts(values) or axis.type == "category" else {}
    categories = {text: position for position, text in enumerate(texts)}
    if categories:
        return _Scale(start, end, -0.6, len(categories) - 0.4, False, categories)
    numbers = [number for value in values if (number := _number(value, log, {})) is not None]
    lengths = {"x" if trace.orientation == "h" else "y" for trace in traces if trace.type == "bar"}
    if letter in lengths:
        numbers += [] if log else [0.0]
        numbers += _stacks(traces, letter) if stacked else []
    if axis.range and None not in axis.range and not _are_texts(axis.range):
        return _Scale(start, end, float(axis.range[0]), float(axis.range[1]), log, {})
    least, most = min(numbers, default=0.0), max(numbers, default=1.0)
    space = 0.06 * (most - least)
    return _Scale(start, end, least - space, most + space, log, {})


def _stacks(traces: Sequence[Any], letter: str) -> list[float]:
    """Heights of stacked bars."""
    sums: dict[str, float] = {}
    for trace in traces:
        places, heights = (trace.x, trace.y) if letter == "y" else (trace.y, trace.x)
        for place, height in zip(_places(places), _places(heights), strict=False):
            sums[str(place)] = sums.get(str(place), 0.0) + (_number(height) or 0.0)
    return list(sums.values())


def _are_texts(values: Sequence[Any]) -> bool:
    return any(isinstance(value, str) and _number(value) is None for value in values)


def _number(value: Any, log: bool = False, categories: Mapping[str, int] = MappingProxyType({})) -> float | None:
    if categories:
        return categories.get(str(value))
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    if not isfinite(number) or (log and number <= 0):
        return None
    return log10(number) if log else number


def _values(values: Any) -> list[Any]:
    if values is None:
        return []
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _places(values: Any) -> list[Any]:
    """Coordinates along an axis; two lists are outer and inner categories."""
    found = _values(values)
    if len(found) == 2 and not any(isinstance(part, str) or not hasattr(part, "__len__") for part in found):
        return [f"{outer}, {inner}" for outer, inner in zip(*found, strict=False)]
    return found


def _color(trace: Any, other: str) -> str:
    """One colour per series; a marker's list of colours counts by its first."""
    line = trace.line.color if trace.type in ("scatter", "scattergl") else None
    found = line or (trace.marker.color if trace.type != "heatmap" else None)
    return found if isinstance(found, str) else other


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{a:.0f},{b:.0f}" for a, b in points)
