"""Data placement: which device holds which rows, and what locality-aware sampling leaves to move."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from workbench.core.dataset import Dataset
from workbench.core.errors import check_at_least, check_choice
from workbench.placement.access_probability import inclusion_probability
from workbench.placement.locality import LocalitySampler, locality_factors
from workbench.placement.placement import Placement, place_rows
from workbench.sampling.batches import EpochOrder
from workbench.widgets.explore import explore

if TYPE_CHECKING:
    import plotly.graph_objects as go

DEVICE_TOPOLOGIES: Mapping[str, tuple[int, Sequence[Sequence[int]] | None]] = {
    "4 behind a switch": (4, None),
    "2 behind a switch": (2, None),
    "8 behind a switch": (8, None),
    "2 pairs": (4, [[0, 1], [2, 3]]),
    "4 pairs": (8, [[0, 1], [2, 3], [4, 5], [6, 7]]),
}
"""Name → number of devices, and the groups that have links (None: all have)."""

_SHARES = (0.1, 0.05, 0.2, 0.4)  # of all rows, in a device's buffer
_METHODS = ("algorithm-1", "search", "hottest", "random", "naive", "algorithm-1-printed")


def placement_explorer(dataset: Dataset, **options: Any) -> Any:
    """Show `placement_view` below controls for buffer size, α, topology and two methods.

    Args:
        dataset: its training nodes form the batches.
        options: other arguments of `placement_view`.
    """
    p = _probabilities(dataset, **{name: options.pop(name) for name in ("fanouts", "batch_size") if name in options})
    return explore(
        partial(placement_view, dataset, p=p, **options),
        buffer_share=_SHARES,
        alpha=(0.3, 0.0, 0.1, 0.5, 0.8, 1.0),
        topology=[*DEVICE_TOPOLOGIES],
        method=_METHODS,
        rival=[*_METHODS[2:], *_METHODS[:2]],
    )


def placement_view(
    dataset: Dataset,
    *,
    buffer_share: float = 0.1,
    alpha: float = 0.3,
    topology: str = "4 behind a switch",
    method: str = "algorithm-1",
    rival: str = "hottest",
    fanouts: Sequence[int] = (10, 10),
    batch_size: int = 256,
    p: Tensor | None = None,
) -> "go.Figure":
    """Draw which device holds which rows by two methods, with their costs, coverage and duplicates.

    Args:
        dataset: its training nodes form the batches.
        buffer_share: rows that each device has room for, as a share of all rows.
        alpha: cost of a row of a peer that has a link; the host's is 1.
        topology: a name of `DEVICE_TOPOLOGIES`.
        method: of `workbench.placement.place_rows`.
        rival: another.
        fanouts: neighbours per layer, input layer first.
        batch_size: seeds per batch and device.
        p: float64 [num_nodes], probabilities that were computed before; None: by `inclusion_probability`.

    Raises:
        ValueError: an invalid option.
    """
    from workbench.plots.heat_maps import draw_holders

    check_choice("topology", topology, DEVICE_TOPOLOGIES)
    if p is None:
        p = _probabilities(dataset, fanouts=fanouts, batch_size=batch_size)
    num_devices, groups = DEVICE_TOPOLOGIES[topology]
    rows = int(buffer_share * dataset.graph.num_nodes)
    given: dict[str, Any] = {"num_devices": num_devices, "groups": groups, "rows_per_device": rows, "peer_cost": alpha}
    placed = {name: place_rows(p, **given, method=name) for name in dict.fromkeys((method, rival))}
    held = min(dataset.graph.num_nodes, rows * num_devices)
    return draw_holders(
        [(_told(name, one), one) for name, one in placed.items()],
        most_rows=int(1.25 * held),
        title=f"{dataset.name}: {rows:,} rows per device, {topology}, α = {alpha:g}",
        subtitle="dark: held by the device; a row that is dark on several devices is a duplicate",
    )


def _probabilities(dataset: Dataset, fanouts: Sequence[int] = (10, 10), batch_size: int = 256) -> Tensor:
    return inclusion_probability(dataset.graph, dataset.train_idx, fanouts=fanouts, batch_size=batch_size)


def _told(name: str, placed: Placement) -> str:
    host = float(placed.problem.p.sum() * placed.problem.costs[:, -1].max())
    return (
        f"{name}: costs {placed.largest_cost / host if host else 0:.0%} of reading the host alone, serves "
        f"{placed.coverage:.0%} of reads, {placed.num_duplicates:,} duplicates"
    )


LOCALITY_FACTORS = (1, 2, 4, 16, 64)


def locality_explorer(dataset: Dataset, **options: Any) -> Any:
    """Show `locality_view` below controls for the factor f, the reach j and the size of the buffer.

    Args:
        dataset: its training nodes form the batches.
        options: other arguments of `locality_view`.
    """
    view = partial(locality_view, dataset, **options)
    return explore(view, factor=(4, 1, 2, 16, 64), hops=(0, 1, 2), buffer_share=_SHARES)


def locality_view(
    dataset: Dataset,
    *,
    factor: float = 4,
    hops: int = 0,
    buffer_share: float = 0.1,
    fanouts: Sequence[int] = (10, 10),
    batch_size: int = 256,
    num_batches: int = 8,
    seed: int = 0,
) -> "go.Figure":
    """Draw the rows per batch that a device reads and those that are not in its buffer, over f, the chosen one marked.

    The buffer has the rows that batches read most. Batches are the first of an epoch, the same for all factors.

    Args:
        dataset: its training nodes form the batches.
        factor: f, by which draws of boosted nodes are more likely; 1: plain sampling.
        hops: j; 0 boosts the buffered nodes alone, j those from which sampling reaches the buffer within j hops.
        buffer_share: rows in the buffer, as a share of all rows.
        fanouts: neighbours per layer, input layer first.
        batch_size: seeds per batch.
        num_batches: batches to average over.
        seed: of batches and draws.

    Raises:
        ValueError: an invalid option.
    """
    from workbench.plots.lines import lines

    check_at_least("num_batches", num_batches, 1)
    graph, train = dataset.graph, dataset.train_idx
    p = inclusion_probability(graph, train, fanouts=fanouts, batch_size=batch_size)
    buffered = p.argsort(descending=True, stable=True)[: int(buffer_share * graph.num_nodes)]
    order = EpochOrder(len(train), batch_size, seed=seed)
    seeds = [train[at] for _, at in zip(range(num_batches), (at for _, at in order.positions(0)), strict=False)]
    table = [
        {"factor f": f, "draws": name, **counts}
        for f in sorted({*LOCALITY_FACTORS, factor})
        for name, counts in _count(dataset, buffered, f, hops, fanouts, seeds, seed)
    ]
    plain, chosen = (next(row["rows to move"] for row in table if row["factor f"] == f) for f in (1, factor))
    figure = lines(
        table,
        x="factor f",
        y=["rows to move", "rows read"],
        group="draws",
        log_x=True,
        title=f"f = {factor:g}: {chosen:,.0f} rows to move per batch instead of {plain:,.0f}",
    )
    return figure.add_vline(x=factor, line={"dash": "dot", "width": 1})


def _count(
    dataset: Dataset,
    buffered: Tensor,
    factor: float,
    hops: int,
    fanouts: Sequence[int],
    seeds: Sequence[Tensor],
    seed: int,
) -> Iterator[tuple[str, dict[str, float]]]:
    """Mean rows of a batch that are read, and that are not in the buffer, by form of the draws."""
    factors = locality_factors(dataset.graph, buffered, factor=factor, hops=hops)
    here = torch.zeros(dataset.graph.num_nodes, dtype=torch.bool)
    here[buffered] = True
    for name, biased in {"unbiased": False, "as published (biased)": True}.items():
        sampler = LocalitySampler(fanouts, factors, biased=biased, seed=seed)
        batches = [sampler.sample(dataset.graph, nodes, step=step) for step, nodes in enumerate(seeds)]
        moved = [int((~here[mb.node_ids]).sum()) for mb in batches]
        read = [mb.num_inputs for mb in batches]
        yield name, {"rows to move": sum(moved) / len(moved), "rows read": sum(read) / len(read)}
