"""Transposition of a CSR: the same edges, listed by source."""

from typing import NamedTuple

import torch
from torch import Tensor

from workbench.kernels.jit import compiled


class Transposed(NamedTuple):
    """Edges by source.

    Args:
        indptr: int64 [num_src + 1], where each source's edges begin.
        rows: [num_edges] in the dtype of the ids, destinations.
        edges: int64 [num_edges], positions in the CSR that was transposed.
    """

    indptr: Tensor
    rows: Tensor
    edges: Tensor


@compiled
def _count_sources(indices, indptr):
    for e in range(len(indices)):
        indptr[indices[e] + 1] += 1
    for i in range(1, len(indptr)):
        indptr[i] += indptr[i - 1]


@compiled
def _place_edges(indptr, indices, cursor, rows, edges):
    for row in range(len(indptr) - 1):
        for e in range(indptr[row], indptr[row + 1]):
            slot = cursor[indices[e]]
            cursor[indices[e]] = slot + 1
            rows[slot] = row
            edges[slot] = e


def transpose_torch(indptr: Tensor, indices: Tensor, num_src: int) -> Transposed:
    """`transpose` in plain torch, for any device."""
    edges = torch.argsort(indices, stable=True)
    counts = torch.bincount(indices, minlength=num_src)
    out_indptr = torch.zeros(num_src + 1, dtype=torch.int64, device=indices.device)
    torch.cumsum(counts, 0, out=out_indptr[1:])
    rows = torch.arange(len(indptr) - 1, device=indices.device, dtype=indices.dtype).repeat_interleave(indptr.diff())
    return Transposed(out_indptr, rows[edges], edges)


def transpose(indptr: Tensor, indices: Tensor, num_src: int) -> Transposed:
    """List the edges of a CSR by source; a source's edges keep the order of their destinations.

    Args:
        indptr: int64 [num_dst + 1].
        indices: integer [num_edges], sources in [0, num_src).
        num_src: sources.
    """
    if indices.device.type != "cpu":
        return transpose_torch(indptr, indices, num_src)
    out_indptr = torch.zeros(num_src + 1, dtype=torch.int64)
    rows, edges = torch.empty_like(indices), torch.empty(len(indices), dtype=torch.int64)
    _count_sources(indices.numpy(), out_indptr.numpy())
    _place_edges(indptr.numpy(), indices.numpy(), out_indptr[:-1].clone().numpy(), rows.numpy(), edges.numpy())
    return Transposed(out_indptr, rows, edges)
