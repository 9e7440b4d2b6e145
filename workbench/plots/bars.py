"""Bars: seconds by stage, histograms of in-degrees, and memory against a capacity, stacked by term, beside peaks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from workbench.core.units import format_bytes
from workbench.memory.plan import Plan
from workbench.partition.redundancy import Redundancy
from workbench.plots.axes import PanelGrid, bold, exact_bytes, label, unit_of
from workbench.plots.style import FAINT, INK, PALETTE, SKY, TERM_LOOKS, hatched, looks, merge_legend, titled

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
    """Draw the seconds of each stage as stacked bars with their total above; of a single stage, in colours by group.

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
    by_group = looks(dict.fromkeys(bar.group for bar in given)) if len(stages) == 1 else {}
    for place, panel in enumerate(panels):
        row, col = grid.cells(place)[0]
        here = [bar for bar in given if bar.panel == panel]
        tallest = max(sum(bar.seconds.values()) for bar in here)
        unit, factor = unit_of("step_seconds", tallest)
        for trace in _traces(here, stages, unit, factor):
            if by_group and trace.type == "bar":
                trace.marker.color = [by_group[bar.group].color for bar in here]
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


_TOP_OF_MEMORY, _TEXT = 1.16, 0.1  # of the tallest bar or the capacity: upper end of the y axis; height of a bar's text

_FITS, _OVER, _ESTIMATED = "fits", "over the capacity", "estimated, not run"

_MARKERS = {
    _FITS: hatched(PALETTE[0], ""),
    _OVER: hatched(PALETTE[1], "/"),
    _ESTIMATED: hatched(FAINT, "."),
}

_CAPACITY_LINE = {"color": INK, "width": 2, "dash": "dash"}

_MAX_MICRO_BATCH_TICKS = 16  # micro-batches whose numbers all fit below the axis


class Bar(NamedTuple):
    """One setting's memory.

    Args:
        panel: title of the panel that shows it; "" for an untitled one.
        setting: category on the x axis.
        nbytes: height in bytes; 0 shows the text alone.
        text: written at the top of the bar; "" for the height in the panel's unit.
        measured: False if `nbytes` is an estimate.
        hover: added to the hover text.
    """

    panel: str
    setting: str
    nbytes: int
    text: str = ""
    measured: bool = True
    hover: str = ""


def bars(
    given: Sequence[Bar],
    *,
    capacity_bytes: int | None = None,
    axes: Mapping[str, str] | None = None,
    title: str | None = None,
) -> go.Figure:
    """Draw one bar per setting; bars over the capacity, or not measured, differ in colour and hatch.

    Args:
        given: in drawing order; each setting once per panel.
        capacity_bytes: drawn as a line in every panel; None for no limit.
        axes: panel → title of its x axis.
        title: title of the figure.

    Raises:
        ValueError: `given` is empty.
    """
    if not given:
        raise ValueError("there are no bars to draw; run the experiment first")
    panels = list(dict.fromkeys(bar.panel for bar in given))
    grid = PanelGrid(tuple(panels))
    figure = grid.figure()
    for facet, panel in enumerate(panels):
        here = [bar for bar in given if bar.panel == panel]
        _draw_capacity_panel(figure, grid.cells(facet)[0], here, capacity_bytes, (axes or {}).get(panel, ""))
    if capacity_bytes is not None:
        name = f"capacity {format_bytes(capacity_bytes)}"
        figure.add_trace(go.Scatter(x=[None], y=[None], mode="lines", line=_CAPACITY_LINE, name=name), row=1, col=1)
    merge_legend(figure)
    figure.update_layout(barmode="overlay", bargap=0.35, showlegend=capacity_bytes is not None)
    return titled(figure, title, height=grid.height)


def _draw_capacity_panel(
    figure: go.Figure, cell: tuple[int, int], here: Sequence[Bar], capacity_bytes: int | None, axis: str
) -> None:
    row, col = cell
    highest = max(*(bar.nbytes for bar in here), capacity_bytes or 0, 1)
    unit, factor = unit_of("peak_bytes", highest)
    for trace in _traces_by_kind(here, capacity_bytes, factor, _TEXT * highest):
        figure.add_trace(trace, row=row, col=col)
    if capacity_bytes is not None:
        figure.add_hline(y=capacity_bytes / factor, line=_CAPACITY_LINE, row=row, col=col)  # pyright: ignore[reportArgumentType]
    top = _TOP_OF_MEMORY * highest / factor
    figure.update_yaxes(title_text=label("peak_bytes", unit), range=[0, top], row=row, col=col)
    order = [bar.setting for bar in here]
    categories = {"type": "category", "categoryorder": "array", "categoryarray": order, "showgrid": False}
    figure.update_xaxes(categories, title_text=axis, range=[-0.6, len(order) - 0.4], row=row, col=col)


def _kind(bar: Bar, capacity_bytes: int | None) -> str:
    if not bar.measured:
        return _ESTIMATED
    return _OVER if capacity_bytes is not None and bar.nbytes > capacity_bytes else _FITS


