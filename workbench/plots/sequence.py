"""Drawings of orders: which partitions are in the buffer, state after state, and which are loaded."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from torch import Tensor, full, ones_like

from workbench.outofcore.bucket_order import BucketOrder
from workbench.plots.layout import bold
from workbench.plots.style import PALETTE, SKY, titled

_MARGINS, _LEAST, _MOST, _PER_STATE = 170, 240, 900, 22  # pixels
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
        figure.add_trace(_heat_map(order), 1, column)
    for _, name, color in _CELLS:
        marker = {"color": color, "symbol": "square", "size": 12}
        figure.add_trace(go.Scatter(x=[None], y=[None], mode="markers", name=name, marker=marker), 1, 1)
    states = max(order.num_states for _, order in orders)
    partitions = max(order.num_partitions for _, order in orders)
    figure.update_yaxes(range=[states - 0.5, -0.5], showgrid=False, ticks="")
    figure.update_xaxes(range=[-0.5, partitions - 0.5], showgrid=False, ticks="", title_text="partition")
    figure.update_yaxes(title_text="state", col=1).update_annotations(font_size=13)
    height = min(max(_PER_STATE * states, _LEAST), _MOST) + _MARGINS
    return titled(figure, title, subtitle=subtitle, height=height)


def _heat_map(order: BucketOrder) -> Any:
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
