"""Transposition of a CSR: the same edges grouped by source."""

from typing import NamedTuple

import torch
from torch import Tensor

from workbench.kernels.jit import compiled


class Transposed(NamedTuple):
    """Edges grouped by source.

    Args:
        indptr: int64 [num_src + 1], offsets of each source's edges.
        rows: [num_edges] in the dtype of `indices`, destinations.
        edges: int64 [num_edges], positions in the original CSR.
    """

    indptr: Tensor
    rows: Tensor
    edges: Tensor


@compiled
def _transpose(indptr, indices, cursor, rows, edges):
    """Fill `cursor[1:]`, zeros of length num_src + 2, with the offsets of each source's edges, and place the edges.

    Offsets are computed one place too far right: placing an edge advances its source's offset, and the last edge
    leaves it where the offset of the next source belongs.
    """
    for e in range(len(indices)):
        cursor[indices[e] + 2] += 1
    for i in range(3, len(cursor)):
        cursor[i] += cursor[i - 1]
    for row in range(len(indptr) - 1):
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
    return Transposed(out_indptr, rows[edges], edges)


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
    _transpose(indptr.numpy(), indices.numpy(), offsets.zero_().numpy(), rows.numpy(), edges.numpy())
    return Transposed(offsets[:-1], rows, edges)
