"""Heat maps: partitions in a buffer by state, rows on devices, and the seeds' shared in-neighbours of Betty's REG."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots
from torch import Tensor, full, ones_like

from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.outofcore.bucket_order import BucketOrder
from workbench.placement.placement import Placement
from workbench.plots.axes import bold
from workbench.plots.style import PALETTE, SKY, titled

_ORDER_MARGINS, _LEAST, _MOST, _PER_STATE = 170, 240, 900, 22  # pixels

_ABSENT, _KEPT, _LOADED = range(3)
_CELLS = ((_KEPT, "in the buffer", SKY), (_LOADED, "loaded", PALETTE[1]))
_NOTHING = "#F1F3F4"


def draw_sequences(orders: Sequence[tuple[str, BucketOrder]], *, title: str | None, subtitle: str = "") -> go.Figure:
    """Draw orders side by side on the same axes: a row per state from the top, a column per partition.

    Args:
        orders: panels by name.
        title: of the figure.
        subtitle: below it.

    Raises:
        ValueError: no orders.
    """
    if not orders:
        raise ValueError("there is no order to draw; pass at least one, such as wb.outofcore.beta_order(8, 4)")
    figure = make_subplots(1, len(orders), subplot_titles=[bold(name) for name, _ in orders], horizontal_spacing=0.05)
    for column, (_, order) in enumerate(orders, 1):
        figure.add_trace(_states(order), 1, column)
    for _, name, color in _CELLS:
        marker = {"color": color, "symbol": "square", "size": 12}
        figure.add_trace(go.Scatter(x=[None], y=[None], mode="markers", name=name, marker=marker), 1, 1)
    states = max(order.num_states for _, order in orders)
    partitions = max(order.num_partitions for _, order in orders)
    figure.update_yaxes(range=[states - 0.5, -0.5], showgrid=False, ticks="")
    figure.update_xaxes(range=[-0.5, partitions - 0.5], showgrid=False, ticks="", title_text="partition")
    figure.update_yaxes(title_text="state", col=1).update_annotations(font_size=13)
    height = min(max(_PER_STATE * states, _LEAST), _MOST) + _ORDER_MARGINS
    return titled(figure, title, subtitle=subtitle, height=height)


def _states(order: BucketOrder) -> Any:
    cells = _cells(order)
    trained = order.state_of_bucket.flatten().bincount(minlength=order.num_states)
    gap = 1 if max(cells.shape) <= 64 else 0
    return go.Heatmap(
        x=list(range(order.num_partitions)),
        y=list(range(order.num_states)),
        z=cells.tolist(),
        zmin=_ABSENT,
        zmax=_LOADED,
        colorscale=[[0, _NOTHING], *([value / _LOADED, color] for value, _, color in _CELLS)],
        showscale=False,
        xgap=gap,
        ygap=gap,
        customdata=trained[:, None].expand_as(cells).tolist(),
        hovertemplate="state %{y} trains %{customdata} buckets<br>partition %{x}<extra></extra>",
    )


def _cells(order: BucketOrder) -> Tensor:
    """int64 [num_states, num_partitions]: absent, kept from the state before, or loaded."""
    cells = full((order.num_states, order.num_partitions), _ABSENT)
    cells.scatter_(1, order.states, ones_like(order.states) * _KEPT)
    for state in range(order.num_states):
        cells[state, order.loaded(state)] = _LOADED
    return cells


_TOP, _PER_ROW, _PLACEMENT_MARGINS = 110, 34, 190  # pixels

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
        figure.add_trace(_holders(placed, columns, names), panel, 1)
        figure.update_yaxes(autorange="reversed", ticks="", showgrid=False, row=panel, col=1)
    figure.update_xaxes(type="category", nticks=8, showgrid=False, ticks="", showticklabels=False)
    last = {"showticklabels": True, "tickangle": 0, "title_text": "rows, most probable first"}
    figure.update_xaxes(last, row=len(heights), col=1)
    figure.update_layout(bargap=0.1).update_annotations(font_size=13)
    return titled(figure, title, subtitle=subtitle, height=sum(heights) + _PLACEMENT_MARGINS)


def _columns(num_rows: int) -> list[tuple[int, int]]:
    """Ranges of ranks, one per column."""
    count = min(num_rows, _MAX_COLUMNS)
    ends = [num_rows * i // count for i in range(count + 1)]
    return [*pairwise(ends)]


def _names(order: Tensor, columns: Sequence[tuple[int, int]]) -> list[str]:
    """Ids of single rows; ranks of several."""
    single = all(hi - lo == 1 for lo, hi in columns)
    return [str(int(order[lo])) if single else f"{lo + 1:,}–{hi:,}" for lo, hi in columns]


def _holders(placed: Placement, columns: Sequence[tuple[int, int]], names: Sequence[str]) -> Any:
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


_MAX_SEEDS = 64


def draw_redundancy_graph(mb: MiniBatch, part: Tensor) -> go.Figure:
    """Draw a small batch's A and C = A Aᵀ as heat maps, seeds grouped by part, with lines at the cut.

    Args:
        mb: the batch, on the CPU, of at most 64 seeds.
        part: int64 [num_seeds], the part of every seed.

    Raises:
        ValueError: more than 64 seeds, or a batch with exchanges.

    Source: Betty (ASPLOS 2023), Algorithm 1.
    """
    refuse_halo(mb.exchanges, "drawing its redundancy graph")
    if mb.num_seeds > _MAX_SEEDS:
        raise ValueError(f"mb has {mb.num_seeds} seeds; at most {_MAX_SEEDS} can be drawn: sample fewer")
    a, c = shared_neighbors(mb)
    order = torch.argsort(part, stable=True)
    seeds = [str(seed) for seed in mb.seeds[order].tolist()]
    within = part[order][:, None] == part[order][None, :]
    cut = int(c[order][:, order][~within].sum()) // 2
    figure = make_subplots(
        1, 2, column_titles=["A: a seed's in-neighbours", "C = A Aᵀ: in-neighbours that seeds share"]
    )
    sources = [str(node) for node in mb.node_ids[: a.shape[1]].tolist()]
    figure.add_heatmap(z=a[order].numpy(), x=sources, y=seeds, coloraxis="coloraxis", row=1, col=1)
    figure.add_heatmap(z=c[order][:, order].numpy(), x=seeds, y=seeds, coloraxis="coloraxis", row=1, col=2)
    for at in (torch.bincount(part).cumsum(0)[:-1] - 0.5).tolist():
        left, right = {"row": 1, "col": 1}, {"row": 1, "col": 2}
        figure.add_hline(at, line_color="black", **left)  # type: ignore[arg-type]
        figure.add_hline(at, line_color="black", **right)  # type: ignore[arg-type]
        figure.add_vline(at, line_color="black", **right)  # type: ignore[arg-type]
    figure.update_xaxes(type="category").update_yaxes(type="category", autorange="reversed")
    title = f"The cut separates seeds that share in-neighbours {cut} times"
    return figure.update_layout(title=title, height=460, coloraxis={"colorscale": "Blues"})


def shared_neighbors(mb: MiniBatch) -> tuple[Tensor, Tensor]:
    """Return A, int64 [seeds, sources] of the output block, and C = A Aᵀ without its diagonal, int64 [seeds, seeds].

    Args:
        mb: a small batch; both matrices are dense.
    """
    block = mb.blocks[-1]
    a = torch.zeros(block.num_dst, block.num_src, dtype=torch.int64)
    a[torch.repeat_interleave(block.indptr.diff()), block.indices.long()] = 1
    return a, (a @ a.T).fill_diagonal_(0)
