"""Dots with intervals or error bounds: one per case, groups side by side."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
import plotly.graph_objects as go

from workbench.plots.axes import PanelGrid, label
from workbench.plots.style import INK, Look, looks, merge_legend, titled, traces_of

Table = pd.DataFrame | Sequence[Mapping[str, Any]]

_BOUNDS = "#E8EAED"
_INTERVAL_HEIGHT, _SLANTED_NAMES = 440, 60  # pixels: height of a figure; added for long names below the axis
_LEVEL_NAMES = 6  # more names would run into each other
_LONG_NAME = 16  # letters; at 30 degrees the first of longer names would begin left of the figure, and not be drawn


def interval_dots(
    table: Table,
    *,
    x: str,
    y: str,
    group: str,
    half_width: str = "half_width",
    ratios: bool = False,
    title: str | None = None,
    subtitle: str = "",
) -> go.Figure:
    """Draw the mean of every row as a dot with its confidence interval.

    Args:
        table: one row per case and group; rows without a mean are skipped.
        x: column of cases, the categories of the x axis.
        y: column of means, shares from 0 to 1, or ratios.
        group: column whose values differ in colour and symbol.
        half_width: column of half the width of each interval, which ends at 0, and of shares at 1; NaN for no interval.
        ratios: means are ratios, as numbers beside a line at 1.
        title: title of the figure.
        subtitle: smaller text below the title.

    Raises:
        ValueError: no row has a mean.
    """
    rows = _rows(table, y)
    cases, groups = ([*dict.fromkeys(rows[column])] for column in (x, group))
    series = _series(rows, x, cases, group, looks(groups), gap=0.22)
    figure = go.Figure([_mean_trace(one, y, half_width, ratios) for one in series])
    steep = max(len(str(case)) for case in cases) > _LONG_NAME
    figure.update_xaxes(_case_axis(cases, tickangle=-60 if steep else -30))
    figure.update_yaxes(title_text=label(y), tickformat="" if ratios else ".0%")
    if ratios:
        figure.add_hline(y=1, line={"color": INK, "width": 1}, layer="below")
    return titled(figure, title, subtitle=subtitle, height=_INTERVAL_HEIGHT + _SLANTED_NAMES * steep)


def difference_dots(
    table: Table,
    *,
    x: str,
    y: str,
    group: str,
    facet: str | None = None,
    margin: float,
    y_title: str | None = None,
    title: str | None = None,
    subtitle: str = "",
) -> go.Figure:
    """Draw the mean difference of every row as a dot with its confidence interval, over a margin of equivalence.

    Args:
        table: one row per case and group, with half the width of its interval in the column "half_width", NaN for none;
            rows without a difference are skipped.
        x: column of cases, the categories of the x axis.
        y: column of differences between shares.
        group: column whose values differ in colour and symbol.
        facet: column whose values are panels, each with its own cases and y axis; None: one panel.
        margin: shade differences from −margin to +margin, those that count as none.
        y_title: title of the y axis; by default the name of the column.
        title: title of the figure.
        subtitle: smaller text below the title.

    Raises:
        ValueError: no row has a difference.
    """
    rows = _rows(table, y)
    own = looks([*dict.fromkeys(rows[group])])
    panels = {"": rows} if facet is None else dict([*rows.groupby(facet, sort=False)])
    grid = PanelGrid(tuple(map(str, panels)))
    slanted = max(part[x].nunique() for part in panels.values()) > _LEVEL_NAMES // grid.columns
    figure = grid.figure()
    for place, part in enumerate(panels.values()):
        (row, col), cases = grid.cells(place)[0], [*dict.fromkeys(part[x])]
        here = {value: own[value] for value in dict.fromkeys(part[group])}
        for one in _series(part, x, cases, group, here, gap=0.18):
            figure.add_trace(_difference_trace(one, y), row=row, col=col)
        figure.update_xaxes(_case_axis(cases, tickangle=-60 if slanted else 0), row=row, col=col)
    figure.add_hrect(y0=-margin, y1=margin, fillcolor=_BOUNDS, line_width=0, layer="below")
    figure.add_hline(y=0, line={"color": INK, "width": 1}, layer="below")
    merge_legend(figure)
    figure.update_layout(showlegend=facet != group)  # a single group too, if nothing else names it
    figure.update_yaxes(tickformat="+.1%").update_yaxes(title_text=y_title or label(y), col=1)
    height = (_INTERVAL_HEIGHT if facet is None else grid.height) + _SLANTED_NAMES * slanted
    return titled(figure, title, subtitle=subtitle, height=height)


def error_dots(
    table: Table,
    *,
    x: str,
    group: str,
    facet: str,
    error: str = "error",
    within: float | None = None,
    title: str | None = None,
    subtitle: str = "",
) -> go.Figure:
    """Draw the signed relative error of every row's estimate as a dot.

    Args:
        table: one row per estimate; rows without an error are skipped.
        x: column of cases, the categories of the x axis.
        group: column whose values differ in colour and symbol.
        facet: column whose values are panels.
        error: column of estimated ÷ measured − 1.
        within: shade errors from −within to +within; None for no shading.
        title: title of the figure.
        subtitle: smaller text below the title.

    Raises:
        ValueError: no row has an error.
    """
    rows = _rows(table, error, "nothing was measured")
    cases, groups, facets = ([*dict.fromkeys(rows[column])] for column in (x, group, facet))
    grid = PanelGrid(tuple(map(str, facets)))
    figure = grid.figure()
    for place, value in enumerate(facets):
        row, col = grid.cells(place)[0]
        for series in _series(rows[rows[facet] == value], x, cases, group, looks(groups), gap=0.18):
            figure.add_trace(_error_trace(series, error), row=row, col=col)
    merge_legend(figure)
    figure.update_xaxes(_case_axis(cases, tickangle=-40))
    _draw_bounds(figure, within)
    figure.update_yaxes(tickformat="+.0%", matches="y").update_yaxes(title_text="error of the estimate", col=1)
    return titled(figure, title, subtitle=subtitle, height=grid.height + _SLANTED_NAMES)


def _rows(table: Table, y: str, reason: str = "run the experiment first") -> Any:
    rows = pd.DataFrame(table).dropna(subset=[y])
    if not len(rows):
        raise ValueError(f"no row of the table has a value of {y}; {reason}")
    return rows


class _Series(NamedTuple):
    """One group's dots: look, x positions, names of the cases, and rows."""

    look: Look
    x: list[float]
    cases: list[Any]
    rows: Any


