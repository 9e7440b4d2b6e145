"""Locality-aware sampling: rows that batches read and that have to be moved, by factor f, reach and buffer."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from workbench.core.dataset import Dataset
from workbench.core.errors import check_at_least
from workbench.placement.access_probability import inclusion_probability
from workbench.placement.locality import LocalitySampler, locality_factors
from workbench.sampling.batches import EpochOrder
from workbench.widgets.explore import explore

if TYPE_CHECKING:
    import plotly.graph_objects as go

LOCALITY_FACTORS = (1, 2, 4, 16, 64)


def locality_explorer(
    dataset: Dataset,
    *,
    factor: Sequence[float] = (4, 1, 2, 16, 64),
    hops: Sequence[int] = (0, 1, 2),
    buffer_shares: Sequence[float] = (0.1, 0.05, 0.2, 0.4),
    **options: Any,
) -> Any:
    """Show `locality_view` below controls for the factor f, the reach j and the size of the buffer.

    Args:
        dataset: its training nodes form the batches.
        factor: choices of f; the first is the default.
        hops: choices of j; the first is the default.
        buffer_shares: choices of the buffer's size; the first is the default.
        options: other arguments of `locality_view`.

    Returns:
        A widget; the initial figure if ipywidgets is not installed.
    """
    view = partial(locality_view, dataset, **options)
    return explore(view, factor=factor, hops=hops, buffer_share=buffer_shares)


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