def _traces_by_kind(
    here: Sequence[Bar], capacity_bytes: int | None, factor: float, text_bytes: float
) -> Iterator[go.Bar]:
    for kind in _MARKERS:
        chosen = [bar for bar in here if _kind(bar, capacity_bytes) == kind]
        # The text moves into a bar that ends just below the capacity, where the line would cross it.
        crossed = [0 <= (capacity_bytes or -1) - bar.nbytes < text_bytes for bar in chosen]
        if chosen:
            yield _kind_trace(chosen, kind, factor).update(textposition=["inside" if c else "outside" for c in crossed])


def _kind_trace(chosen: Sequence[Bar], kind: str, factor: float) -> go.Bar:
    return go.Bar(
        x=[bar.setting for bar in chosen],
        y=[bar.nbytes / factor for bar in chosen],
        name=kind,
        marker=_MARKERS[kind],
        text=[bar.text or _three_digits(bar.nbytes / factor) for bar in chosen],
        insidetextanchor="end",
        insidetextfont={"size": 12, "color": "white"},
        outsidetextfont={"size": 12, "color": INK},
        textangle=0,
        constraintext="inside",
        cliponaxis=False,
        customdata=["<br>".join(filter(None, (exact_bytes(bar.nbytes), bar.hover))) for bar in chosen],
        hovertemplate=f"<b>%{{x}}</b>, {kind}<br>%{{customdata}}<extra></extra>",
    )


