"""A plan of micro-batches: what each needs by term against the capacity, and the numbers of parts tried on the way."""

from collections.abc import Sequence

import plotly.graph_objects as go

from workbench.core.units import format_bytes
from workbench.memory.plan import Plan
from workbench.plots.style import INK, PALETTE, Look, label, titled, unit_of
from workbench.plots.terms import term_bars

_NAMED = 16  # bars that all have room for their number
_ORDERED = 64  # bars that can still be told apart


def plan_bars(plan: Plan, *, title: str | None = None) -> go.Figure:
    """A stacked bar for every micro-batch, what its step is expected to need by term, below the line of the capacity.

    More than 64 are ordered by what they need.

    Args:
        plan: of `workbench.plan_micro_batches`.
        title: None: says into how many parts the batch is cut, and what the largest needs.

    Raises:
        ValueError: a plan without parts.
    """
    if not plan.num_parts:
        raise ValueError("the plan has no micro-batches to draw; plan for a batch with seeds")
    estimates, about, gap, dtick = plan.estimates, "micro-batch", 0.25, 1
    if plan.num_parts > _NAMED:
        gap, dtick = 0.05, None
    if plan.num_parts > _ORDERED:
        estimates = sorted(estimates, key=lambda estimate: -estimate.peak_bytes)
        about, gap = "micro-batches, those that need most first", 0.0
    top = max(plan.peak_bytes, plan.capacity_bytes)
    name, factor = unit_of("peak_bytes", top)
    figure = go.Figure(term_bars([*range(plan.num_parts)], [estimate.terms for estimate in estimates], factor))
    _draw_capacity(figure, plan, factor)
    figure.update_layout(barmode="stack", bargap=gap, showlegend=True, legend_traceorder="normal")
    figure.update_xaxes(title_text=about, tickformat="d", dtick=dtick, range=[-0.6, plan.num_parts - 0.4])
    room = [0, 1.12 * top / factor]  # for the line's name
    figure.update_yaxes(title_text=f"expected {label('peak_bytes', name)}", range=room)
    return titled(figure, title or _found(plan), subtitle=_said(plan), height=460).update_layout(margin_b=104)


def plan_search(plan: Plan) -> go.Figure:
    """The numbers of parts that were tried, one after the other, and which of them fit.

    Args:
        plan: of `workbench.plan_micro_batches`.

    Raises:
        ValueError: a plan for which nothing was tried.
    """
    if not plan.tried:
        raise ValueError("the plan tried no number of parts; plan for a batch with seeds")
    fit = {(k, needed) for k, needed in plan.tried if k >= plan.num_parts and needed <= plan.capacity_bytes}
    tries = [(place, *tried) for place, tried in enumerate(plan.tried, 1)]
    figure = go.Figure(
        [
            _tries([one for one in tries if (one[1:] in fit) is fits], look)
            for fits, look in ((True, _FITS), (False, _TOO_LARGE))
        ]
    )
    figure.update_xaxes(title_text="try", tickformat="d", dtick=1, range=[0.5, len(tries) + 0.5])
    most = max(k for k, _ in plan.tried)
    figure.update_yaxes(title_text=label("num_parts"), range=[0, 1.15 * most])  # room for the last number
    found = f"{plan.num_parts} found in {len(tries)} tries" if len(tries) > 1 else "the whole batch fits"
    return titled(figure, f"{found[0].upper()}{found[1:]}, none of them a training step", height=380)


_FITS = Look("fits", PALETTE[0], "solid", "circle")
_TOO_LARGE = Look("its largest part is too large", PALETTE[1], "solid", "x")


def _tries(tries: Sequence[tuple[int, int, int]], look: Look) -> go.Scatter:
    return go.Scatter(
        x=[place for place, _, _ in tries],
        y=[number for _, number, _ in tries],
        name=look.name,
        showlegend=True,
        mode="markers+text",
        marker={"size": 10, "color": look.color, "symbol": look.symbol},
        text=[str(number) for _, number, _ in tries],
        textposition="top center",
        customdata=[f"{format_bytes(need)} ({need:,} bytes)" for _, _, need in tries],
        hovertemplate="K = %{y}: %{customdata}<extra></extra>",
    )


def _draw_capacity(figure: go.Figure, plan: Plan, factor: float) -> None:
    figure.add_hline(
        y=plan.capacity_bytes / factor,
        line={"color": INK, "width": 2, "dash": "dash"},
        annotation={
            "text": f"capacity {format_bytes(plan.capacity_bytes)}",
            "font": {"size": 13},
            "bgcolor": "rgba(255, 255, 255, 0.8)",
        },
        annotation_position="top left",
    )


def _found(plan: Plan) -> str:
    peak = format_bytes(plan.peak_bytes)
    if plan.num_parts == 1:
        return f"The batch fits whole: its step is expected to need {peak}"
    return f"The batch fits as {plan.num_parts} micro-batches: the largest is expected to need {peak}"


def _said(plan: Plan) -> str:
    largest = plan.redundancy.largest / max(1, plan.redundancy.full_inputs)
    return (
        f"method {plan.method_name} · input nodes {plan.redundancy.ratio:.2f} × the batch's, "
        f"largest part's {largest:.0%} · planned in {sum(plan.seconds.values()):.2f} s"
    )
