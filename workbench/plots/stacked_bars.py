"""Stacked bars of memory by term: estimates beside measured peaks, and the micro-batches of a plan."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.core.units import format_bytes
from workbench.memory.plan import Plan
from workbench.plots.axes import exact_bytes, label, unit_of
from workbench.plots.bars import draw_capacity
from workbench.plots.layout import bold
from workbench.plots.style import FAINT, INK, SKY, TERM_LOOKS, hatched, merge_legend, titled

_PANEL, _GAP, _MARGINS = 300, 96, 170  # pixels: panel; names and title between panels; title above and legend below
_MIN_SHARE = 0.08  # of a bar: room enough for its percentage
_LABELLED, _DISTINCT = 16, 64  # micro-batches whose numbers all fit below the axis; that can be told apart


class Component(NamedTuple):
    """One bar.

    Args:
        panel: title of the panel that shows it; "" for an untitled one.
        group: outer category on the x axis, shared by neighbouring bars.
        name: inner category on the x axis.
        terms: name in `workbench.memory.estimate.TERMS` → bytes; None if only the total is known (a measured peak).
        total_bytes: height of the bar in bytes.
    """

    panel: str
    group: str
    name: str
    terms: Mapping[str, int] | None
    total_bytes: int


def component_bars(bars: Sequence[Component], *, title: str, subtitle: str = "") -> go.Figure:
    """Draw estimates as stacked bars with the share of each term, measured peaks as hollow bars.

    Args:
        bars: in drawing order; bars of one panel, and within it of one group, are adjacent.
        title: title of the figure.
        subtitle: smaller text below the title.

    Raises:
        ValueError: `bars` is empty.
    """
    if not bars:
        raise ValueError("there are no bars to draw; pass at least one")
    panels = list(dict.fromkeys(bar.panel for bar in bars))
    height = len(panels) * _PANEL
    spacing = _GAP / height if len(panels) > 1 else None
    figure = make_subplots(len(panels), 1, subplot_titles=[*map(bold, panels)], vertical_spacing=spacing)
    for row, panel in enumerate(panels, 1):
        _draw_panel(figure, row, [bar for bar in bars if bar.panel == panel])
    several = len({bar.group for bar in bars}) > 1
    figure.update_xaxes(type="multicategory", ticks="", showdividers=several, dividercolor=FAINT)
    figure.update_annotations(font_size=13)
    merge_legend(figure)
    figure.update_layout(barmode="stack", bargap=0.3, legend_traceorder="normal")
    return titled(figure, title, subtitle=subtitle, height=height + _MARGINS).update_layout(margin_b=124)


def _draw_panel(figure: go.Figure, row: int, bars: Sequence[Component]) -> None:
    largest = max(bar.total_bytes for bar in bars)
    unit, factor = unit_of("peak_bytes", largest)
    figure.add_traces(_traces(bars, factor), rows=row, cols=1)
    top = 1.1 * largest / factor  # room for the totals
    figure.update_yaxes(title_text=label("peak_bytes", unit), range=[0, top], row=row, col=1)


def _traces(bars: Sequence[Component], factor: float) -> list[Any]:
    estimated, measured = ([b for b in bars if (b.terms is None) is only_total] for only_total in (False, True))
    traces = term_bars(_categories(estimated), [b.terms or {} for b in estimated], factor, shares=True)
    return [*traces, *([_hollow(measured, factor)] if measured else []), _totals(bars, factor)]


def _categories(bars: Sequence[Component]) -> list[list[str]]:
    return [[bar.group for bar in bars], [bar.name for bar in bars]]


def _hollow(bars: Sequence[Component], factor: float) -> go.Bar:
    return go.Bar(
        x=_categories(bars),
        y=[bar.total_bytes / factor for bar in bars],
        name="measured",
        marker={"color": "white", "line": {"color": INK, "width": 2}},
        customdata=[exact_bytes(bar.total_bytes) for bar in bars],
        hovertemplate="<b>measured</b><br>%{customdata}<extra></extra>",
        legendrank=1001,  # after the terms, whose rank is 1000
    )


def _totals(bars: Sequence[Component], factor: float) -> go.Scatter:
    """The total above every bar."""
    return go.Scatter(
        x=_categories(bars),
        y=[bar.total_bytes / factor for bar in bars],
        mode="text",
        text=[format_bytes(bar.total_bytes) for bar in bars],
        textposition="top center",
        cliponaxis=False,
        hoverinfo="skip",
        name="",
    )


def term_bars(x: Sequence[Any], bars: Sequence[Mapping[str, int]], factor: float, *, shares: bool = False) -> list[Any]:
    """Traces of stacked bars, one trace per term; terms that are 0 in all bars are left out.

    Args:
        x: position of each bar; for grouped bars two lists, outer and inner categories.
        bars: for each bar the bytes by term.
        factor: bytes per unit of the y axis.
        shares: write each term's percentage into the bar, if it fits.
    """
    totals = [max(1, sum(terms.values())) for terms in bars]
    present = [term for term in TERM_LOOKS if any(terms.get(term, 0) for terms in bars)]
    return [_term_trace(x, term, [terms.get(term, 0) for terms in bars], totals, factor, shares) for term in present]


def _term_trace(
    x: Sequence[Any], term: str, sizes: Sequence[int], totals: Sequence[int], factor: float, shares: bool
) -> go.Bar:
    look = TERM_LOOKS[term]
    parts = [size / total for size, total in zip(sizes, totals, strict=True)]
    return go.Bar(
        x=x,
        y=[size / factor for size in sizes],
        name=look.name,
        marker=hatched(look.color, look.hatch, size=6, solidity=0.35) | {"line": {"width": 0}},
        text=[f"{part:.0%}" if shares and part >= _MIN_SHARE else "" for part in parts],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        textfont={"size": 13, "color": "white" if look.color != SKY else "black"},
        constraintext="none",
        customdata=[f"{exact_bytes(size)}, {part:.1%}" for size, part in zip(sizes, parts, strict=True)],
        hovertemplate=f"<b>{look.name}</b><br>%{{customdata}}<extra>%{{x}}</extra>",
    )


def plan_bars(plan: Plan, *, title: str | None = None) -> go.Figure:
    """Draw the estimated peak memory of each micro-batch by term, with the capacity as a line.

    More than 64 micro-batches are sorted by peak memory.

    Args:
        plan: result of `workbench.plan_micro_batches`.
        title: title of the figure; None for the number of micro-batches and the largest peak.

    Raises:
        ValueError: the plan has no micro-batches.
    """
    if not plan.num_parts:
        raise ValueError("the plan has no micro-batches to draw; plan for a batch with seeds")
    estimates, axis = plan.estimates, "micro-batch"
    if plan.num_parts > _DISTINCT:
        estimates = sorted(estimates, key=lambda estimate: -estimate.peak_bytes)
        axis = "micro-batches, largest first"
    highest = max(plan.peak_bytes, plan.capacity_bytes)
    unit, factor = unit_of("peak_bytes", highest)
    figure = go.Figure(term_bars([*range(plan.num_parts)], [estimate.terms for estimate in estimates], factor))
    draw_capacity(figure, plan.capacity_bytes, factor)
    gap = 0.25 if plan.num_parts <= _LABELLED else 0.05 if plan.num_parts <= _DISTINCT else 0.0
    figure.update_layout(barmode="stack", bargap=gap, showlegend=True, legend_traceorder="normal")
    dtick = 1 if plan.num_parts <= _LABELLED else None
    figure.update_xaxes(title_text=axis, tickformat="d", dtick=dtick, range=[-0.6, plan.num_parts - 0.4])
    top = 1.12 * highest / factor  # room for the capacity's annotation
    figure.update_yaxes(title_text=f"estimated {label('peak_bytes', unit)}", range=[0, top])
    title = title or _plan_title(plan)
    return titled(figure, title, subtitle=_plan_subtitle(plan), height=460).update_layout(margin_b=104)


def _plan_title(plan: Plan) -> str:
    peak = format_bytes(plan.peak_bytes)
    if plan.num_parts == 1:
        return f"The whole batch fits: estimated peak memory {peak}"
    return f"The batch fits as {plan.num_parts} micro-batches: estimated peak memory of the largest {peak}"


def _plan_subtitle(plan: Plan) -> str:
    largest = plan.redundancy.largest / max(1, plan.redundancy.full_inputs)
    return (
        f"method {plan.method_name} · input nodes {plan.redundancy.ratio:.2f} × the batch's, "
        f"largest part {largest:.0%} of the batch's · planned in {sum(plan.seconds.values()):.2f} s"
    )
