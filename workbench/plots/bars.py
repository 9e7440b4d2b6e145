"""Bars of seconds by stage, stacked and grouped, and histograms of in-degrees."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from workbench.plots.axes import PanelGrid, label, unit_of
from workbench.plots.style import FAINT, PALETTE, hatched, merge_legend, titled

_TOP = 1.15  # of the tallest bar: room for the totals
_SMALL = 11  # font size of the names, to fit four below a narrow panel
_NAMES = 60  # pixels: two rows of names below the axis
_HATCHES = ("", "/", "x", ".", "\\", "-", "|")


class StageBar(NamedTuple):
    """One bar.

    Args:
        panel: title of the panel that shows it; "" for an untitled one.
        group: outer category on the x axis, shared by neighbouring bars.
        name: inner category on the x axis.
        seconds: stage → seconds, bottom to top.
    """

    panel: str
    group: str
    name: str
    seconds: Mapping[str, float]


def stage_bars(given: Sequence[StageBar], *, axis: str, title: str, subtitle: str = "") -> go.Figure:
    """Draw the seconds of each stage as stacked bars with their total above.

    Args:
        given: in drawing order; bars of one panel, and within it of one group, are adjacent.
        axis: what the seconds are, such as "modelled time".
        title: title of the figure.
        subtitle: smaller text below the title.

    Raises:
        ValueError: `given` is empty.
    """
    if not given:
        raise ValueError("there are no bars to draw; run the experiment first")
    panels = list(dict.fromkeys(bar.panel for bar in given))
    stages = list(dict.fromkeys(stage for bar in given for stage in bar.seconds))
    grid = PanelGrid(tuple(panels))
    figure = grid.figure()
    for place, panel in enumerate(panels):
        row, col = grid.cells(place)[0]
        here = [bar for bar in given if bar.panel == panel]
        tallest = max(sum(bar.seconds.values()) for bar in here)
        unit, factor = unit_of("step_seconds", tallest)
        for trace in _traces(here, stages, unit, factor):
            figure.add_trace(trace, row=row, col=col)
        top = _TOP * tallest / factor
        figure.update_yaxes(title_text=f"{axis} ({unit})", range=[0, top], row=row, col=col)
    figure.update_xaxes(
        type="multicategory", ticks="", showgrid=False, dividercolor=FAINT, tickangle=0, tickfont_size=_SMALL
    )
    merge_legend(figure)
    figure.update_layout(barmode="stack", bargap=0.3, legend_traceorder="normal")
    return titled(figure, title, subtitle=subtitle, height=grid.height + _NAMES)


def _traces(here: Sequence[StageBar], stages: Sequence[str], unit: str, factor: float) -> list[Any]:
    x = [[bar.group for bar in here], [bar.name for bar in here]]
    bars = [
        go.Bar(
            x=x,
            y=[bar.seconds.get(stage, 0.0) / factor for bar in here],
            name=label(stage),
            marker=hatched(PALETTE[place % len(PALETTE)], _HATCHES[place % len(_HATCHES)], size=6, solidity=0.3),
            hovertemplate=f"<b>{label(stage)}</b><br>%{{y:.3~g}} {unit}<extra>%{{x}}</extra>",
        )
        for place, stage in enumerate(stages)
    ]
    totals = [sum(bar.seconds.values()) / factor for bar in here]
    return [*bars, text_above(x, totals, [f"{total:.3g}" for total in totals])]


def text_above(x: Sequence[Any], y: Sequence[float], text: Sequence[str]) -> go.Scatter:
    """A trace of texts above the bars of a stack, such as their totals.

    Args:
        x: position of each bar; for grouped bars two lists, outer and inner categories.
        y: height of each bar, in the unit of the axis.
        text: one per bar.
    """
    place: Any = {"mode": "text", "textposition": "top center", "cliponaxis": False, "hoverinfo": "skip", "name": ""}
    return go.Scatter(x=x, y=y, text=text, **place)


Counts = Mapping[int, int]
"""In-degree → number of destinations."""

_DEGREE_HATCHES = ("", "/", "x", ".", "-", "\\", "+")

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
        marker=hatched(PALETTE[place], _DEGREE_HATCHES[place]),
        hovertemplate=f"<b>{name}</b><br>in-degree %{{x}}: %{{y:,}} destinations<extra></extra>",
    )
