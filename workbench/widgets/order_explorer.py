"""Orders of partitions through a buffer: their states, what they load, and their bias, before any training."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from workbench.outofcore.bucket_order import BucketOrder, balanced_order, beta_order, comet_order, partition_bias
from workbench.widgets.explore import explore

if TYPE_CHECKING:
    import plotly.graph_objects as go

ORDERS: Mapping[str, Callable[..., BucketOrder]] = MappingProxyType(
    {
        "BETA": lambda p, c, groups, epoch: beta_order(p, c),
        "COMET": lambda p, c, groups, epoch: comet_order(p, c, groups, epoch=epoch),
        "balanced": lambda p, c, groups, epoch: balanced_order(p, c, groups, epoch=epoch),
    }
)
"""Orders of edge buckets by name: functions of p, c, l (None: 2p/c) and the epoch."""


def order_explorer() -> Any:
    """Show `order_view` of two orders side by side, below controls for p, c, l and the epoch."""

    @lru_cache(maxsize=64)
    def made(name: str, p: int, c: int, num_groups: int | None, epoch: int) -> tuple[BucketOrder, float]:
        order = ORDERS[name](p, c, num_groups, epoch)
        return order, partition_bias(order)

    def view(left: str, right: str, p: int, c: int, logical_groups: int | None, epoch: int) -> "go.Figure":
        return order_view({name: made(name, p, c, logical_groups, epoch) for name in dict.fromkeys((left, right))})

    names = list(ORDERS)
    return explore(
        view,
        left=names,
        right=names[1:] + names[:1],
        p=(16, 8, 12, 24, 32),
        c=(4, 2, 6, 8),
        logical_groups={"2p/c": None, **{str(number): number for number in (4, 6, 8, 12, 16, 32)}},
        epoch=range(4),
    )


def order_view(orders: Mapping[str, tuple[BucketOrder, float]]) -> "go.Figure":
    """Draw orders side by side on the same axes; each panel's heading says its loads and its bias.

    Args:
        orders: name → the order and its bias.

    Raises:
        ValueError: no orders.
    """
    from workbench.plots.heat_maps import draw_sequences

    panels = [
        (f"{name}: {order.num_loads} loads ({order.num_loads / order.num_partitions:.2f} p), B = {bias:.2f}", order)
        for name, (order, bias) in orders.items()
    ]
    return draw_sequences(panels, title=_finding(orders), subtitle="columns: partitions; rows: states of the buffer")


def _finding(orders: Mapping[str, tuple[BucketOrder, float]]) -> str:
    """Say which order loads least, and which has the least bias."""
    if len(orders) < 2:
        return ", ".join(f"{name}: {order.num_states} states" for name, (order, _) in orders.items())
    loads = {name: order.num_loads for name, (order, _) in orders.items()}
    biases = {name: bias for name, (_, bias) in orders.items()}
    fewest, least = min(loads, key=loads.__getitem__), min(biases, key=biases.__getitem__)
    told = f"{fewest} loads least" if len(set(loads.values())) > 1 else "Equal loads"
    return f"{told}; {least} has the least bias" if len(set(biases.values())) > 1 else f"{told}; equal bias"