def _three_digits(value: float) -> str:
    """Round to three digits.

    >>> _three_digits(2.4733), _three_digits(0.03527), _three_digits(1023.4)
    ('2.47', '0.0353', '1,023')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def memory_bars(
    part_peak_bytes: Sequence[int],
    *,
    capacity_bytes: int | None = None,
    redundancy: Redundancy | None = None,
    title: str | None = None,
) -> go.Figure:
    """Draw the peak memory of each micro-batch; bars over the capacity differ in colour and hatch.

    Args:
        part_peak_bytes: peak of each micro-batch in bytes, in execution order.
        capacity_bytes: drawn as a line; None for no limit.
        redundancy: input nodes of the micro-batches, summarized below the title.
        title: title of the figure; None for the number of micro-batches.

    Raises:
        ValueError: `part_peak_bytes` is empty.
    """
    if not len(part_peak_bytes):
        raise ValueError("there are no micro-batches to draw; pass at least one peak")
    count = len(part_peak_bytes)
    unit, factor = unit_of("peak_bytes", max(*part_peak_bytes, capacity_bytes or 0, 0))
    figure = go.Figure(list(_peak_traces(part_peak_bytes, capacity_bytes, factor)))
    if capacity_bytes is not None:
        _draw_capacity(figure, capacity_bytes, factor)
    figure.update_xaxes(title_text="micro-batch", tickformat="d", dtick=None if count > _MAX_MICRO_BATCH_TICKS else 1)
    figure.update_yaxes(title_text=label("peak_bytes", unit), rangemode="tozero")
    figure.update_layout(bargap=0.25, showlegend=capacity_bytes is not None)
    title = title or f"Peak memory of {count} micro-batch{'es' * (count > 1)}"
    return titled(figure, title, subtitle=_summary(part_peak_bytes, redundancy), height=400)


def memory_bars_beside(
    cuts: Mapping[str, tuple[Sequence[int], Redundancy]],
    *,
    whole_bytes: int,
    capacity_bytes: int | None = None,
    title: str | None = None,
) -> go.Figure:
    """Draw the micro-batches' peaks of several cuts of a batch side by side, below that of the whole batch.

    The axis depends on the whole batch alone, so that figures of different cuts can be compared.

    Args:
        cuts: name → peak of each micro-batch in bytes, in execution order, and their input nodes.
        whole_bytes: peak of the whole batch, drawn as a dotted line.
        capacity_bytes: drawn as a line; None for no limit.
        title: title of the figure.
    """
    unit, factor = unit_of("peak_bytes", max(whole_bytes, capacity_bytes or 0))
    told = [f"largest {format_bytes(max(p))} · input nodes {r.ratio:.2f} × the batch's" for p, r in cuts.values()]
    names = [f"{name}<br><sup>{text}</sup>" for name, text in zip(cuts, told, strict=True)]
    figure = make_subplots(1, len(cuts), shared_yaxes=True, subplot_titles=names, horizontal_spacing=0.04)
    for place, (peaks, _) in enumerate(cuts.values(), 1):
        for trace in _peak_traces(peaks, capacity_bytes, factor):
            figure.add_trace(trace, row=1, col=place)
        dtick = None if len(peaks) > _MAX_MICRO_BATCH_TICKS else 1
        figure.update_xaxes(title_text="micro-batch", tickformat="d", dtick=dtick, row=1, col=place)
    whole = {"text": f"whole batch {format_bytes(whole_bytes)}", "font": {"size": 13}}
    draw_line: Any = figure.add_hline
    draw_line(y=whole_bytes / factor, line={"color": INK, "dash": "dot"}, annotation=whole)
    if capacity_bytes is not None:
        _draw_capacity(figure, capacity_bytes, factor)
    top = _TOP_OF_MEMORY * max(whole_bytes, capacity_bytes or 0) / factor
    figure.update_yaxes(range=[0, top])
    figure.update_yaxes(title_text=label("peak_bytes", unit), col=1)
    merge_legend(figure)
    figure.update_layout(bargap=0.25, showlegend=capacity_bytes is not None)
    return titled(figure, title, height=440)


def _draw_capacity(figure: go.Figure, capacity_bytes: int, factor: float) -> None:
    """Draw the capacity as a dashed line with its value."""
    text = f"capacity {format_bytes(capacity_bytes)}"
    annotation: Any = {"text": text, "font": {"size": 13}, "bgcolor": "rgba(255, 255, 255, 0.8)"}
    y = capacity_bytes / factor
    figure.add_hline(y=y, line=_CAPACITY_LINE, annotation=annotation, annotation_position="top left")


def _peak_traces(peaks: Sequence[int], capacity_bytes: int | None, factor: float) -> Iterator[go.Bar]:
    for kind in (_FITS, _OVER):
        chosen = [i for i, peak in enumerate(peaks) if _kind(Bar("", "", peak), capacity_bytes) == kind]
        if chosen:
            yield go.Bar(
                x=chosen,
                y=[peaks[i] / factor for i in chosen],
                name=kind,
                marker=_MARKERS[kind],
                customdata=[exact_bytes(peaks[i]) for i in chosen],
                hovertemplate="micro-batch %{x}<br>peak memory: %{customdata}<extra></extra>",
            )


def _summary(peaks: Sequence[int], redundancy: Redundancy | None) -> str:
    parts = [f"largest {format_bytes(max(peaks))}"]
    if redundancy is not None:
        share = redundancy.largest / max(1, redundancy.full_inputs)
        parts.append(f"input nodes {redundancy.ratio:.2f} × the batch's")
        parts.append(f"largest part {share:.0%} of the batch's")
    return " · ".join(parts)


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
        _draw_term_panel(figure, row, [bar for bar in bars if bar.panel == panel])
    several = len({bar.group for bar in bars}) > 1
    figure.update_xaxes(type="multicategory", ticks="", showdividers=several, dividercolor=FAINT)
    figure.update_annotations(font_size=13)
    merge_legend(figure)
    figure.update_layout(barmode="stack", bargap=0.3, legend_traceorder="normal")
    return titled(figure, title, subtitle=subtitle, height=height + _MARGINS).update_layout(margin_b=124)


def _draw_term_panel(figure: go.Figure, row: int, bars: Sequence[Component]) -> None:
    largest = max(bar.total_bytes for bar in bars)
    unit, factor = unit_of("peak_bytes", largest)
    figure.add_traces(_component_traces(bars, factor), rows=row, cols=1)
    top = 1.1 * largest / factor  # room for the totals
    figure.update_yaxes(title_text=label("peak_bytes", unit), range=[0, top], row=row, col=1)


def _component_traces(bars: Sequence[Component], factor: float) -> list[Any]:
    estimated, measured = ([b for b in bars if (b.terms is None) is only_total] for only_total in (False, True))
    traces = term_bars(_categories(estimated), [b.terms or {} for b in estimated], factor, shares=True)
    heights, text = [b.total_bytes / factor for b in bars], [format_bytes(b.total_bytes) for b in bars]
    totals = text_above(_categories(bars), heights, text)
    return [*traces, *([_hollow(measured, factor)] if measured else []), totals]


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


def plan_bars(plan: Plan) -> go.Figure:
    """Draw the estimated peak memory of each micro-batch by term, with the capacity as a line.

    More than 64 micro-batches are sorted by peak memory.

    Args:
        plan: result of `workbench.plan_micro_batches`.

    Raises:
        ValueError: the plan has no micro-batches.
    """
    if not plan.num_parts:
        raise ValueError("the plan has no micro-batches to draw; plan for a batch with seeds")
    estimates, axis = plan.estimates, "micro-batch"
    if plan.num_parts > _DISTINCT:
        estimates = sorted(estimates, key=lambda estimate: -estimate.peak_bytes)
        axis = "micro-batches, largest first"
    highest = max(plan.peak_bytes, plan.memory_bytes)
    unit, factor = unit_of("peak_bytes", highest)
    figure = go.Figure(term_bars([*range(plan.num_parts)], [estimate.terms for estimate in estimates], factor))
    _draw_capacity(figure, plan.memory_bytes, factor)
    gap = 0.25 if plan.num_parts <= _LABELLED else 0.05 if plan.num_parts <= _DISTINCT else 0.0
    figure.update_layout(barmode="stack", bargap=gap, showlegend=True, legend_traceorder="normal")
    dtick = 1 if plan.num_parts <= _LABELLED else None
    figure.update_xaxes(title_text=axis, tickformat="d", dtick=dtick, range=[-0.6, plan.num_parts - 0.4])
    top = 1.12 * highest / factor  # room for the capacity's annotation
    figure.update_yaxes(title_text=f"estimated {label('peak_bytes', unit)}", range=[0, top])
    return titled(figure, _plan_title(plan), subtitle=_plan_subtitle(plan), height=460).update_layout(margin_b=104)


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
