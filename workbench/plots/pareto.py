"""What one pays against what one gets: a marker a choice, and the choices that no other beats in both."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import ceil, floor, isnan, log10
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.core.units import format_bytes
from workbench.plots.style import FAINT, PALETTE, SYMBOLS, Look, label, looks, titled, traces_of, unit_of

_PANEL, _GAP, _AROUND = 230, 62, 96  # pixels: height of a panel, between two with the axis title, title and ends
_LEGEND_ROW, _NAMES_A_ROW = 22, 4
_FEW, _MANY = 3, 7  # ticks of an axis
_STEPS = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7))
_NARROW = 4  # a range whose ends are nearer than this many times is read like a linear one
_FRONT = "not beaten in both"


def front(points: Iterable[tuple[float, float]]) -> list[int]:
    """Positions of the points that no other point beats, by x: none is as small in both and smaller in one.

    Args:
        points: (x, y), less is better; of equal ones the first counts. Points with a NaN are never on the front.

    >>> front([(3, 1), (1, 3), (2, 2), (2, 3), (4, 4)])
    [1, 2, 0]
    """
    found, least = [], float("inf")
    known = [(point, place) for place, point in enumerate(points) if not any(map(isnan, point))]
    for (_, y), place in sorted(known):
        if y < least:
            found, least = [*found, place], y
    return found


def marks(groups: Iterable[Any]) -> dict[Any, Look]:
    """The look of every group: as in all figures where it has one there, and no colour and symbol twice."""
    free = iter([*product(range(7), range(7)), *product(range(7, 14), range(7))])
    found, taken = {}, set()
    for group, look in looks(groups).items():
        while (look.color, look.symbol) in taken:
            shift, place = next(free)
            symbol = SYMBOLS[(place + shift) % 7] + ("-open" if shift >= 7 else "")
            look = replace(look, color=PALETTE[place], symbol=symbol)
        taken.add((look.color, look.symbol))
        found[group] = look
    return found


def pareto(
    table: pd.DataFrame | Sequence[Mapping[str, Any]],
    pairs: Sequence[tuple[str, str]],
    *,
    group: str,
    facet: str,
    names: Mapping[str, str] | None = None,
    title: str | None = None,
    subtitle: str = "",
) -> go.Figure:
    """A row of panels for every pair of quantities, a column for every facet; less is better on all axes.

    A line leads through the choices that no other beats in both quantities: above and right of it somebody is better.

    Args:
        table: a row a choice and facet, bytes and seconds in columns `…_bytes` and `…_seconds`. What lacks a value of
            a pair, or has one that is not positive (axes are logarithmic), is not in its panels.
        pairs: columns (x, y).
        group: column whose values are choices.
        facet: column whose values are facets.
        names: column → what readers see.
        title: of the figure.
        subtitle: below it.

    Raises:
        ValueError: no row has the values of a pair.
    """
    rows: Any = pd.DataFrame(table)
    _check(rows, pairs)
    facets, own = list(dict.fromkeys(rows[facet])), marks(dict.fromkeys(rows[group]))
    columns = list(dict.fromkeys(column for pair in pairs for column in pair))
    said = {column: (names or {}).get(column, label(column)) for column in columns}
    height = len(pairs) * _PANEL + (len(pairs) - 1) * _GAP
    figure = make_subplots(
        len(pairs),
        len(facets),
        shared_yaxes="rows",  # pyright: ignore[reportArgumentType]
        column_titles=[f"<b>{name}</b>" for name in facets],
        vertical_spacing=_GAP / height if len(pairs) > 1 else None,
        horizontal_spacing=0.03,
    )
    for down, (x, y) in enumerate(pairs, 1):
        units = {column: unit_of(column, rows[column].max()) for column in (x, y)}
        for across, value in enumerate(facets, 1):
            here = _positive(rows[rows[facet] == value], x, y)
            for trace in _traces(here, x, y, group, own, units, said):
                figure.add_trace(trace, row=down, col=across)
            figure.update_xaxes(_log_axis(here[x] / units[x][1], _named(said[x], units[x])), row=down, col=across)
        figure.update_yaxes(_log_axis(_positive(rows, x, y)[y] / units[y][1], _named(said[y], units[y])), row=down)
    for across in range(2, len(facets) + 1):
        figure.update_yaxes(title_text="", col=across)
    _name_once(figure)
    below = _LEGEND_ROW * -(-len(own) // _NAMES_A_ROW) + 70
    figure = titled(figure, title, height=height + _AROUND + below, subtitle=subtitle).update_annotations(font_size=13)
    return figure.update_layout(margin_b=below, margin_t=_AROUND if title else 40)


def _traces(
    rows: pd.DataFrame,
    x: str,
    y: str,
    group: str,
    own: Mapping[Any, Look],
    units: Mapping[str, tuple[str, float]],
    said: Mapping[str, str],
) -> list[go.Scatter]:
    across, up = (rows[x] / units[x][1]).tolist(), (rows[y] / units[y][1]).tolist()
    line = front(zip(across, up, strict=True))
    told = [_about(own[row[group]].name, row, said) for row in rows.to_dict("records")]
    points = [
        go.Scatter(
            x=[across[place]],
            y=[up[place]],
            name=look.name,
            legendgroup=look.name,
            mode="markers",
            marker={
                "symbol": look.symbol,
                "size": 10,
                "color": look.color,
                "line": {"width": 1.5, "color": look.color},
            },
            hovertemplate=f"{told[place]}<extra></extra>",
        )
        for place, look in enumerate(own[value] for value in rows[group])
    ]
    edge = go.Scatter(
        x=[across[place] for place in line],
        y=[up[place] for place in line],
        name=_FRONT,
        legendgroup=_FRONT,
        mode="lines",
        line={"shape": "hv", "color": FAINT, "width": 1.5},  # what lies between two of them is as good as the left one
        hoverinfo="skip",
    )
    return [edge, *points]


def _about(name: str, row: Mapping[Any, Any], said: Mapping[str, str]) -> str:
    values = [f"{text}: {_value(column, row[column])}" for column, text in said.items() if row[column] == row[column]]
    return "<br>".join([f"<b>{name}</b>", *values])


def _value(column: str, value: float) -> str:
    if column.endswith("_bytes"):
        return format_bytes(round(value))
    return f"{value:.3g}{' s' if column.endswith('_seconds') else ''}"


def _named(text: str, unit: tuple[str, float]) -> str:
    return f"{text} ({unit[0]})" if unit[0] else text


def _positive(rows: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    return rows.loc[(rows[x] > 0) & (rows[y] > 0)]


def _log_axis(values: Iterable[float], name: str) -> dict[str, Any]:
    """An axis with room around the values."""
    given = list(values)
    if not given:
        return {"type": "log", "title_text": name}
    room = (max(given) / min(given)) ** 0.08 * 1.05
    low, high = min(given) / room, max(given) * room
    ticks = _ticks(low, high)
    text = [f"{tick:g}" for tick in ticks]
    return {"type": "log", "range": [log10(low), log10(high)], "tickvals": ticks, "ticktext": text, "title_text": name}


def _ticks(low: float, high: float) -> list[float]:
    """Round values in the range, evenly spaced where it is narrow, else the coarsest steps of a decade that do."""
    if high / low < _NARROW:
        return _even_ticks(low, high)
    powers = range(int(log10(low)) - 2, int(log10(high)) + 2)
    ticks = []
    for steps in _STEPS:
        ticks = [float(f"{step * 10.0**power:.3g}") for power in powers for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= _FEW:
            break
    return ticks[:: -(-len(ticks) // _MANY) or 1]


def _even_ticks(low: float, high: float) -> list[float]:
    power = 10.0 ** floor(log10((high - low) / _FEW))
    step = next(size for size in (5 * power, 2 * power, power) if (high - low) / size >= _FEW)
    return [float(f"{n * step:.6g}") for n in range(ceil(low / step), floor(high / step) + 1)]


def _name_once(figure: go.Figure) -> None:
    """One legend entry a choice, the line last; clicking it hides all of it."""
    named: set[str] = set()
    for trace in traces_of(figure):
        trace.showlegend = trace.name not in named
        trace.legendrank = 2000 if trace.name == _FRONT else 1000
        named.add(trace.name)


def _check(rows: pd.DataFrame, pairs: Sequence[tuple[str, str]]) -> None:
    for x, y in pairs:
        if not len(rows) or x not in rows or y not in rows or not len(_positive(rows, x, y)):
            raise ValueError(f"no row of the table has {x} and {y}; run the experiment, or draw what it measured")
