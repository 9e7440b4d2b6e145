"""`aggregate_rows`: the full-neighbour aggregates of static features, built in bounded memory, at their owners."""

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from workbench.core.errors import check_at_least, check_bytes, check_fits, check_sources, check_type
from workbench.core.exchange import refuse_halo
from workbench.core.graph import Graph
from workbench.core.machine import Traffic
from workbench.core.minibatch import MiniBatch
from workbench.distributed.group import Group, gather_numbers, get_rank, get_world_size
from workbench.distributed.owned import OwnedRows
from workbench.distributed.progress import in_phase
from workbench.features.memory_rows import MappedRows, MemoryRows, as_store, check_covers
from workbench.features.protocols import FeatureStore, check_store
from workbench.features.stage import stage_ids
from workbench.kernels import csr
from workbench.kernels.buffers import uninitialised
from workbench.kernels.gather import gather_rows
from workbench.kernels.relabel import relabeler
from workbench.kernels.segment import compute_dtype, sum_rows
from workbench.nn.static_aggregate import StaticAggregate, static_aggregate
from workbench.sampling.owned_graph import OwnedGraph
from workbench.sampling.sampler import (
    Drawn,
    ExcludingSampler,
    Sampler,
    check_sampler,
    copy_ids,
    sample_layers,
    sources_are_new,
)

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

    A first layer that reads it (`workbench.training.AggregatedRows`) needs neither the last hop of sampling nor the
    features of its sources, and trains on full instead of sampled neighbourhoods. Destinations are aggregated in chunks
    and their sources read in pieces, so that neither all features nor the rows of all edges are in memory. A source is
    read once per piece that has an edge from it. Rows are summed in the order of the edges; results for other chunks
    differ by rounding only.

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
    >>> wb.macrobatch.aggregate_rows(path, torch.tensor([[1.0], [2.0], [4.0]]), kind="gin").read(torch.arange(3))
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
        if folder is None:
            rows = uninitialised(torch.empty(0, dtype=store.dtype), len(nodes), *store.row_shape)
            _fill(rows, partial(_chunks, sums, part, nodes, progress), in_place=store.dtype == sums.dtype)
            kept: FeatureStore = MemoryRows(rows, traffic=traffic)
        else:
            at = Path(folder) if part.owned is None else Path(folder) / f"rank-{part.owned.rank}"
            MappedRows.create(at, _chunks(sums, part, nodes, progress, None), overwrite=overwrite)
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


Fetch = Callable[[Tensor], Tensor]
"""Fetches rows by raw-graph id, int64 [n], each id once."""


class Piece(NamedTuple):
    """Consecutive in-edges of the destinations of a chunk.

    Args:
        first: first destination, by its position in the chunk.
        indptr: int64 [destinations + 1], offsets of their edges in the piece.
        positions: CSR positions: int64 [edges], or a slice.
    """

    first: int
    indptr: Tensor
    positions: Tensor | slice

    @property
    def num_edges(self) -> int:
        return int(self.indptr[-1])

    def of(self, values: Tensor) -> Tensor:
        """Return the values of its edges; a slice is not copied.

        Args:
            values: [num_edges of the graph], by CSR position.
        """
        return values[self.positions] if isinstance(self.positions, slice) else gather_rows(values, self.positions)


