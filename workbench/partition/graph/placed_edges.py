"""The edges of a stream brought into rows on disk, in two passes: a counting sort outside of memory."""

import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.edge_stream import EdgeSource, edge_chunks
from workbench.core.graph import Graph
from workbench.kernels.csr import index_dtype, offsets
from workbench.kernels.jit import compiled

Progress = Callable[[int], object] | None
"""Called after every chunk with the number of edges read so far."""


class Rows(NamedTuple):
    """Where the rows of all nodes begin among the edges of all parts, part after part.

    Args:
        owner: int32 [num_nodes].
        degree: int64 [num_nodes], in-edges of every node.
        start: int64 [num_nodes].
        part_start: int64 [num_parts + 1].
    """

    owner: Tensor
    degree: Tensor
    start: Tensor
    part_start: Tensor

    @staticmethod
    def of(edges: EdgeSource, owner: Tensor, num_parts: int, progress: Progress) -> "Rows":
        """Count the in-edges of every node: the first pass.

        Args:
            edges: where the edges come from.
            owner: int32 [num_nodes], in [0, num_parts).
            num_parts: number of parts.
            progress: called after every chunk.
        """
        degree, done = torch.zeros(len(owner), dtype=torch.int64), 0
        for _, dst in edge_chunks(edges, len(owner)):
            degree.index_add_(0, dst, torch.ones_like(dst))
            done += len(dst)
            if progress is not None:
                progress(done)
        order = torch.argsort(owner, stable=True)
        start = torch.empty_like(degree)
        ends = degree[order].cumsum(0)
        start[order] = ends - degree[order]
        per_part = torch.zeros(num_parts, dtype=torch.int64).index_add_(0, owner, degree)
        return Rows(owner, degree, start, offsets(per_part))


class PlacedEdges(NamedTuple):
    """All edges in the order of their rows, in files without names.

    Args:
        sources: int32 or int64 [num_edges].
        positions: int64 [num_edges], of each edge in the stream; None if nothing is stored per edge.
    """

    sources: Tensor
    positions: Tensor | None


def place_edges(edges: EdgeSource, rows: Rows, folder: Path, with_positions: bool, progress: Progress) -> PlacedEdges:
    """Write every edge to its row: the second pass.

    Args:
        edges: the edges that were counted.
        rows: where the rows begin.
        folder: on the disk that provides the space; the files have no names.
        with_positions: record the position of every edge in the stream.
        progress: called after every chunk.

    Raises:
        ValueError: if the edges are others than those that were counted.
        OSError: if the disk is full.
    """
    num_nodes, num_edges = len(rows.owner), int(rows.part_start[-1])
    dtype = edges.indices.dtype if isinstance(edges, Graph) else index_dtype(num_nodes)
    sources = _file_backed(folder, num_edges, dtype)
    positions = _file_backed(folder, num_edges if with_positions else 0, torch.int64)
    cursor, done = rows.start.clone(), 0
    arrays = cursor.numpy(), sources.numpy(), positions.numpy()
    for src, dst in edge_chunks(edges, num_nodes):
        if not _write_edges(src.numpy(), dst.numpy(), done, *arrays):
            break
        done += len(src)
        if progress is not None:
            progress(num_edges + done)
    if not torch.equal(cursor, rows.start + rows.degree):
        raise ValueError("the second pass over the edges yields others than the first; pass edges that stay the same")
    return PlacedEdges(sources, positions if with_positions else None)


@compiled
def _write_edges(src, dst, first, cursor, sources, positions):
    """Place edges whose positions begin at `first`; return whether all of them have room."""
    for e in range(len(src)):
        slot = cursor[dst[e]]
        cursor[dst[e]] = slot + 1
        if slot >= len(sources):
            return False
        sources[slot] = src[e]
        if len(positions):
            positions[slot] = first + e
    return True


def _file_backed(folder: Path, count: int, dtype: torch.dtype) -> Tensor:
    """Allocate a tensor in a file without a name, whose space on disk is reserved: a full disk raises here."""
    if not count:
        return torch.empty(0, dtype=dtype)
    with tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, count * dtype.itemsize)
        file.truncate(count * dtype.itemsize)
        return torch.frombuffer(mmap.mmap(file.fileno(), count * dtype.itemsize), dtype=dtype)
