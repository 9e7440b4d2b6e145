"""Memory by component: stacked bars of what estimates count, beside the measured peak."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.core.units import format_bytes
from workbench.plots.style import FAINT, INK, label, titled, traces_of, unit_of
from workbench.plots.terms import term_bars

_PANEL, _BETWEEN, _AROUND = 300, 96, 170  # pixels: a panel; names and title between; title above, legend below


class Component(NamedTuple):
    """One bar.

    Args:
        panel: that it stands in, and the panel's title; "" where there is one without.
        group: named below it, with the bars of the same group beside it.
        name: of the bar.
        terms: bytes by term, of `workbench.memory.record.TERMS`; None: only the total is known, as when measured.
        total_bytes: of the bar.
    """

    panel: str
    group: str
    name: str
    terms: Mapping[str, int] | None
    total_bytes: int


def component_bars(bars: Sequence[Component], *, title: str, subtitle: str = "") -> go.Figure:
    """A stacked bar for every estimate, with the share of each component, and a hollow one for what was measured.

    Args:
        bars: in order; those of a panel one after the other, and in it those of a group.
        title: of the figure.
        subtitle: below it.

    Raises:
        ValueError: no bars.
    """
    if not bars:
        raise ValueError("there are no bars to draw; pass at least one")
    panels = list(dict.fromkeys(bar.panel for bar in bars))
    height = len(panels) * _PANEL
    figure = make_subplots(
        len(panels),
        1,
        subplot_titles=[f"<b>{p}</b>" * bool(p) for p in panels],
        vertical_spacing=_BETWEEN / height if len(panels) > 1 else None,
    )
    for row, panel in enumerate(panels, 1):
        here = [bar for bar in bars if bar.panel == panel]
        name, factor = unit_of("peak_bytes", max(bar.total_bytes for bar in here))
        figure.add_traces(_traces(here, factor), rows=row, cols=1)
        top = 1.1 * max(bar.total_bytes for bar in here) / factor  # room for the totals
        figure.update_yaxes(title_text=label("peak_bytes", name), range=[0, top], row=row, col=1)
    several = len({bar.group for bar in bars}) > 1
    figure.update_xaxes(type="multicategory", ticks="", showdividers=several, dividercolor=FAINT)
    figure.update_annotations(font_size=13)
    _name_once(figure)
    figure.update_layout(barmode="stack", bargap=0.3, legend_traceorder="normal")
    return titled(figure, title, subtitle=subtitle, height=height + _AROUND).update_layout(margin_b=124)


def _traces(bars: Sequence[Component], factor: float) -> list[Any]:
    counted, measured = ([b for b in bars if (b.terms is None) is whole] for whole in (False, True))
    traces = term_bars(_places(counted), [b.terms or {} for b in counted], factor, shares=True)
    return [*traces, *([_hollow(measured, factor)] if measured else []), _totals(bars, factor)]


def _places(bars: Sequence[Component]) -> list[list[str]]:
    return [[bar.group for bar in bars], [bar.name for bar in bars]]


def _hollow(bars: Sequence[Component], factor: float) -> go.Bar:
    return go.Bar(
        x=_places(bars),
        y=[bar.total_bytes / factor for bar in bars],
        name="measured",
        marker={"color": "white", "line": {"color": INK, "width": 2}},
        customdata=[f"{format_bytes(bar.total_bytes)} ({bar.total_bytes:,} bytes)" for bar in bars],
        hovertemplate="<b>measured</b><br>%{customdata}<extra></extra>",
        legendrank=1001,  # after the terms, of 1000
    )


def _totals(bars: Sequence[Component], factor: float) -> go.Scatter:
    """The total above every bar."""
    return go.Scatter(
        x=_places(bars),
        y=[bar.total_bytes / factor for bar in bars],
        mode="text",
        text=[format_bytes(bar.total_bytes) for bar in bars],
        textposition="top center",
        cliponaxis=False,
        hoverinfo="skip",
        name="",
    )


def _name_once(figure: go.Figure) -> None:
    """One legend entry a name; clicking it hides all its bars."""
    named = {""}
    for trace in traces_of(figure):
        trace.update(showlegend=trace.name not in named, legendgroup=trace.name)
        named.add(trace.name)