def _series(rows: Any, x: str, cases: list[Any], group: str, own: Mapping[Any, Look], gap: float) -> Iterator[_Series]:
    """Shift each group sideways by `gap` of the distance between cases, so that groups do not overlap."""
    for side, (value, look) in enumerate(own.items()):
        here = rows[rows[group] == value]
        names, shift = here[x].tolist(), gap * (side - (len(own) - 1) / 2)
        yield _Series(look, [cases.index(name) + shift for name in names], names, here)


def _case_axis(cases: list[Any], tickangle: int) -> dict[str, Any]:
    axis = {"tickvals": [*range(len(cases))], "ticktext": cases, "tickangle": tickangle}
    return {**axis, "range": [-0.6, len(cases) - 0.4], "showgrid": False}


def _trace(series: _Series, y: list[float], hover: list[str]) -> go.Scatter:
    look = series.look
    return go.Scatter(
        x=series.x,
        y=y,
        name=look.name,
        mode="markers",
        marker={"symbol": look.symbol, "size": 9, "color": look.color},
        customdata=hover,
        hovertemplate=f"<b>{look.name}</b><br>%{{customdata}}<extra></extra>",
    )


def _mean_trace(series: _Series, y: str, half_width: str, ratios: bool) -> go.Scatter:
    means, halves = series.rows[y], series.rows[half_width]
    form, most = (".2f", float("inf")) if ratios else (".2%", 1.0)
    hover = [
        f"{case}: {mean:{form}}" + (f" ± {half:{form}}" if half == half else "")
        for case, mean, half in zip(series.cases, means, halves, strict=True)
    ]
    return _trace(series, means.tolist(), hover).update(error_y=_clipped(means, halves.fillna(0), most))


def _difference_trace(series: _Series, y: str) -> go.Scatter:
    values, halves = series.rows[y].tolist(), series.rows["half_width"]
    hover = [
        f"{case}: {v:+.2%}" + (f" ± {half:.2%}" if half == half else "")
        for case, v, half in zip(series.cases, values, halves, strict=True)
    ]
    bars = {"array": halves.fillna(0).tolist(), "thickness": 1.5, "width": 5}
    return _trace(series, values, hover).update(error_y=bars)


def _clipped(means: Any, halves: Any, most: float) -> dict[str, Any]:
    """Error bars that end at 0 and at the most that a mean can be."""
    above, below = halves.clip(upper=(most - means).clip(lower=0)), halves.clip(upper=means)
    return {"array": above.tolist(), "arrayminus": below.tolist(), "thickness": 1.5, "width": 5}


def _error_trace(series: _Series, error: str) -> go.Scatter:
    errors = series.rows[error].tolist()
    return _trace(series, errors, [f"{case}: {v:+.2%}" for case, v in zip(series.cases, errors, strict=True)])


def _draw_bounds(figure: go.Figure, within: float | None) -> None:
    """The line of no error and the shaded bounds, both behind the dots."""
    figure.add_hline(y=0, line={"color": INK, "width": 1}, layer="below")
    if within is not None:
        figure.add_hrect(y0=-within, y1=within, fillcolor=_BOUNDS, line_width=0, layer="below")
        top = max((v for trace in traces_of(figure) for v in trace.y), default=0)
        figure.update_yaxes(range=[None, max(top, within) * 1.3])