@dataclass(frozen=True, eq=False)
class Pieces:
    """How destinations are cut into chunks, and their in-edges into pieces.

    Args:
        graph: contains the complete rows of the destinations.
        nodes: int64 [n], the destinations.
        rows: destinations per chunk.
        edges: edges per piece.
    """

    graph: Graph
    nodes: Tensor
    rows: int
    edges: int

    @staticmethod
    def within(graph: Graph, nodes: Tensor, *, chunk_bytes: int, sum_bytes: int, source_bytes: int) -> "Pieces":
        """Cut so that sums and sources together need a number of bytes, at least one row of each.

        Args:
            graph: contains the rows of the destinations.
            chunk_bytes: the bytes.
            sum_bytes: bytes per destination of a chunk.
            source_bytes: bytes per source of a piece, as if no source occurred twice.
        """
        half = chunk_bytes // 2
        edge_bytes = source_bytes + _EDGE_BYTES + (0 if graph.edge_weight is None else 8)
        chunks = 2 * max(1, sum_bytes)  # one is still being written when the next one begins
        return Pieces(graph, nodes, max(1, half // chunks), max(1, half // edge_bytes))

    def __len__(self) -> int:
        """Number of pieces of all chunks."""
        return sum(-(-int(lengths.sum()) // self.edges) for lengths in self._lengths(self.nodes).split(self.rows))

    def chunks(self) -> Iterator[Tensor]:
        """Yield the destinations of every chunk; a single empty one if there are no destinations."""
        return iter(self.nodes.split(self.rows))

    def of(self, chunk: Tensor) -> Iterator[Piece]:
        """Yield the pieces of a chunk's in-edges.

        Args:
            chunk: int64 [n], its destinations.
        """
        starts, lengths = self.graph.indptr[chunk], self._lengths(chunk)
        offsets = csr.offsets(lengths)
        origin = int(starts[0]) if len(chunk) and torch.equal(starts - starts[0], offsets[:-1]) else None
        for low in range(0, int(offsets[-1]), self.edges):
            high = min(low + self.edges, int(offsets[-1]))
            first = int(torch.searchsorted(offsets, low, right=True)) - 1
            last = int(torch.searchsorted(offsets, high))
            indptr = offsets[first : last + 1].clamp(low, high) - low
            if origin is not None:
                yield Piece(first, indptr, slice(origin + low, origin + high))
                continue
            shift = starts[first:last] - offsets[first:last] + low
            positions = torch.repeat_interleave(shift, indptr.diff(), output_size=high - low)
            yield Piece(first, indptr, positions.add_(torch.arange(high - low)))

    def _lengths(self, nodes: Tensor) -> Tensor:
        return self.graph.indptr[nodes + 1] - self.graph.indptr[nodes]


@dataclass(frozen=True, eq=False)
class NeighbourSums:
    """The aggregates of chunks of destinations.

    Args:
        aggregate: what is summed, and its normaliser.
        pieces: the destinations and their edges.
        width: channels of a row.
        fetch: fetches rows of sources.
        own: fetches rows of destinations.
        dtype: dtype of the sums, float32 or float64.
        out_dtype: dtype of the results.
        resident: floating [num_nodes, width] in `dtype` on the CPU, contiguous: features that are summed where they are
            instead of being fetched; None: fetch them.
        source_degrees: int64 [num_nodes], out-degrees in the whole graph, for the norm "both".
    """

    aggregate: StaticAggregate
    pieces: Pieces
    width: int
    fetch: Fetch
    own: Fetch
    dtype: torch.dtype
    out_dtype: torch.dtype
    resident: Tensor | None = None
    source_degrees: Tensor | None = None

    def chunks(self, after: Callable[[int], object] | None = None, *, into: Tensor | None = None) -> Iterator[Tensor]:
        """Yield the aggregates of every chunk, [destinations, width].

        Args:
            after: called after every piece with the number of edges summed so far.
            into: [all destinations, width] in `dtype`, of which the chunks are then parts; None: each is a new tensor.
        """
        done = row = 0
        for chunk in self.pieces.chunks():
            row += len(chunk)
            new = uninitialised(_NONE, len(chunk), self.width, dtype=self.dtype) if into is None else None
            sums = (into[row - len(chunk) : row] if new is None else new).zero_()  # pyright: ignore[reportOptionalSubscript]
            for piece in self.pieces.of(chunk):
                self._add(sums, piece)
                done += piece.num_edges
                if after is not None:
                    after(done)
            yield self._normalised(sums, chunk).to(self.out_dtype)

    def _add(self, sums: Tensor, piece: Piece) -> None:
        """Add a piece; its first destination may have a sum of earlier pieces."""
        sources = piece.of(self.pieces.graph.indices)
        rows, local = self._rows(sources)
        out = sums[piece.first : piece.first + len(piece.indptr) - 1]
        carried = out[0].clone()
        sum_rows(piece.indptr, local, rows, weight=self._weight(piece, sources), out=out)
        out[0] += carried

    def _rows(self, sources: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows that contain those of the sources, and the row of each edge's source."""
        if self.resident is not None:
            check_sources(sources, len(self.resident), IndexError)
            return self.resident, sources
        with relabeler(self.pieces.graph.num_nodes, _NONE) as labels:
            local, ids = labels(sources), labels.node_ids
        return self.fetch(ids).to("cpu", self.dtype).contiguous(), local

    def _weight(self, piece: Piece, sources: Tensor) -> Tensor | None:
        given = self.pieces.graph.edge_weight
        weight = None if given is None else piece.of(given).to(self.dtype)
        if self.source_degrees is None:
            return weight
        inverse = gather_rows(self.source_degrees, sources).clamp_(min=1).to(self.dtype).rsqrt_()
        return inverse if weight is None else inverse.mul_(weight)

    def _normalised(self, sums: Tensor, chunk: Tensor) -> Tensor:
        norm, graph = self.aggregate.norm, self.pieces.graph
        if self.aggregate.adds_self:
            sums += self.own(chunk).to("cpu", self.dtype)
        if norm == "none":
            return sums
        degrees: Any = graph.indptr[chunk + 1] - graph.indptr[chunk]
        degrees = degrees + 1 if norm == "in + self" else degrees.clamp(min=1)
        scale = degrees.to(self.dtype)
        return sums.mul_((scale.rsqrt_() if norm == "both" else scale.reciprocal_())[:, None])


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
    if part.owned is None:
        return store.read(ids)
    return store.fetch(ids) if isinstance(store, OwnedRows) else stage_ids(store, ids).read(ids)


def _chunks(
    sums: NeighbourSums, part: _Part, nodes: Tensor, progress: Progress | None, into: Tensor | None
) -> Iterator[Tensor]:
    """Aggregate chunk after chunk; then join the fetches of ranks with more pieces, whose rows this one may own."""
    own = len(sums.pieces)
    rounds = own if part.owned is None else int(max(gather_numbers(own, part.group)))
    yield from sums.chunks(progress, into=into)
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


def _fill(rows: Tensor, chunks: Callable[[Tensor | None], Iterator[Tensor]], *, in_place: bool) -> None:
    """Write the chunks one after the other; sums in the dtype of the rows are made where they belong."""
    done = 0
    for chunk in chunks(rows if in_place else None):
        if not in_place:
            rows[done : done + len(chunk)] = chunk
        done += len(chunk)


_EDGE_BYTES = 6 * 8  # positions, raw and local sources, ids of new sources, and a temporary array of positions

_NONE = torch.empty(0, dtype=torch.int64)


def out_degrees(pieces: Pieces) -> Tensor:
    """Count the edges of every node among the in-edges of the destinations, int64 [num_nodes]."""
    counts = torch.zeros(pieces.graph.num_nodes, dtype=torch.int64)
    for chunk in pieces.chunks():
        for piece in pieces.of(chunk):
            sources = piece.of(pieces.graph.indices).long()
            counts.index_add_(0, sources, torch.ones_like(sources))
    return counts


@dataclass(frozen=True)
class WithoutInputLayer(Sampler):
    """A sampler without its last hop, for models whose first layer reads precomputed aggregates.

        aggregated = wb.macrobatch.aggregate_rows(graph, x, model=model)
        rows = wb.training.AggregatedRows(x, aggregated)
        for step, mb in wb.batches(graph, ids, sampler=wb.macrobatch.WithoutInputLayer(sampler), batch_size=1024):
            wb.train_step(model, mb, rows, y, loss_fn, optimizer)

    Its batches are those of `sampler` without the input layer's block and that block's new sources, bit for bit. The
    fanout of the input layer has no effect: the first layer aggregates all neighbours.

    Args:
        sampler: a sampler of one layer or more; not a `CooperativeSampler`, which wraps this one instead.

    Source: Hoang et al., "BatchGNN" (2023), section 3, "Input Feature Aggregation Cache", and figure 2.

    >>> import torch, workbench as wb
    >>> path = wb.Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), num_nodes=4)
    >>> wb.macrobatch.WithoutInputLayer(wb.NeighborSampler([1, 1])).sample(path, torch.tensor([3])).node_ids
    tensor([3, 2])
    """

    sampler: Sampler

    def __post_init__(self) -> None:
        check_sampler(self.sampler)
        check_at_least("the number of layers of sampler", self.sampler.num_layers, 1)

    @property
    def num_layers(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Number of layers that are sampled: one less than the model has."""
        return self.sampler.num_layers - 1

    @property
    def rows_are_independent(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.sampler.rows_are_independent

    @property
    def edge_ids(self) -> bool:
        return getattr(self.sampler, "edge_ids", False)

    @property
    def sources_are_new(self) -> bool:
        return sources_are_new(self.sampler)

    @property
    def reads_other_rows(self) -> bool:
        return getattr(self.sampler, "reads_other_rows", False)

    @property
    def draw_owned(self) -> Callable[..., Any]:
        """That of the sampler, one layer further out; missing if it has none."""
        draw: Any = getattr(self.sampler, "draw_owned")  # noqa: B009
        return lambda owned, nodes, *, layer, **options: draw(owned, nodes, layer=layer + 1, **options)

    def draw(
        self, graph: Graph, nodes: Tensor, *, layer: int, step: int = 0, exclude_edges: Tensor | None = None
    ) -> Drawn:
        """Draw in-edges as the sampler does in its layer `layer + 1`. Arguments as for `Sampler.draw`."""
        check_at_least("layer", layer, 0, most=self.num_layers - 1)
        return self.sampler.draw(graph, nodes, layer=layer + 1, step=step, exclude_edges=exclude_edges)

    def sample(self, graph: Graph, seeds: Tensor, *, step: int = 0, exclude_edges: Tensor | None = None) -> MiniBatch:
        """Sample the batch of some seeds. Arguments and errors as for `Sampler.sample`.

        A sampler with a `sample` of its own samples its whole batch, of which the input layer is dropped.

        Returns:
            A batch of `num_layers` blocks; its inputs are the destinations of the first layer.
        """
        if type(self.sampler).sample in (Sampler.sample, ExcludingSampler.sample):

            def draw(nodes: Tensor, num_edges: int | None, **options: int) -> Drawn:
                return self.draw(graph, nodes, exclude_edges=exclude_edges, **options)

            return sample_layers(self, graph, seeds, step=step, draw=draw)
        options: dict[str, Any] = {} if exclude_edges is None else {"exclude_edges": exclude_edges}
        mb = self.sampler.sample(graph, seeds, step=step, **options)
        remedy = "wrap in the other order: CooperativeSampler(WithoutInputLayer(sampler), owned)"
        refuse_halo(mb.exchanges, "sampled without its input layer", remedy)
        return MiniBatch(copy_ids(mb.node_ids[: mb.blocks[0].num_dst]), mb.blocks[1:], step=mb.step)
