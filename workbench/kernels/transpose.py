"""Transposition of a CSR: the same edges grouped by source; one transpose serves all row prefixes of the CSR."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.jit import compiled


class Transposed(NamedTuple):
    """Edges grouped by source.

    Args:
        indptr: int64 [num_src + 1], offsets of each source's edges.
        ends: int64 [num_src], where each source's edges end; None: where those of the next source begin. Given in the
            transpose of a row prefix, whose other arrays are views of that of all rows: a source's edges are ordered by
            row, so those of the prefix come first.
        rows: [num_edges] in the dtype of `indices`, destinations.
        edges: int64 [num_edges], positions in the original CSR.
    """

    indptr: Tensor
    ends: Tensor | None
    rows: Tensor
    edges: Tensor


@compiled
def _count(indices, cursor):
    """Fill `cursor[1:]`, zeros of length num_src + 2, with the offsets of each source's edges.

    Offsets are computed one place too far right: placing an edge advances its source's offset, and the last edge
    leaves it where the offset of the next source belongs.
    """
    for e in range(len(indices)):
        cursor[indices[e] + 2] += 1
    for i in range(3, len(cursor)):
        cursor[i] += cursor[i - 1]


@compiled
def _place(lo, hi, indptr, indices, cursor, rows, edges):
    """Place the edges of rows [lo, hi)."""
    for row in range(lo, hi):
        for e in range(indptr[row], indptr[row + 1]):
            slot = cursor[indices[e] + 1]
            cursor[indices[e] + 1] = slot + 1
            rows[slot] = row
            if len(edges):
                edges[slot] = e


def transpose_torch(indptr: Tensor, indices: Tensor, num_src: int) -> Transposed:
    """Compute `transpose` in plain torch, on any device."""
    edges = torch.argsort(indices, stable=True)
    counts = torch.bincount(indices, minlength=num_src)
    out_indptr = torch.zeros(num_src + 1, dtype=torch.int64, device=indices.device)
    torch.cumsum(counts, 0, out=out_indptr[1:])
    rows = torch.arange(len(indptr) - 1, device=indices.device, dtype=indices.dtype).repeat_interleave(indptr.diff())
    return Transposed(out_indptr, None, rows[edges], edges)


def transpose(indptr: Tensor, indices: Tensor, num_src: int) -> Transposed:
    """Group the edges of a CSR by source; each source's edges are ordered by destination.

    Args:
        indptr: int64 [num_dst + 1].
        indices: integer [num_edges], sources in [0, num_src).
        num_src: number of sources.
    """
    if indices.device.type != "cpu":
        return transpose_torch(indptr, indices, num_src)
    offsets = torch.empty(num_src + 2, dtype=torch.int64)
    rows, edges = torch.empty_like(indices), torch.empty_like(indices, dtype=torch.int64)
    return transpose_into(indptr, indices, offsets, rows, edges)


def transpose_into(indptr: Tensor, indices: Tensor, offsets: Tensor, rows: Tensor, edges: Tensor) -> Transposed:
    """Compute `transpose` on the CPU in memory that the caller provides.

    Args:
        indptr: int64 [num_dst + 1].
        indices: integer [num_edges], sources in [0, num_src).
        offsets: int64 [num_src + 2], memory for the result's `indptr`.
        rows: [num_edges] in the dtype of `indices`.
        edges: int64 [num_edges], or empty if the edges' positions are not needed.
    """
    cursor, arrays = _counted(indices, offsets), (rows.numpy(), edges.numpy())
    _place(0, len(indptr) - 1, indptr.numpy(), indices.numpy(), cursor, *arrays)
    return Transposed(offsets[:-1], None, rows, edges)


def _counted(indices: Tensor, offsets: Tensor) -> np.ndarray:
    cursor = offsets.zero_().numpy()
    _count(indices.numpy(), cursor)
    return cursor


def transpose_prefixes(
    indptr: Tensor, indices: Tensor, num_src: int, prefixes: Sequence[tuple[int, int]]
) -> list[Transposed]:
    """Transpose row prefixes of a CSR at the price of the largest: their transposes share its arrays.

    While edges are placed row by row, the place where a source's next edge goes is where its edges end in the prefix of
    the rows so far.

    Args:
        indptr: int64 [num_dst + 1].
        indices: integer [num_edges], sources in [0, num_src).
        num_src: number of sources.
        prefixes: numbers of rows and of their sources per prefix, ascending.

    Returns:
        The transpose of every prefix, then that of all rows.
    """
    if indices.device.type != "cpu":
        return transpose_prefixes_torch(indptr, indices, num_src, prefixes)
    offsets = torch.empty(num_src + 2, dtype=torch.int64)
    rows, edges = torch.empty_like(indices), torch.empty_like(indices, dtype=torch.int64)
    cursor, arrays = _counted(indices, offsets), (rows.numpy(), edges.numpy())
    found: list[Transposed] = []
    for (lo, _), (hi, sources) in pairwise([(0, 0), *prefixes, (len(indptr) - 1, num_src)]):
        _place(lo, hi, indptr.numpy(), indices.numpy(), cursor, *arrays)
        ends = None if len(found) == len(prefixes) else _copy(cursor[1 : sources + 1])
        found.append(Transposed(offsets[: sources + 1], ends, rows, edges))
    return found


def _copy(values: np.ndarray) -> Tensor:
    """Copy into torch's memory, which a memory meter counts."""
    out = torch.empty(len(values), dtype=torch.int64)
    out.numpy()[:] = values
    return out


def transpose_prefixes_torch(
    indptr: Tensor, indices: Tensor, num_src: int, prefixes: Sequence[tuple[int, int]]
) -> list[Transposed]:
    """Compute `transpose_prefixes` in plain torch, on any device."""
    whole = transpose_torch(indptr, indices, num_src)
    found = []
    for num_rows, sources in prefixes:
        counts = torch.bincount(indices[: int(indptr[num_rows])], minlength=sources)
        starts = whole.indptr[: sources + 1]
        found.append(Transposed(starts, starts[:-1] + counts, whole.rows, whole.edges))
    return [*found, whole]
