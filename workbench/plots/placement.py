"""Drawings of placements: which device holds which rows, hottest first."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots
from torch import Tensor

from workbench.placement.placement import Placement
from workbench.plots.layout import bold
from workbench.plots.looks import PALETTE
from workbench.plots.style import titled

_TOP, _PER_ROW, _MARGINS = 110, 34, 190  # pixels
_MAX_COLUMNS = 80


def draw_holders(
    placements: Sequence[tuple[str, Placement]], *, most_rows: int | None = None, title: str, subtitle: str = ""
) -> go.Figure:
    """Draw who holds what: rows by descending probability, and below them one line per device and one for the host.

    Args:
        placements: panels, one below the other, by name, of the same rows.
        most_rows: draw this many of the most probable rows; None for all. Above 80, a column stands for several
            neighbouring rows.
        title: of the figure.
        subtitle: below it.

    Raises:
        ValueError: no placements, or no rows.
    """
    if not placements or not placements[0][1].num_rows:
        raise ValueError("there is no placement, or no row, to draw; pass a placement of at least one row")
    problem = placements[0][1].problem
    columns = _columns(min(most_rows or problem.num_rows, problem.num_rows))
    heights = [_TOP, *(_PER_ROW * (placed.num_devices + 1) for _, placed in placements)]
    figure = make_subplots(
        len(heights),
        1,
        row_heights=heights,
        subplot_titles=[bold(name) for name in ("probability that a batch reads the row", *(n for n, _ in placements))],
        vertical_spacing=0.3 / len(heights),
    )
    names = _names(problem.order, columns)
    mean = [float(problem.ranked[lo:hi].mean()) for lo, hi in columns]
    figure.add_trace(go.Bar(x=names, y=mean, marker_color=PALETTE[0], showlegend=False), 1, 1)
    for panel, (_, placed) in enumerate(placements, 2):
        figure.add_trace(_heat_map(placed, columns, names), panel, 1)
        figure.update_yaxes(autorange="reversed", ticks="", showgrid=False, row=panel, col=1)
    figure.update_xaxes(type="category", nticks=8, showgrid=False, ticks="", showticklabels=False)
    last = {"showticklabels": True, "tickangle": 0, "title_text": "rows, most probable first"}
    figure.update_xaxes(last, row=len(heights), col=1)
    figure.update_layout(bargap=0.1).update_annotations(font_size=13)
    return titled(figure, title, subtitle=subtitle, height=sum(heights) + _MARGINS)


def _columns(num_rows: int) -> list[tuple[int, int]]:
    """Ranges of ranks, one per column."""
    count = min(num_rows, _MAX_COLUMNS)
    ends = [num_rows * i // count for i in range(count + 1)]
    return [*pairwise(ends)]


def _names(order: Tensor, columns: Sequence[tuple[int, int]]) -> list[str]:
    """Ids of single rows; ranks of several."""
    single = all(hi - lo == 1 for lo, hi in columns)
    return [str(int(order[lo])) if single else f"{lo + 1:,}–{hi:,}" for lo, hi in columns]


def _heat_map(placed: Placement, columns: Sequence[tuple[int, int]], names: Sequence[str]) -> Any:
    """Share of each column's rows that a device holds; last line: that no device holds."""
    held = placed.holders[placed.problem.order]
    lines = torch.stack([*((held >> device) & 1 for device in range(placed.num_devices)), (held == 0).long()]).double()
    shares = torch.stack([lines[:, lo:hi].mean(1) for lo, hi in columns], dim=1)
    devices = [f"device {device}" for device in range(placed.num_devices)]
    return go.Heatmap(
        x=list(names),
        y=[*devices, "host alone"],
        z=shares.tolist(),
        zmin=0,
        zmax=1,
        colorscale=[[0, "#F1F3F4"], [1, PALETTE[0]]],
        showscale=False,
        xgap=1,
        ygap=2,
        hovertemplate="%{y}, rows %{x}: %{z:.0%}<extra></extra>",
    )
