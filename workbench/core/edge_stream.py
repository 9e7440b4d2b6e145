"""The edges of a graph in chunks, from memory or from disk: what streaming algorithms read."""

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from workbench.core.errors import INT64_MAX, check_at_least, check_ids, check_type
from workbench.core.graph import ArrayLike, Graph, as_vector, id_remedy

CHUNK_EDGES = 1 << 20
"""Edges per chunk where the library chooses: 16 MiB of ids."""

EdgeSource: TypeAlias = Graph | Iterable[tuple[ArrayLike, ArrayLike]]
"""A graph, in memory or memory-mapped, or pairs (sources, destinations) of consecutive edges."""


@runtime_checkable
class EdgeLines(Protocol):
    """Edges that can be found again in a file."""

    def line_of(self, limit: int) -> str | None:
        """Return the file and line of the first edge with an id of at least `limit`; None: not known."""
        ...


def count_nodes(edges: EdgeSource, num_nodes: int | None) -> int:
    """Return the number of nodes: a graph knows it, and so do some files; another stream must be told.

    Args:
        edges: where the edges come from.
        num_nodes: number of nodes; None for that of a graph.
    """
    check_type("edges", edges, (Graph, Iterable), "pass a Graph, an EdgeFile or pairs (src, dst) of arrays")
    known: int | None = getattr(edges, "num_nodes", None)
    if known is None:
        if num_nodes is None:
            raise ValueError("num_nodes is None, but a stream does not tell its number of nodes; pass num_nodes=")
        check_at_least("num_nodes", num_nodes, 0)
        return int(num_nodes)
    if num_nodes not in (None, known):
        raise ValueError(f"num_nodes is {num_nodes}, but the graph has {known} nodes; omit num_nodes")
    return known


def check_repeatable(edges: EdgeSource) -> None:
    """Check that the edges can be read more than once."""
    if isinstance(edges, Iterator):
        raise ValueError(
            f"edges is a {type(edges).__name__}, which can be read once, but two passes are needed; pass a list, an "
            "EdgeFile, a Graph, or an object whose __iter__ starts again"
        )


def edge_chunks(edges: EdgeSource, num_nodes: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield sources and destinations of consecutive edges after checking them.

    Args:
        edges: a graph, whose edges come in CSR order, or an iterable of pairs (sources, destinations): tensors, arrays
            or lists of equal length.
        num_nodes: exclusive upper bound of the ids.

    Yields:
        Two int64 vectors of equal length on the CPU.
    """
    lowest = INT64_MAX
    for number, chunk in enumerate(_graph_chunks(edges) if isinstance(edges, Graph) else edges):
        src, dst = _pair(chunk, number)
        if len(src) != len(dst):
            raise ValueError(
                f"chunk {number} has {len(src)} sources, but {len(dst)} destinations; pass one of each per edge"
            )
        try:
            checked = _checked("src", src, number, num_nodes), _checked("dst", dst, number, num_nodes)
        except IndexError as error:
            lowest = min(lowest, *(int(ids.min()) for ids in (src, dst) if ids.numel()))
            place = edges.line_of(num_nodes) if isinstance(edges, EdgeLines) else None
            raise IndexError(f"{error}; {id_remedy(lowest)}" + (f" ({place})" if place else "")) from None
        if len(src):
            lowest = min(lowest, int(checked[0].min()), int(checked[1].min()))
        yield checked


def _pair(chunk: object, number: int) -> tuple[Tensor, Tensor]:
    try:
        src, dst = chunk  # type: ignore[misc]
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"chunk {number} is {type(chunk).__name__}, not a pair ({error}); pass (src, dst): the sources and the "
            "destinations of consecutive edges"
        ) from error
    return as_vector(f"src of chunk {number}", src), as_vector(f"dst of chunk {number}", dst)


def _checked(name: str, ids: Tensor, number: int, num_nodes: int) -> Tensor:
    if not ids.numel():
        return ids.new_zeros(0, dtype=torch.int64, device="cpu")  # an empty list becomes a vector of floats
    return check_ids(f"{name} of chunk {number}", ids.cpu(), num_nodes)


def _graph_chunks(graph: Graph) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut the edges of a graph into chunks; a chunk may begin and end within a row."""
    for low in range(0, graph.num_edges, CHUNK_EDGES):
        high = min(low + CHUNK_EDGES, graph.num_edges)
        ends = torch.tensor([low, high - 1], device=graph.device)
        first, last = (torch.searchsorted(graph.indptr, ends, right=True) - 1).tolist()
        rows = torch.arange(first, last + 1, device=graph.device)
        counts = graph.indptr[first : last + 2].clamp(low, high).diff()
        yield graph.indices[low:high], torch.repeat_interleave(rows, counts, output_size=high - low)
