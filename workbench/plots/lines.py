"""Lines over a sweep: one line per group, one panel per quantity and facet, the paper's own values beside them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from workbench.plots.axes import PanelGrid, label, log2_x_axes, log_y_axes, unit_of
from workbench.plots.style import Look, looks, merge_legend, titled

Table = pd.DataFrame | Sequence[Mapping[str, Any]]

CURVE = 3
"""Points of the shortest curve: a line between two claims what lies between them."""


def lines(
    table: Table,
    *,
    x: str,
    y: str | Sequence[str],
    group: str,
    facet: str | Sequence[str] = (),
    log_x: bool = False,
    log_y: bool = False,
    units: Mapping[str, str] | None = None,
    reported: Table | None = None,
    spread: Mapping[str, tuple[str, str]] | None = None,
    band: bool = False,
    title: str | None = None,
    subtitle: str = "",
) -> go.Figure:
    """Draw one or several quantities over another: quantities in panels one below the other, facets side by side.

    Facets have no panels of quantities that they lack.

    Rows with equal x, group and facet (repetitions, say) become one point at their median, with error bars from minimum
    to maximum. Rows without a value are skipped. Fewer than three points are no curve: drawn as points; of two, the
    axis says so.

    Args:
        table: rows; bytes and seconds in columns named `…_bytes` and `…_seconds`.
        x: numeric column.
        y: numeric columns, one per panel.
        group: column whose values are lines.
        facet: columns whose combinations of values are facets.
        log_x: x axis to base 2, with ticks at the values present.
        log_y: y axes to base 10.
        units: column → unit (B, KiB, MiB, GiB, TiB, ms, s, min); by default chosen per panel by size.
        reported: the paper's values, with the same columns or some of them; drawn hollow and dotted in the facets they
            belong to, or in all facets if they have no facet column.
        spread: column → columns of its minimum and maximum, if not to be taken from repetitions.
        band: draw the spread as a shaded band around a line without markers, for curves of many points.
        title: title of the figure.
        subtitle: smaller text below the title.

    Raises:
        ValueError: no rows, a missing column, or a unit that does not fit its column.
    """
    data, facets, quantities = pd.DataFrame(table), _listed(facet), _listed(y)
    spread = spread or {}
    _check(data, [x, *quantities, group, *facets, *(column for pair in spread.values() for column in pair)])
    own = looks(data[group].dropna().unique())
    sources = [_Source(data, x, group, own, spread, band)]
    if reported is not None and len(reported):
        values = pd.DataFrame(reported)
        _check(values, [x, group])
        sources.append(_Source(values, x, group, _paper_looks(own, list(values[group].unique())), {}))
    combinations = [dict(zip(facets, values, strict=True)) for values in dict.fromkeys(_tuples(data, facets))]
    at = [[source.at(values) for source in sources] for values in combinations]
    drawn = [
        [column for column in quantities if any(source.has(column) for source in here)] or quantities for here in at
    ]
    grid = PanelGrid(tuple(" · ".join(map(str, c.values())) for c in combinations), tuple(map(len, drawn)))
    figure = grid.figure()
    for place, here in enumerate(at):
        for column, cell in zip(drawn[place], grid.cells(place), strict=True):
            _draw_panel(figure, cell, here, column, (units or {}).get(column))
        row, col = grid.cells(place)[-1]
        figure.update_xaxes(title_text=label(x) + _no_curve(here), row=row, col=col)
    _scale_axes(figure, {v for s in sources for v in s.rows[x].dropna()} if log_x else None, log_y)
    merge_legend(figure)
    return titled(figure, title, height=grid.height, subtitle=subtitle)


@dataclass(frozen=True)
class _Source:
    """Measured or reported rows, the look of each group, and the columns of minimum and maximum."""

    rows: pd.DataFrame
    x: str
    group: str
    looks: Mapping[Any, Look]
    spread: Mapping[str, tuple[str, str]]
    band: bool = False

    def at(self, facet: Mapping[str, Any]) -> "_Source":
        """The rows of a facet; a facet column that the source lacks excludes none."""
        kept = self.rows
        for column, value in facet.items():
            kept = kept.loc[kept[column] == value] if column in kept else kept
        return replace(self, rows=kept)

    def has(self, column: str) -> bool:
        return column in self.rows and bool(self.rows[column].notna().any())

    def largest(self, column: str) -> float:
        return max(self.rows[column].dropna(), default=0.0) if column in self.rows else 0.0

    def traces(self, y: str, unit: tuple[str, float]) -> Iterator[go.Scatter]:
        """Bands come first, so that plotly draws them below all lines."""
        drawn = []
        for value, look in self.looks.items():
            rows = self.rows.loc[self.rows[self.group] == value]
            points = self._points(rows, y) if y in rows else rows.head(0)
            if len(points):
                drawn.append((points, look))
        if self.band:
            curves = [(points, look) for points, look in drawn if len(points) >= CURVE]
            spread = [(points, look) for points, look in curves if bool((points["most"] > points["least"]).any())]
            yield from (_band(points, look, unit[1]) for points, look in spread)
        yield from (_line(points, look, label(self.x), label(y), unit, band=self.band) for points, look in drawn)

    def _points(self, rows: pd.DataFrame, y: str) -> pd.DataFrame:
        """One row per value of x: y, least, most."""
        least, most = self.spread.get(y, (y, y))
        at = rows.dropna(subset=[self.x, y]).groupby(self.x)
        points = {"y": at[y].median(), "least": at[least].min(), "most": at[most].max()}
        return pd.DataFrame(points).reset_index(names="x")


def _draw_panel(
    figure: go.Figure, cell: tuple[int, int], sources: Sequence[_Source], column: str, unit: str | None
) -> None:
    row, col = cell
    shown = unit_of(column, max((source.largest(column) for source in sources), default=0.0), unit)
    for trace in (trace for source in sources for trace in source.traces(column, shown)):
        figure.add_trace(trace, row=row, col=col)
    figure.update_yaxes(title_text=label(column, shown[0]), row=row, col=col)


def _line(points: pd.DataFrame, look: Look, x: str, y: str, unit: tuple[str, float], *, band: bool) -> go.Scatter:
    name, factor = unit
    is_curve = len(points) >= CURVE
    exact = [f" ({v:,.0f} bytes)" for v in points["y"]] if name.endswith("B") else [""] * len(points)
    return go.Scatter(
        x=points["x"].tolist(),
        y=(points["y"] / factor).tolist(),
        name=look.name,
        mode=("lines" if band else "lines+markers") if is_curve else "markers",
        line={"color": look.color, "dash": look.dash, "width": 1.5 if look.symbol.endswith("-open") else 2},
        marker={"symbol": look.symbol, "size": 9, "color": look.color, "line": {"width": 1.5, "color": look.color}},
        error_y=None if band and is_curve else _error_bars(points, factor),
        customdata=exact,
        hovertemplate=f"<b>{look.name}</b><br>{x}: %{{x}}<br>{y}: %{{y:.4~g}} {name}%{{customdata}}<extra></extra>",
    )


def _no_curve(sources: Sequence[_Source]) -> str:
    """What the axis of a panel says whose groups have two points at most; single dots need no word."""
    groups: list[Any] = [source.rows.groupby(source.group)[source.x] for source in sources if len(source.rows)]
    most = max((int(each.nunique().max()) for each in groups), default=0)
    return "<br>(two values: no curve)" if 1 < most < CURVE else ""


def _error_bars(points: pd.DataFrame, factor: float) -> dict[str, Any] | None:
    values = points["y"] / factor
    above, below = points["most"] / factor - values, values - points["least"] / factor
    bars = {"array": above.tolist(), "arrayminus": below.tolist(), "thickness": 1.2, "width": 4}
    return bars if bool((above + below).max() > 0) else None


def _band(points: pd.DataFrame, look: Look, factor: float) -> go.Scatter:
    """The area between least and most in the line's colour; points without them have no width."""
    least, most = (points[end].fillna(points["y"]) / factor for end in ("least", "most"))
    red, green, blue = (int(look.color[i : i + 2], 16) for i in (1, 3, 5))
    return go.Scatter(
        x=[*points["x"], *points["x"][::-1]],
        y=[*most, *least[::-1]],
        name=look.name,
        fill="toself",
        fillcolor=f"rgba({red}, {green}, {blue}, 0.18)",
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
    )


def _paper_looks(own: Mapping[Any, Look], groups: Sequence[Any]) -> dict[Any, Look]:
    """The paper's values have the colour and symbol of their method, hollow and dotted."""
    known = dict(own) | looks(group for group in groups if group not in own)
    return {
        group: replace(look, name=f"{look.name}, paper", dash="dot", symbol=f"{look.symbol}-open")
        for group, look in known.items()
        if group in groups
    }


def _scale_axes(figure: go.Figure, x_values: set[float] | None, log_y: bool) -> None:
    """Logarithmic axes where asked for; linear y axes start at 0."""
    if x_values is not None:
        log2_x_axes(figure, x_values)
    if log_y:
        log_y_axes(figure)
    else:
        figure.update_yaxes(rangemode="tozero")


def _listed(columns: str | Sequence[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else list(columns)


def _tuples(table: pd.DataFrame, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[column] for column in columns), strict=True) if columns else iter([()])


def _check(table: pd.DataFrame, columns: Sequence[str]) -> None:
    if not len(table):
        raise ValueError("the table has no rows to draw; run the experiment first")
    missing = [column for column in columns if column not in table]
    if missing:
        raise ValueError(f"the table has no column {', '.join(missing)}; it has {', '.join(map(str, table.columns))}")
