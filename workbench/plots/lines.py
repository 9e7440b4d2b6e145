"""Lines over a sweep: a line a group, a panel a facet, the paper's own values beside them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from workbench.plots.grid import Grid, binary_ticks, decimal_ticks
from workbench.plots.style import Look, label, looks, titled, traces_of, unit_of

Table = pd.DataFrame | Sequence[Mapping[str, Any]]


def lines(
    table: Table,
    *,
    x: str,
    y: str,
    group: str,
    facet: str | Sequence[str] = (),
    log_x: bool = False,
    log_y: bool = False,
    scale: str | None = None,
    reported: Table | None = None,
    error: tuple[str, str] | None = None,
    band: bool = False,
    title: str | None = None,
) -> go.Figure:
    """One quantity over another, a line for every group: `panels` of one `y`, whose unit and errors are given plainly.

    Raises:
        ValueError: see `panels`.
    """
    scales, errors = {y: scale} if scale else {}, {y: error} if error else {}
    return panels(
        table,
        x=x,
        y=[y],
        group=group,
        facet=facet,
        log_x=log_x,
        log_y=log_y,
        scale=scales,
        reported=reported,
        error=errors,
        band=band,
        title=title,
    )


def panels(
    table: Table,
    *,
    x: str,
    y: Sequence[str],
    group: str,
    facet: str | Sequence[str] = (),
    log_x: bool = False,
    log_y: bool = False,
    scale: Mapping[str, str] | None = None,
    reported: Table | None = None,
    error: Mapping[str, tuple[str, str]] | None = None,
    band: bool = False,
    title: str | None = None,
) -> go.Figure:
    """Several quantities over one, each in a panel of its own, one above the other; facets side by side.

    Rows that differ in nothing drawn (repetitions, say) are one point at their median, with bars to the least and the
    most. A row without a value is no point.

    Args:
        table: rows, or a DataFrame; bytes and seconds in columns `…_bytes` and `…_seconds`.
        x: column of numbers.
        y: columns of numbers.
        group: column whose values are lines.
        facet: columns whose combinations are facets.
        log_x: base 2, ticks at the values present.
        log_y: base 10.
        scale: column → unit; the others by size, each panel its own.
        reported: the paper's rows, with those of the columns that it has; hollow and dotted, in the facets they name.
        error: column → those of its least and most.
        band: show least and most as a shaded band around a line without marks: for curves of many points.
        title: of the figure.

    Raises:
        ValueError: a column that the table lacks, no rows, or a unit that a column does not have.
    """
    data, facets = pd.DataFrame(table), [facet] if isinstance(facet, str) else list(facet)
    spread, scale = error or {}, scale or {}
    _check(data, [x, *y, group, *facets, *(column for pair in spread.values() for column in pair)])
    own = looks(data[group].dropna().unique())
    series = [_Series(data, own, spread, band)]
    if reported is not None and len(reported):
        values = pd.DataFrame(reported)
        _check(values, [x, group])
        series.append(_Series(values, _of_paper(own, list(values[group].unique())), {}))
    combinations = [dict(zip(facets, values, strict=True)) for values in dict.fromkeys(_tuples(data, facets))]
    grid = Grid(tuple(" · ".join(map(str, c.values())) for c in combinations), len(y))
    figure = grid.figure()
    for place, where in enumerate(combinations):
        here = [s.at(where) for s in series]
        for column, (row, col) in zip(y, grid.places(place), strict=True):
            unit = unit_of(column, max((s.largest(column) for s in here), default=0.0), scale.get(column))
            for trace in (t for s in here for t in s.traces(x, column, group, unit)):
                figure.add_trace(trace, row=row, col=col)
            figure.update_yaxes(title_text=label(column, unit[0]), row=row, col=col)
        figure.update_xaxes(title_text=label(x), row=row, col=col)
    if log_x:
        binary_ticks(figure, {v for s in series for v in s.table[x].dropna()})
    if log_y:
        decimal_ticks(figure)
    else:
        figure.update_yaxes(rangemode="tozero")
    _name_once(figure)
    return titled(figure, title, height=grid.height)


@dataclass(frozen=True)
class _Series:
    """Rows of one source, measured or reported, with the looks of its groups and the columns of its errors."""

    table: pd.DataFrame
    looks: Mapping[Any, Look]
    error: Mapping[str, tuple[str, str]]
    band: bool = False

    def at(self, where: Mapping[str, Any]) -> "_Series":
        """The rows of a facet; a column that the source lacks excludes none."""
        kept = self.table
        for column, value in where.items():
            kept = kept.loc[kept[column] == value] if column in kept else kept
        return replace(self, table=kept)

    def largest(self, column: str) -> float:
        return max(self.table[column].dropna(), default=0.0) if column in self.table else 0.0

    def traces(self, x: str, y: str, group: str, unit: tuple[str, float]) -> Iterator[go.Scatter]:
        """Bands first: they lie below all lines."""
        drawn = []
        for value, look in self.looks.items():
            rows = self.table.loc[self.table[group] == value]
            points = self._points(rows, x, y) if y in rows else rows.head(0)
            if len(points):
                drawn.append((points, look))
        if self.band:
            known = [(points, look) for points, look in drawn if bool((points["most"] > points["least"]).any())]
            yield from (_band(points, look, unit[1]) for points, look in known)
        yield from (_trace(points, look, label(x), label(y), unit, band=self.band) for points, look in drawn)

    def _points(self, rows: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
        """A line a value of x: y, least, most."""
        least, most = self.error.get(y, (y, y))
        at = rows.dropna(subset=[x, y]).groupby(x)
        return pd.DataFrame({"y": at[y].median(), "least": at[least].min(), "most": at[most].max()}).reset_index(
            names="x"
        )


def _trace(points: pd.DataFrame, look: Look, x: str, y: str, unit: tuple[str, float], *, band: bool) -> go.Scatter:
    name, factor = unit
    values = points["y"] / factor
    above, below = points["most"] / factor - values, values - points["least"] / factor
    spread = not band and bool((above + below).max() > 0)
    exact = [f" ({v:,.0f} bytes)" for v in points["y"]] if name.endswith("B") else [""] * len(points)
    return go.Scatter(
        x=points["x"].tolist(),
        y=values.tolist(),
        name=look.name,
        legendgroup=look.name,
        mode="lines" if band and len(points) > 1 else "lines+markers",
        line={"color": look.color, "dash": look.dash, "width": 1.5 if _is_open(look) else 2},
        marker={"symbol": look.symbol, "size": 9, "color": look.color, "line": {"width": 1.5, "color": look.color}},
        error_y={"array": above.tolist(), "arrayminus": below.tolist(), "thickness": 1.2, "width": 4}
        if spread
        else None,
        customdata=exact,
        hovertemplate=f"<b>{look.name}</b><br>{x}: %{{x}}<br>{y}: %{{y:.4~g}} {name}%{{customdata}}<extra></extra>",
    )


def _band(points: pd.DataFrame, look: Look, factor: float) -> go.Scatter:
    """The area between least and most, in the line's colour; of no width where they are not known."""
    least, most = (points[end].fillna(points["y"]) / factor for end in ("least", "most"))
    red, green, blue = (int(look.color[i : i + 2], 16) for i in (1, 3, 5))
    return go.Scatter(
        x=[*points["x"], *points["x"][::-1]],
        y=[*most, *least[::-1]],
        name=look.name,
        legendgroup=look.name,
        fill="toself",
        fillcolor=f"rgba({red}, {green}, {blue}, 0.18)",
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
    )


def _is_open(look: Look) -> bool:
    return look.symbol.endswith("-open")


def _of_paper(own: Mapping[Any, Look], groups: Sequence[Any]) -> dict[Any, Look]:
    """The paper's values have their method's colour and symbol, hollow."""
    known = dict(own) | looks(g for g in groups if g not in own)
    return {
        group: replace(
            known[group], name=f"{known[group].name}, paper", dash="dot", symbol=f"{known[group].symbol}-open"
        )
        for group in known
        if group in groups
    }


def _tuples(table: pd.DataFrame, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[column] for column in columns), strict=True) if columns else iter([()])


def _name_once(figure: go.Figure) -> None:
    """One legend entry a name; clicking it hides all its lines."""
    named: set[str] = set()
    for trace in traces_of(figure):
        if trace.fill is None:
            trace.showlegend = trace.name not in named
            named.add(trace.name)


def _check(table: pd.DataFrame, columns: Sequence[str]) -> None:
    if not len(table):
        raise ValueError("the table has no rows to draw; run the experiment first")
    missing = [column for column in columns if column not in table]
    if missing:
        raise ValueError(f"the table lacks {', '.join(missing)}; it has {', '.join(map(str, table.columns))}")
