"""Histograms of in-degrees: how many destinations a block has of each."""

from collections.abc import Mapping

import plotly.graph_objects as go

from workbench.plots.bars import name_once
from workbench.plots.grid import Grid
from workbench.plots.style import PALETTE, titled

Counts = Mapping[int, int]
"""Destinations by in-degree."""

_PATTERNS = ("", "/", "x", ".", "-", "\\", "+")


def degree_bars(
    given: Mapping[str, Mapping[str, Counts]], *, title: str | None = None, subtitle: str = ""
) -> go.Figure:
    """A bar an in-degree, those of several parts side by side.

    Args:
        given: panel → name → destinations by in-degree; at most seven names. The last in-degree's numbers stand below
            the axis.
        title: of the figure.
        subtitle: below it.

    Raises:
        ValueError: no panels, a panel without counts, or more names than there are colours.
    """
    names = list(dict.fromkeys(name for panel in given.values() for name in panel))
    if not names or any(not counts for panel in given.values() for counts in panel.values()):
        raise ValueError("there are no in-degrees to draw; pass at least one panel, none without counts")
    if len(names) > len(PALETTE):
        raise ValueError(
            f"there are {len(names)} parts, the batch included; the picture has colours for {len(PALETTE)}"
        )
    grid = Grid(tuple(given), 1)
    figure = grid.figure()
    for place, panel in enumerate(given.values()):
        ((row, col),) = grid.places(place)
        for name, counts in panel.items():
            figure.add_trace(_bars(name, counts, names.index(name)), row=row, col=col)
        degrees = sorted({degree for counts in panel.values() for degree in counts})
        most = max(value for counts in panel.values() for value in counts.values())
        step = None if len(degrees) > 20 else 1
        title_x = f"in-degree (of {degrees[-1]}: {', '.join(_last_of(panel, degrees[-1]))})"
        figure.update_xaxes(title_text=title_x, tickformat="d", dtick=step, showgrid=False, row=row, col=col)
        figure.update_yaxes(title_text="destinations", range=[0, 1.05 * max(most, 1)], row=row, col=col)
    name_once(figure)
    figure.update_layout(barmode="group", bargap=0.2, showlegend=len(names) > 1)
    return titled(figure, title, height=grid.height, subtitle=subtitle)


def _last_of(panel: Mapping[str, Counts], degree: int) -> list[str]:
    """Numbers that the height of a bar tells only roughly."""
    return [f"{counts.get(degree, 0):,}" for counts in panel.values()]


def _bars(name: str, counts: Counts, place: int) -> go.Bar:
    degrees = sorted(counts)
    return go.Bar(
        x=degrees,
        y=[counts[degree] for degree in degrees],
        name=name,
        legendgroup=name,
        marker={
            "color": PALETTE[place],
            "pattern": {"shape": _PATTERNS[place], "fgcolor": "white", "fillmode": "overlay"},
        },
        hovertemplate=f"<b>{name}</b><br>in-degree %{{x}}: %{{y:,}} destinations<extra></extra>",
    )
