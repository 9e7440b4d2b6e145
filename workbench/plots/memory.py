"""Memory bars: what each micro-batch takes, against a budget."""

from collections.abc import Sequence

import plotly.graph_objects as go

from workbench.core.units import format_bytes
from workbench.partition.redundancy import Redundancy
from workbench.plots.style import INK, PALETTE, label, titled, unit_of

_WITHIN, _OVER = PALETTE[0], PALETTE[1]


def memory_bars(
    part_peak_bytes: Sequence[int],
    *,
    budget_bytes: int | None = None,
    redundancy: Redundancy | None = None,
    title: str | None = None,
) -> go.Figure:
    """A bar for every micro-batch's peak memory; those over the budget are hatched and of another colour.

    Args:
        part_peak_bytes: peaks, in the order of the micro-batches.
        budget_bytes: drawn as a line; None: none.
        redundancy: said below the title.
        title: None: says how many micro-batches there are.

    Raises:
        ValueError: no micro-batches.
    """
    if not len(part_peak_bytes):
        raise ValueError("there are no micro-batches to draw; pass at least one peak")
    name, factor = unit_of("peak_bytes", max(*part_peak_bytes, budget_bytes or 0, 0))
    figure = go.Figure()
    for over in (False, True):
        chosen = [
            (i, p) for i, p in enumerate(part_peak_bytes) if (budget_bytes is not None and p > budget_bytes) == over
        ]
        if chosen:
            figure.add_trace(_bars(chosen, over, factor))
    if budget_bytes is not None:
        _draw_budget(figure, budget_bytes, factor)
    figure.update_xaxes(title_text="micro-batch", tickformat="d", dtick=None if len(part_peak_bytes) > 16 else 1)
    figure.update_yaxes(title_text=label("peak_bytes", name), rangemode="tozero")
    count = len(part_peak_bytes)
    title = title or f"Peak memory of {count} micro-batch{'es' * (count > 1)}"
    figure.update_layout(bargap=0.25, showlegend=budget_bytes is not None)
    return titled(figure, title, subtitle=_said(part_peak_bytes, redundancy), height=400)


def _bars(chosen: Sequence[tuple[int, int]], over: bool, factor: float) -> go.Bar:
    return go.Bar(
        x=[place for place, _ in chosen],
        y=[peak / factor for _, peak in chosen],
        name="over the budget" if over else "within the budget",
        marker={
            "color": _OVER if over else _WITHIN,
            "pattern": {"shape": "/" if over else "", "fgcolor": "white", "fillmode": "overlay"},
        },
        customdata=[f"{format_bytes(peak)} ({peak:,} bytes)" for _, peak in chosen],
        hovertemplate="micro-batch %{x}<br>peak memory: %{customdata}<extra></extra>",
    )


def _draw_budget(figure: go.Figure, budget_bytes: int, factor: float) -> None:
    figure.add_hline(
        y=budget_bytes / factor,
        line={"color": INK, "width": 2, "dash": "dash"},
        annotation={
            "text": f"budget {format_bytes(budget_bytes)}",
            "font": {"size": 13},
            "bgcolor": "rgba(255, 255, 255, 0.8)",
        },
        annotation_position="top left",
    )


def _said(peaks: Sequence[int], redundancy: Redundancy | None) -> str:
    parts = [f"largest {format_bytes(max(peaks))}"]
    if redundancy is not None:
        parts.append(f"input nodes {redundancy.ratio:.2f} × the batch's")
        parts.append(f"the largest part's {redundancy.largest / max(1, redundancy.full_inputs):.0%} of them")
    return " · ".join(parts)
