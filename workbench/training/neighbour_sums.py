"""Full-neighbour aggregates in bounded memory: destinations in chunks, their in-edges in pieces.

A chunk of destinations is complete before the next one begins. Its in-edges are read in order, in pieces, and a piece
reads each row of its distinct sources once; a destination whose edges span several pieces carries its sum over.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from workbench.core.errors import check_ids
from workbench.core.graph import Graph
from workbench.kernels.gather import gather_rows
from workbench.kernels.relabel import relabeler
from workbench.kernels.row_sums import sum_rows
from workbench.nn.static_aggregate import StaticAggregate

_EDGE_BYTES = 6 * 8  # positions, raw and local sources, ids of new sources, and a temporary array of positions

Fetch = Callable[[Tensor], Tensor]
"""Fetches rows by raw-graph id, int64 [n], each id once."""


class Piece(NamedTuple):
    """Consecutive in-edges of the destinations of a chunk.

    Args:
        first: first destination, by its position in the chunk.
        indptr: int64 [destinations + 1], offsets of their edges in the piece.
        positions: int64 [edges], CSR positions.
    """

    first: int
    indptr: Tensor
    positions: Tensor


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
            nodes: int64 [n], the destinations.
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
        ends = lengths.cumsum(0)
        offsets = torch.cat([ends.new_zeros(1), ends])
        for low in range(0, int(offsets[-1]), self.edges):
            high = min(low + self.edges, int(offsets[-1]))
            first = int(torch.searchsorted(offsets, low, right=True)) - 1
            last = int(torch.searchsorted(offsets, high))
            indptr = offsets[first : last + 1].clamp(low, high) - low
            shift = starts[first:last] - offsets[first:last] + low
            positions = torch.repeat_interleave(shift, indptr.diff(), output_size=high - low)
            yield Piece(first, indptr, positions.add_(torch.arange(high - low)))

    def _lengths(self, nodes: Tensor) -> Tensor:
        return self.graph.indptr[nodes + 1] - self.graph.indptr[nodes]


def out_degrees(pieces: Pieces) -> Tensor:
    """Count the edges of every node among the in-edges of the destinations, int64 [num_nodes]."""
    counts = torch.zeros(pieces.graph.num_nodes, dtype=torch.int64)
    for chunk in pieces.chunks():
        for piece in pieces.of(chunk):
            sources = gather_rows(pieces.graph.indices, piece.positions).long()
            counts.index_add_(0, sources, torch.ones_like(sources))
    return counts


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

    def chunks(self, after: Callable[[int], object] | None = None) -> Iterator[Tensor]:
        """Yield the aggregates of every chunk, [destinations, width].

        Args:
            after: called after every piece with the number of edges summed so far.
        """
        done = 0
        for chunk in self.pieces.chunks():
            sums = torch.zeros(len(chunk), self.width, dtype=self.dtype)
            for piece in self.pieces.of(chunk):
                self._add(sums, piece)
                done += len(piece.positions)
                if after is not None:
                    after(done)
            yield self._normalised(sums, chunk).to(self.out_dtype)

    def _add(self, sums: Tensor, piece: Piece) -> None:
        """Add a piece; its first destination may have a sum of earlier pieces."""
        graph = self.pieces.graph
        sources = check_ids("the graph's indices", gather_rows(graph.indices, piece.positions), graph.num_nodes)
        rows, local = self._rows(sources)
        out = sums[piece.first : piece.first + len(piece.indptr) - 1]
        carried = out[0].clone()
        sum_rows(piece.indptr, local, rows, weight=self._weight(piece, sources), out=out)
        out[0] += carried

    def _rows(self, sources: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows that contain those of the sources, and the row of each edge's source."""
        if self.resident is not None:
            return self.resident, sources
        with relabeler(self.pieces.graph.num_nodes, sources[:0]) as labels:
            local, ids = labels(sources), labels.node_ids
        return self.fetch(ids).to("cpu", self.dtype).contiguous(), local

    def _weight(self, piece: Piece, sources: Tensor) -> Tensor | None:
        given = self.pieces.graph.edge_weight
        weight = None if given is None else gather_rows(given, piece.positions).to(self.dtype)
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
