"""Scatter plots: choices with their Pareto front, and the numbers of micro-batches that a planner tried."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress, product
from math import isnan
from operator import not_
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.core.units import format_bytes
from workbench.memory.plan import Plan
from workbench.plots.axes import bold, exact_bytes, label, log_axis, unit_of, with_unit
from workbench.plots.style import FAINT, PALETTE, SYMBOLS, Look, looks, merge_legend, titled

_PANEL, _GAP, _MARGINS = 230, 62, 96  # pixels: panel height, gap with an axis title, margins besides the legend
_LEGEND_ROW, _NAMES_PER_ROW = 22, 4  # pixels; estimate at a notebook's width
_FRONT = "Pareto front"


def pareto_front(points: Iterable[tuple[float, float]]) -> list[int]:
    """Positions of the Pareto-optimal points, sorted by x: no other point is as small in both and smaller in one.

    Args:
        points: (x, y), less is better. Of equal points the first counts; points with a NaN never do.

    >>> pareto_front([(3, 1), (1, 3), (2, 2), (2, 3), (4, 4)])
    [1, 2, 0]
    """
    found, least = [], float("inf")
    known = [(point, place) for place, point in enumerate(points) if not any(map(isnan, point))]
    for (_, y), place in sorted(known):
        if y < least:
            found, least = [*found, place], y
    return found


def distinct_looks(groups: Iterable[Any]) -> dict[Any, Look]:
    """Assign a look to every group such that no two share both colour and symbol; known methods keep theirs.

    Args:
        groups: distinct values, at most 98.
    """
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
    """Draw choices as markers with their Pareto front: one row of panels per pair of quantities, one column per facet.

    Less is better on both axes, which are logarithmic.

    Args:
        table: one row per choice and facet; bytes and seconds in columns named `…_bytes` and `…_seconds`. A row that
            lacks a value of a pair, or has one that is not positive, is not in the panels of this pair.
        pairs: columns (x, y).
        group: column of choices.
        facet: column whose values are facets.
        names: column → axis title without unit.
        title: title of the figure.
        subtitle: smaller text below the title.

    Raises:
        ValueError: no row has the values of a pair.
    """
    rows: Any = pd.DataFrame(table)
    _check(rows, pairs)
    facets, own = list(dict.fromkeys(rows[facet])), distinct_looks(dict.fromkeys(rows[group]))
    names = {column: (names or {}).get(column, label(column)) for pair in pairs for column in pair}
    height = len(pairs) * _PANEL + (len(pairs) - 1) * _GAP
    figure = make_subplots(
        len(pairs),
        len(facets),
        shared_yaxes="rows",  # pyright: ignore[reportArgumentType]
        column_titles=[bold(name) for name in facets],
        vertical_spacing=_GAP / height if len(pairs) > 1 else None,
        horizontal_spacing=0.03,
    )
    for down, pair in enumerate(pairs, 1):
        units = {column: unit_of(column, rows[column].max()) for column in pair}
        for across, value in enumerate(facets, 1):
            here = _positive(rows[rows[facet] == value], pair)
            figure.add_traces(_traces(here, pair, group, own, units, names), rows=down, cols=across)
            figure.update_xaxes(_axis(here, pair[0], units, names), row=down, col=across)
        figure.update_yaxes(_axis(_positive(rows, pair), pair[1], units, names), row=down)
    for across in range(2, len(facets) + 1):
        figure.update_yaxes(title_text="", col=across)
    merge_legend(figure)
    bottom = _LEGEND_ROW * -(-len(own) // _NAMES_PER_ROW) + 70
    titled(figure, title, height=height + _MARGINS + bottom, subtitle=subtitle).update_annotations(font_size=13)
    return figure.update_layout(margin_b=bottom, margin_t=_MARGINS if title else 40)


def _traces(
    rows: pd.DataFrame,
    pair: tuple[str, str],
    group: str,
    own: Mapping[Any, Look],
    units: Mapping[str, tuple[str, float]],
    names: Mapping[str, str],
) -> list[go.Scatter]:
    x, y = ((rows[column] / units[column][1]).tolist() for column in pair)
    front = pareto_front(zip(x, y, strict=True))
    edge = go.Scatter(
        x=[x[place] for place in front],
        y=[y[place] for place in front],
        name=_FRONT,
        mode="lines",
        line={"shape": "hv", "color": FAINT, "width": 1.5},  # a step: points on it are no better than its left end
        hoverinfo="skip",
        legendrank=2000,  # after the choices, whose rank is 1000
    )
    records = zip(x, y, rows.to_dict("records"), strict=True)
    return [edge, *(_marker(at_x, at_y, own[row[group]], row, names) for at_x, at_y, row in records)]


def _marker(x: float, y: float, look: Look, row: Mapping[Any, Any], names: Mapping[str, str]) -> go.Scatter:
    values = [f"{name}: {_text(column, row[column])}" for column, name in names.items() if row[column] == row[column]]
    hover = "<br>".join([bold(look.name), *values])
    outline = {"width": 1.5, "color": look.color}
    return go.Scatter(
        x=[x],
        y=[y],
        name=look.name,
        mode="markers",
        marker={"symbol": look.symbol, "size": 10, "color": look.color, "line": outline},
        hovertemplate=f"{hover}<extra></extra>",
    )


def _text(column: str, value: float) -> str:
    if column.endswith("_bytes"):
        return format_bytes(round(value))
    return f"{value:.3g} s" if column.endswith("_seconds") else f"{value:.3g}"


def _axis(
    rows: pd.DataFrame, column: str, units: Mapping[str, tuple[str, float]], names: Mapping[str, str]
) -> dict[str, Any]:
    unit, factor = units[column]
    return log_axis(rows[column] / factor) | {"title_text": with_unit(names[column], unit)}


def _positive(rows: pd.DataFrame, pair: tuple[str, str]) -> pd.DataFrame:
    return rows.loc[(rows[list(pair)] > 0).all(axis=1)]


def _check(rows: pd.DataFrame, pairs: Sequence[tuple[str, str]]) -> None:
    for x, y in pairs:
        if not len(rows) or x not in rows or y not in rows or not len(_positive(rows, (x, y))):
            raise ValueError(f"no row of the table has {x} and {y}; run the experiment, or draw what it measured")


def plan_search(plan: Plan) -> go.Figure:
    """Draw the numbers of micro-batches that the planner tried, in order, and which of them fit.

    Args:
        plan: result of `workbench.plan_micro_batches`.

    Raises:
        ValueError: the planner tried none.
    """
    if not plan.tried:
        raise ValueError("the planner tried no number of micro-batches; plan for a batch with seeds")
    tries = [(place, k, nbytes) for place, (k, nbytes) in enumerate(plan.tried, 1)]
    # Fewer parts than planned may be within the capacity, but not within the planner's safety margin.
    fits = [k >= plan.num_parts and nbytes <= plan.memory_bytes for _, k, nbytes in tries]
    figure = go.Figure([_tries_trace([*compress(tries, fits)], "fits", PALETTE[0], "circle")])
    too_large = compress(tries, map(not_, fits))
    figure.add_trace(_tries_trace([*too_large], "the largest part does not fit", PALETTE[1], "x"))
    figure.update_xaxes(title_text="try", tickformat="d", dtick=1, range=[0.5, len(tries) + 0.5])
    top = 1.15 * max(k for _, k, _ in tries)  # room for the text above the highest marker
    figure.update_yaxes(title_text=label("num_parts"), range=[0, top])
    found = f"K = {plan.num_parts} found in {len(tries)} tries" if len(tries) > 1 else "The whole batch fits"
    return titled(figure, f"{found}, without a training step", height=380)


def _tries_trace(tries: Sequence[tuple[int, int, int]], name: str, color: str, symbol: str) -> go.Scatter:
    return go.Scatter(
        x=[place for place, _, _ in tries],
        y=[k for _, k, _ in tries],
        name=name,
        showlegend=True,
        mode="markers+text",
        marker={"size": 10, "color": color, "symbol": symbol},
        text=[str(k) for _, k, _ in tries],
        textposition="top center",
        customdata=[exact_bytes(nbytes) for _, _, nbytes in tries],
        hovertemplate="K = %{y}: %{customdata}<extra></extra>",
    )
