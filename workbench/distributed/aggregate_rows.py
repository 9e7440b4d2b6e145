"""`aggregate_rows`: the full-neighbour aggregates of static features, built in bounded memory, at their owners."""

import math
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from workbench.core.capacity import check_fits
from workbench.core.errors import check_bytes, check_type
from workbench.core.graph import Graph
from workbench.core.traffic import Traffic
from workbench.distributed.group import Group, gather_numbers, get_rank, get_world_size
from workbench.distributed.owned_rows import OwnedRows
from workbench.distributed.progress import in_phase
from workbench.features.mapped_rows import MappedRows
from workbench.features.memory_rows import MemoryRows
from workbench.features.protocols import FeatureStore, check_store
from workbench.features.sources import as_store, check_covers
from workbench.features.stage import stage_ids
from workbench.kernels.segment import compute_dtype
from workbench.nn.static_aggregate import StaticAggregate, static_aggregate
from workbench.sampling.owned_graph import OwnedGraph
from workbench.training.neighbour_sums import NeighbourSums, Pieces, out_degrees

Progress = Callable[[int], object]


def aggregate_rows(
    graph: Graph | OwnedGraph,
    x: Any,
    *,
    model: Any = None,
    kind: str | None = None,
    chunk_bytes: int | str = "64MiB",
    sum_dtype: torch.dtype | None = None,
    folder: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    group: Group = None,
    traffic: Traffic | None = None,
) -> FeatureStore:
    """Precompute the first layer's aggregate of every node over all of its in-neighbours.

    A first layer that reads it (`workbench.AggregatedRows`) needs neither the last hop of sampling nor the features of
    its sources, and trains on full instead of sampled neighbourhoods. Destinations are aggregated in chunks and their
    sources read in pieces, so that neither all features nor the rows of all edges are in memory. A source is read once
    per piece that has an edge from it. Rows are summed in the order of the edges; results for other chunks differ by
    rounding only.

    Over ranks, each aggregates the rows of the nodes that it owns, and fetches those of others from their owners piece
    by piece: pass its `OwnedGraph` and `OwnedRows`; then the call is collective.

    Args:
        graph: the graph, which may be memory-mapped, on the CPU; over ranks, the rank's part of it. Its edge weights,
            if it has any, multiply the rows.
        x: floating features [num_nodes, in_dim] by raw-graph id: a tensor, an array or a store (`DiskRows`, …). A
            contiguous tensor in `sum_dtype` is summed where it is.
        model: a model of `workbench.build_model`, whose first layer is to read the aggregates.
        kind: instead of a model, "sage-mean" or "gcn" (mean), "sage-gcn" (mean with the node itself), "gin" (sum), or
            "gcn-both" (normalised by 1/√(out-degree · in-degree), degrees counted in the whole graph).
        chunk_bytes: bytes, or text, of the sums and sources that are in memory at a time, at least one row of each;
            besides them a few bytes per node.
        sum_dtype: float32 or float64, the dtype of sums; None: float64 for float64 features, float32 for all others,
            half precision included. Results have the dtype of the features.
        folder: write the aggregates there, atomically, for `MappedRows`; over ranks a folder per rank. None: keep them
            in memory.
        overwrite: replace an existing folder of rows.
        progress: called after every piece with the number of edges aggregated, of `graph.num_edges` in all.
        group: the ranks; None for all.
        traffic: counts the rows that are read from the result.

    Returns:
        The aggregates by raw-graph id, in the dtype of the features: `MemoryRows` or `MappedRows`, over ranks
        `OwnedRows`.

    Raises:
        TypeError: `graph`, `model` or the features are of another type.
        ValueError: the first layer's aggregate has parameters or its normaliser depends on the block (GCN with norm
            "both"), rows are no vectors, an option is invalid, or `graph` is the part of another rank.
        IndexError: the features have too few rows, or an edge has a source that is not in the graph.
        CapacityError: the aggregates do not fit into memory.
        FileExistsError: `folder` exists and `overwrite` is not set.

    Source: Hoang et al., "BatchGNN" (2023), section 3 and appendix B.

    >>> import torch, workbench as wb
    >>> path = wb.Graph.from_edges(torch.tensor([0, 1, 1]), torch.tensor([1, 2, 0]), num_nodes=3)
    >>> wb.aggregate_rows(path, torch.tensor([[1.0], [2.0], [4.0]]), kind="gin").read(torch.arange(3))
    tensor([[2.],
            [1.],
            [2.]])
    """
    aggregate, budget = static_aggregate(model, kind), check_bytes("chunk_bytes", chunk_bytes)
    part, nodes = _part(graph, group)
    store = _checked_store(x, part.graph)
    if folder is None:
        nbytes = len(nodes) * math.prod(store.row_shape) * store.dtype.itemsize
        check_fits(f"aggregates of {len(nodes)} nodes", nbytes, "pass folder= to write them to disk")
    with in_phase("features"):
        sums = _sums(aggregate, part, nodes, store, x, budget, sum_dtype)
        chunks = _chunks(sums, part, nodes, progress)
        if folder is None:
            kept: FeatureStore = MemoryRows(_gathered(chunks, len(nodes), store), traffic=traffic)
        else:
            at = Path(folder) if part.owned is None else Path(folder) / f"rank-{part.owned.rank}"
            MappedRows.create(at, chunks, overwrite=overwrite)
            kept = MappedRows(at, traffic=traffic)
    return kept if part.owned is None else OwnedRows(kept, part.owned.owner, group, traffic=traffic)


