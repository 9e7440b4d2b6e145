"""Signed errors of estimates, a dot a case, beside the bounds that they are wanted in."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from workbench.plots.grid import Grid
from workbench.plots.style import INK, Look, looks, titled, traces_of

_APART = 0.18  # of the room of a name, between the groups' dots


def error_dots(
    table: pd.DataFrame | Sequence[Mapping[str, Any]],
    *,
    x: str,
    group: str,
    facet: str,
    error: str = "error",
    within: float | None = None,
    title: str | None = None,
    subtitle: str = "",
) -> go.Figure:
    """A dot for every row's signed relative error, above its name; dots of a group side by side with the others'.

    Args:
        table: rows; those without an error are left out.
        x: column of names.
        group: column whose values have a colour and symbol each.
        facet: column whose values are panels.
        error: column of what was estimated over what was measured, less 1.
        within: the shaded band is this far around 0.
        title: of the figure.
        subtitle: below it.

    Raises:
        ValueError: no row has an error.
    """
    rows = pd.DataFrame(table).dropna(subset=[error])
    if not len(rows):
        raise ValueError(f"no row of the table has a value of {error}; nothing was measured")
    names, groups, panels = ([*dict.fromkeys(rows[column])] for column in (x, group, facet))
    grid = Grid(tuple(map(str, panels)), 1)
    figure = grid.figure()
    for panel, value in enumerate(panels):
        row, col = grid.places(panel)[0]
        for side, (name, look) in enumerate(looks(groups).items()):
            here: Any = rows[(rows[facet] == value) & (rows[group] == name)]
            places = [names.index(v) + _APART * (side - (len(groups) - 1) / 2) for v in here[x]]
            figure.add_trace(_dots(here, places, here[x], error, look, shown=panel == 0), row=row, col=col)
        figure.update_xaxes(tickvals=[*range(len(names))], ticktext=names, tickangle=-40, row=row, col=col)
    _mark(figure, within)
    figure.update_xaxes(range=[-0.6, len(names) - 0.4], showgrid=False)
    figure.update_yaxes(tickformat="+.0%", matches="y").update_yaxes(title_text="error of the estimate", col=1)
    return titled(figure, title, subtitle=subtitle, height=grid.height + 60)


def _dots(rows: pd.DataFrame, places: Sequence[float], names: Any, error: str, look: Look, *, shown: bool) -> Any:
    return go.Scatter(
        x=places,
        y=rows[error].tolist(),
        name=look.name,
        legendgroup=look.name,
        showlegend=shown,
        mode="markers",
        marker={"symbol": look.symbol, "size": 9, "color": look.color},
        customdata=[*names],
        hovertemplate=f"<b>{look.name}</b><br>%{{customdata}}: %{{y:+.2%}}<extra></extra>",
    )


def _mark(figure: go.Figure, within: float | None) -> None:
    """The line of no error and the band around it, behind the dots."""
    figure.add_hline(y=0, line={"color": INK, "width": 1}, layer="below")
    if within is not None:
        figure.add_hrect(y0=-within, y1=within, fillcolor="#E8EAED", line_width=0, layer="below")
        top = max((v for trace in traces_of(figure) for v in trace.y), default=0)
        figure.update_yaxes(range=[None, max(top, within) * 1.3])
