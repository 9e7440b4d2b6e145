"""Memory of several settings as bars, a panel a series, against the capacity that they share."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from workbench.core.units import format_bytes
from workbench.plots.grid import Grid
from workbench.plots.style import FAINT, INK, PALETTE, label, titled, traces_of, unit_of

_HEAD, _TEXT = 1.16, 0.1  # of a panel's highest: room above it; height of what is written on a bar
_COLORS = {"fits": PALETTE[0], "over the capacity": PALETTE[1], "estimated, not run": FAINT}
_LINE = {"color": INK, "width": 1.5, "dash": "dash"}
_SHAPES = {"fits": "", "over the capacity": "/", "estimated, not run": "."}


class Bar(NamedTuple):
    """One setting.

    Args:
        panel: that it stands in, and the panel's title; "" where there is one without.
        setting: named below it.
        nbytes: its height; 0 leaves the text alone.
        text: written on it; "": its height in the unit of its panel.
        run: whether it was measured; else `nbytes` is an estimate.
        about: more for the hover.
    """

    panel: str
    setting: str
    nbytes: int
    text: str = ""
    run: bool = True
    about: str = ""


def bars(
    given: Sequence[Bar],
    *,
    capacity_bytes: int | None = None,
    axes: Mapping[str, str] | None = None,
    title: str | None = None,
    subtitle: str = "",
) -> go.Figure:
    """A bar a setting; what is over the capacity, or was not run, differs by colour and pattern.

    Args:
        given: in order; a setting once in a panel.
        capacity_bytes: drawn as a line in all panels; None: none, and nothing is over it.
        axes: panel → title of its x axis.
        title: of the figure.
        subtitle: below it.

    Raises:
        ValueError: no bars.
    """
    if not given:
        raise ValueError("there are no bars to draw; run the experiment first")
    panels = list(dict.fromkeys(bar.panel for bar in given))
    grid = Grid(tuple(panels), 1)
    figure = grid.figure()
    for place, panel in enumerate(panels):
        here = [bar for bar in given if bar.panel == panel]
        ((row, col),) = grid.places(place)
        highest = max(*(bar.nbytes for bar in here), capacity_bytes or 0, 1)
        unit, factor = unit_of("peak_bytes", highest)
        for trace in _traces(here, capacity_bytes, factor, _TEXT * highest):
            figure.add_trace(trace, row=row, col=col)
        if capacity_bytes is not None:
            figure.add_hline(y=capacity_bytes / factor, line=_LINE, row=row, col=col)  # pyright: ignore[reportArgumentType]
        title_y, top = label("peak_bytes", unit), [0, _HEAD * highest / factor]
        figure.update_yaxes(title_text=title_y, range=top, row=row, col=col)
        order = [bar.setting for bar in here]
        axis = {"type": "category", "categoryorder": "array", "categoryarray": order, "showgrid": False}
        figure.update_xaxes(title_text=(axes or {}).get(panel, ""), range=[-0.6, len(order) - 0.4], row=row, col=col)
        figure.update_xaxes(axis, row=row, col=col)
    if capacity_bytes is not None:
        name = f"capacity {format_bytes(capacity_bytes)}"
        figure.add_trace(go.Scatter(x=[None], y=[None], mode="lines", line=_LINE, name=name), row=1, col=1)
    name_once(figure)
    figure.update_layout(barmode="overlay", bargap=0.35, showlegend=capacity_bytes is not None)
    return titled(figure, title, height=grid.height, subtitle=subtitle)


def _kind(bar: Bar, capacity_bytes: int | None) -> str:
    if not bar.run:
        return "estimated, not run"
    return "over the capacity" if capacity_bytes is not None and bar.nbytes > capacity_bytes else "fits"


def _traces(here: Sequence[Bar], capacity_bytes: int | None, factor: float, text_height: float) -> Iterator[go.Bar]:
    for kind in _COLORS:
        chosen = [bar for bar in here if _kind(bar, capacity_bytes) == kind]
        below = [0 <= (capacity_bytes or -1) - bar.nbytes < text_height for bar in chosen]  # the line would cross it
        if chosen:
            yield _trace(chosen, kind, factor).update(textposition=["inside" if b else "outside" for b in below])


def _trace(chosen: Sequence[Bar], kind: str, factor: float) -> go.Bar:
    about = [f"{format_bytes(bar.nbytes)} ({bar.nbytes:,} bytes){bar.about and '<br>'}{bar.about}" for bar in chosen]
    return go.Bar(
        x=[bar.setting for bar in chosen],
        y=[bar.nbytes / factor for bar in chosen],
        name=kind,
        legendgroup=kind,
        marker={
            "color": _COLORS[kind],
            "pattern": {"shape": _SHAPES[kind], "fgcolor": "white", "fillmode": "overlay"},
        },
        text=[bar.text or _short(bar.nbytes / factor) for bar in chosen],
        insidetextanchor="end",
        insidetextfont={"size": 12, "color": "white"},
        outsidetextfont={"size": 12, "color": INK},
        textangle=0,
        constraintext="inside",
        cliponaxis=False,
        customdata=about,
        hovertemplate=f"<b>%{{x}}</b>, {kind}<br>%{{customdata}}<extra></extra>",
    )


def _short(value: float) -> str:
    """Three digits.

    >>> _short(2.4733), _short(0.03527), _short(1023.4)
    ('2.47', '0.0353', '1,023')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def name_once(figure: go.Figure) -> None:
    """One legend entry a name; clicking it hides all its bars."""
    named: set[str] = set()
    for trace in traces_of(figure):
        trace.showlegend = trace.name not in named
        named.add(trace.name)
