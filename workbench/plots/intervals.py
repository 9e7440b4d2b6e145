"""Means with their confidence intervals, a dot a case, groups side by side."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from workbench.plots.style import Look, label, looks, titled

_APART = 0.22  # of the room of a case, between the groups' dots
_HEIGHT = 440


def interval_dots(
    table: pd.DataFrame | Sequence[Mapping[str, Any]],
    *,
    x: str,
    y: str,
    group: str,
    half_width: str = "half_width",
    title: str | None = None,
    subtitle: str = "",
) -> go.Figure:
    """A dot for every row's mean above its name, with a bar over its interval; groups side by side.

    Args:
        table: rows; those without a mean are left out.
        x: column of names.
        y: column of means, shares of 1.
        group: column whose values have a colour and symbol each.
        half_width: column of half the intervals, drawn within 0 and 1; NaN where there is none.
        title: of the figure.
        subtitle: below it.

    Raises:
        ValueError: no row has a mean.
    """
    rows = pd.DataFrame(table).dropna(subset=[y])
    if not len(rows):
        raise ValueError(f"no row of the table has a value of {y}; run the experiment first")
    names, groups = ([*dict.fromkeys(rows[column])] for column in (x, group))
    figure = go.Figure()
    for side, (name, look) in enumerate(looks(groups).items()):
        here: Any = rows[rows[group] == name]
        places = [names.index(value) + _APART * (side - (len(groups) - 1) / 2) for value in here[x]]
        figure.add_trace(_dots(here, places, x, y, half_width, look))
    figure.update_xaxes(tickvals=[*range(len(names))], ticktext=names, tickangle=-30, showgrid=False)
    figure.update_xaxes(range=[-0.6, len(names) - 0.4])
    figure.update_yaxes(title_text=label(y), tickformat=".0%")
    return titled(figure, title, subtitle=subtitle, height=_HEIGHT)


def _dots(rows: pd.DataFrame, places: Sequence[float], x: str, y: str, half_width: str, look: Look) -> go.Scatter:
    about = [f"{name}: {mean:.2%}" for name, mean in zip(rows[x], rows[y], strict=True)]
    about = [
        f"{text} ± {half:.2%}" if half == half else text for text, half in zip(about, rows[half_width], strict=True)
    ]
    return go.Scatter(
        x=list(places),
        y=rows[y].tolist(),
        name=look.name,
        mode="markers",
        marker={"symbol": look.symbol, "size": 9, "color": look.color},
        error_y=_bars(rows[y], rows[half_width].fillna(0)),
        customdata=about,
        hovertemplate=f"<b>{look.name}</b><br>%{{customdata}}<extra></extra>",
    )


def _bars(means: Any, halves: Any) -> dict[str, Any]:
    """Intervals of shares, cut off at 0 and 1."""
    above, below = halves.clip(upper=1 - means), halves.clip(upper=means)
    return {"array": above.tolist(), "arrayminus": below.tolist(), "thickness": 1.5, "width": 5}