class _Part(NamedTuple):
    """The graph whose rows this rank aggregates; `owned` is None in one process."""

    graph: Graph
    owned: OwnedGraph | None
    group: Group


def _part(graph: Graph | OwnedGraph, group: Group) -> tuple[_Part, Tensor]:
    """Return this rank's part, and the nodes whose rows it aggregates."""
    check_type("graph", graph, Graph | OwnedGraph, "pass a Graph, or over ranks OwnedGraph.of(graph, owner, rank)")
    owned = graph if isinstance(graph, OwnedGraph) else None
    part = _Part(graph.graph if isinstance(graph, OwnedGraph) else graph, owned, group)
    if part.graph.device.type != "cpu":
        raise ValueError(f"graph is on {part.graph.device}, but rows are aggregated on the CPU; move it there")
    if owned is None:
        return part, torch.arange(part.graph.num_nodes)
    rank, size = get_rank(group), get_world_size(group)
    if (owned.rank, owned.num_ranks) != (rank, size):
        raise ValueError(
            f"graph is the part of rank {owned.rank} of {owned.num_ranks}, but this is rank {rank} of {size}; pass "
            f"OwnedGraph.of(graph, owner, {rank}, {size})"
        )
    return part, (owned.owner == rank).nonzero()[:, 0]


def _checked_store(x: Any, graph: Graph) -> FeatureStore:
    store = as_store(x)
    check_store("x", store)
    if isinstance(x, Tensor) and x.requires_grad:
        raise ValueError("x requires a gradient, but aggregates are precomputed from features that do not change")
    if len(store.row_shape) != 1 or not store.dtype.is_floating_point:
        raise ValueError(
            f"rows of x have shape {tuple(store.row_shape)} and dtype {store.dtype}; pass floating features "
            "[num_nodes, in_dim]"
        )
    check_covers("x", store, torch.arange(graph.num_nodes)[-1:])
    return store


def _sums(
    aggregate: StaticAggregate,
    part: _Part,
    nodes: Tensor,
    store: FeatureStore,
    x: Any,
    budget: int,
    sum_dtype: torch.dtype | None,
) -> NeighbourSums:
    """Cut the work so that its sums and sources fit the budget."""
    dtype = compute_dtype(torch.empty(0, dtype=store.dtype)) if sum_dtype is None else sum_dtype
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"sum_dtype is {dtype}; pass torch.float32 or torch.float64")
    resident = x if part.owned is None and _is_resident(x, dtype) else None
    converts = dtype != store.dtype
    row_bytes = store.row_shape[0] * (store.dtype.itemsize + converts * dtype.itemsize)
    sum_bytes = store.row_shape[0] * dtype.itemsize + (aggregate.adds_self or converts) * row_bytes
    source_bytes = 0 if resident is not None else row_bytes
    pieces = Pieces.within(part.graph, nodes, chunk_bytes=budget, sum_bytes=sum_bytes, source_bytes=source_bytes)
    degrees = _out_degrees(pieces, part) if aggregate.norm == "both" else None
    return NeighbourSums(
        aggregate,
        pieces,
        width=store.row_shape[0],
        fetch=partial(_fetch, store, part),
        own=store.read,
        dtype=dtype,
        out_dtype=store.dtype,
        resident=resident,
        source_degrees=degrees,
    )


def _is_resident(x: Any, dtype: torch.dtype) -> bool:
    """Whether features are summed where they are."""
    return isinstance(x, Tensor) and x.device.type == "cpu" and x.dtype == dtype and x.is_contiguous()


def _fetch(store: FeatureStore, part: _Part, ids: Tensor) -> Tensor:
    return (store if part.owned is None else stage_ids(store, ids)).read(ids)


def _chunks(sums: NeighbourSums, part: _Part, nodes: Tensor, progress: Progress | None) -> Iterator[Tensor]:
    """Aggregate chunk after chunk; then join the fetches of ranks with more pieces, whose rows this one may own."""
    own = len(sums.pieces)
    rounds = own if part.owned is None else int(max(gather_numbers(own, part.group)))
    yield from sums.chunks(progress)
    for _ in range(rounds - own):
        sums.fetch(nodes[:0])


def _out_degrees(pieces: Pieces, part: _Part) -> Tensor:
    """Out-degrees in the whole graph; over ranks, the sum of those that each rank's edges have."""
    counts = out_degrees(pieces)
    if part.owned is not None and get_world_size(part.group) > 1:
        on = counts.cuda() if dist.get_backend(part.group) == "nccl" else counts
        dist.all_reduce(on, group=part.group)
        counts = on.cpu()
    return counts


def _gathered(chunks: Iterator[Tensor], count: int, store: FeatureStore) -> Tensor:
    """Concatenate chunks, which are not kept beside the result."""
    rows, done = torch.empty(count, *store.row_shape, dtype=store.dtype), 0
    for chunk in chunks:
        rows[done : done + len(chunk)] = chunk
        done += len(chunk)
    return rows
