"""Who computes what when several ranks share a global batch: duplicate work, and bytes per link."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from workbench.cooperative.sampling import batches as cooperative_batches, independent_batches
from workbench.cooperative.work import cooperative_work
from workbench.core.dataset import Dataset
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import Purpose, Smoothed, permutation, stream
from workbench.core.units import format_bytes
from workbench.kernels.relabel import IdIndex
from workbench.partition.graph import partition_graph
from workbench.sampling.labor import LaborSampler
from workbench.sampling.neighbor import NeighborSampler
from workbench.sampling.random_walk import RandomWalkSampler
from workbench.sampling.sampler import candidates, expand_rows
from workbench.widgets.explore import explore

if TYPE_CHECKING:
    import plotly.graph_objects as go

RANK_SAMPLERS: Mapping[str, Callable[..., Any]] = {
    "LABOR-0": LaborSampler,
    "NS": NeighborSampler,
    "RW": RandomWalkSampler,
}
"""Samplers that draw every row independently, as cooperating ranks need, by name."""

_PICTURED_NODES, _PICTURED_SEEDS = 24, 8
_FANOUTS, _BATCH_SIZE = (10, 10, 10), 64
_HEADROOM = 1.05  # above the highest bar


def cooperation_explorer(
    dataset: Dataset,
    *,
    num_ranks: Sequence[int] = (4, 2, 3, 6),
    ownerships: Sequence[str] = ("random", "metis", "range"),
    kappas: Sequence[int] = (1, 4, 16, 64),
    **options: Any,
) -> Any:
    """Show `cooperation_view` below controls for P, ownership, sampler and κ, with bars on the same axis.

    Args:
        dataset: its training nodes form the batches.
        num_ranks: choices of P; the first is the default.
        ownerships: methods of `workbench.partition_graph`; the first is the default.
        kappas: choices of κ; the first is the default.
        options: other arguments of `cooperation_view`.

    Returns:
        A widget; the initial figure if ipywidgets is not installed.
    """
    view = partial(cooperation_view, dataset, **({"most_rows": _most_rows(dataset, **options)} | options))
    return explore(view, num_ranks=num_ranks, ownership=ownerships, sampler=[*RANK_SAMPLERS], kappa=kappas)


def cooperation_view(
    dataset: Dataset,
    *,
    num_ranks: int = 4,
    ownership: str = "random",
    sampler: str = "LABOR-0",
    kappa: int = 1,
    fanouts: Sequence[int] = _FANOUTS,
    batch_size: int = _BATCH_SIZE,
    hidden_dim: int = 256,
    seed: int = 0,
    most_rows: float = 0,
) -> "go.Figure":
    """Draw a global batch of several ranks, independent and cooperating: a small one as a picture, and counts.

    Bars show the input rows per rank, and how many of them it has read for the batch before, which a cache serves; the
    heat map the bytes of features and hidden rows that cooperating ranks send in a forward pass.

    Args:
        dataset: its training nodes form the batches.
        num_ranks: number P of ranks, at most seven.
        ownership: method of `workbench.partition_graph`.
        sampler: a name of `RANK_SAMPLERS`.
        kappa: consecutive batches that depend on each other; 1: none.
        fanouts: neighbours per layer, input layer first.
        batch_size: training nodes per rank.
        hidden_dim: width of hidden rows, float32.
        seed: random seed of owners and variates.
        most_rows: input rows at which the axis of the bars ends, unless a rank reads more.

    Raises:
        ValueError: an invalid option.
    """
    from workbench.plots.cooperation import draw_cooperation

    owner = partition_graph(dataset.graph, num_ranks, method=ownership, seed=seed)
    build = partial(RANK_SAMPLERS[sampler], seed=seed, dependence=Smoothed(kappa))
    step = kappa // 2  # in the middle of a group
    options: dict[str, Any] = {"sampler": build(fanouts), "owner": owner, "num_ranks": num_ranks}
    ways = {"independent": independent_batches, "cooperating": cooperative_batches}
    batches = {
        name: [
            sample(dataset.graph, _seeds(dataset, s, num_ranks * batch_size), step=s, **options)
            for s in (step, step + 1)
        ]
        for name, sample in ways.items()
    }
    row_bytes = [dataset.num_features * dataset.x.element_size()] + [4 * hidden_dim] * (len(fanouts) - 1)
    works = {name: cooperative_work(steps[1], row_bytes=row_bytes) for name, steps in batches.items()}
    moved, repeats = works["cooperating"].link_bytes, works["independent"].duplication
    small, nodes = _around_hub(dataset.graph)
    read = {name: [mb.num_inputs for mb in steps[1]] for name, steps in batches.items()}
    figure = draw_cooperation(
        build([2, 2]).sample(small, small.in_degrees().argsort(descending=True)[1 : 1 + _PICTURED_SEEDS]),
        owner[nodes],
        read=read,
        again={name: [_shared(a, b) for a, b in zip(*steps, strict=True)] for name, steps in batches.items()},
        link_bytes=moved,
        title=f"{dataset.name}: {num_ranks} PEs, {ownership} owners, {sampler}, κ = {kappa}",
        subtitle=f"rows read per distinct row: {repeats:.2f} and 1; exchanged in a forward pass: 0 and "
        f"{format_bytes(int(moved.sum()))}",
    )
    most = max(most_rows, *(_HEADROOM * count for counts in read.values() for count in counts))
    return figure.update_yaxes(range=[0, most], row=2, col=1)


def _most_rows(
    dataset: Dataset, *, fanouts: Sequence[int] = _FANOUTS, batch_size: int = _BATCH_SIZE, seed: int = 0, **_: Any
) -> float:
    """Input rows of a batch by the sampler that reads most: independent ranks read that many."""
    seeds = _seeds(dataset, 0, batch_size)
    samplers = (build(fanouts, seed=seed) for build in RANK_SAMPLERS.values())
    return _HEADROOM**2 * max(sampler.sample(dataset.graph, seeds).num_inputs for sampler in samplers)


def _seeds(dataset: Dataset, step: int, size: int) -> Tensor:
    train = dataset.train_idx
    return train[permutation(stream(0, Purpose.SHUFFLE, step), len(train))[:size]]


def _shared(before: MiniBatch, after: MiniBatch) -> int:
    return int(torch.isin(after.node_ids, before.node_ids).sum())


def _around_hub(graph: Graph) -> tuple[Graph, Tensor]:
    """The subgraph of the node with most in-edges and a few of its in-neighbours, and its nodes."""
    hub = int(graph.in_degrees().argmax())
    neighbours = graph.indices[graph.indptr[hub] : graph.indptr[hub + 1]].long().unique()
    nodes = torch.cat([neighbours[neighbours != hub][: _PICTURED_NODES - 1], torch.tensor([hub])]).sort().values
    row, positions = expand_rows(candidates(graph, nodes, None))
    index = IdIndex([nodes], graph.num_nodes)
    sources = index.positions(graph.indices[positions])
    inside = sources >= 0
    return Graph.from_edges(sources[inside], row[inside], num_nodes=len(nodes)), nodes
