"""Histograms of in-degrees."""

from collections.abc import Mapping

import plotly.graph_objects as go

from workbench.plots.layout import PanelGrid
from workbench.plots.looks import PALETTE
from workbench.plots.style import hatched, merge_legend, titled

Counts = Mapping[int, int]
"""In-degree → number of destinations."""

_HATCHES = ("", "/", "x", ".", "-", "\\", "+")
_MAX_TICKS = 20


def degree_histogram(
    given: Mapping[str, Mapping[str, Counts]], *, title: str | None = None, subtitle: str = ""
) -> go.Figure:
    """Draw one bar per in-degree, micro-batches side by side.

    Args:
        given: panel → name of a batch or micro-batch → its destinations by in-degree; at most seven names. The x axis
            title spells out the counts of the highest in-degree, which bars show only roughly.
        title: title of the figure.
        subtitle: smaller text below the title.

    Raises:
        ValueError: no panels, a panel without counts, or more names than colours.
    """
    names = list(dict.fromkeys(name for panel in given.values() for name in panel))
    _check(given, names)
    grid = PanelGrid(tuple(given))
    figure = grid.figure()
    for facet, panel in enumerate(given.values()):
        _draw_panel(figure, grid.cells(facet)[0], panel, names)
    merge_legend(figure)
    figure.update_layout(barmode="group", bargap=0.2, showlegend=len(names) > 1)
    return titled(figure, title, height=grid.height, subtitle=subtitle)


def _check(given: Mapping[str, Mapping[str, Counts]], names: list[str]) -> None:
    if not names or any(not counts for panel in given.values() for counts in panel.values()):
        raise ValueError("there are no in-degrees to draw; pass at least one panel, and counts for each name")
    if len(names) > len(PALETTE):
        raise ValueError(f"there are {len(names)} names, but {len(PALETTE)} colours; pass fewer micro-batches")


def _draw_panel(figure: go.Figure, cell: tuple[int, int], panel: Mapping[str, Counts], names: list[str]) -> None:
    row, col = cell
    for name, counts in panel.items():
        figure.add_trace(_trace(name, counts, names.index(name)), row=row, col=col)
    degrees = sorted({degree for counts in panel.values() for degree in counts})
    most = max(count for counts in panel.values() for count in counts.values())
    last = ", ".join(f"{counts.get(degrees[-1], 0):,}" for counts in panel.values())
    title, dtick = f"in-degree (at {degrees[-1]}: {last})", None if len(degrees) > _MAX_TICKS else 1
    figure.update_xaxes(title_text=title, tickformat="d", dtick=dtick, showgrid=False, row=row, col=col)
    figure.update_yaxes(title_text="destinations", range=[0, 1.05 * max(most, 1)], row=row, col=col)


def _trace(name: str, counts: Counts, place: int) -> go.Bar:
    degrees = sorted(counts)
    return go.Bar(
        x=degrees,
        y=[counts[degree] for degree in degrees],
        name=name,
        marker=hatched(PALETTE[place], _HATCHES[place]),
        hovertemplate=f"<b>{name}</b><br>in-degree %{{x}}: %{{y:,}} destinations<extra></extra>",
    )
