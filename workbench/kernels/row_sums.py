"""Weighted sums and dot products over the rows of a CSR: the kernels of segment sums and of their gradients."""

import math

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.buffers import uninitialised
from workbench.kernels.instructions import prefetch, prefetch_row, rows_ahead
from workbench.kernels.jit import compiled
from workbench.kernels.segment import Adjacency, arrays, edge_ranges
from workbench.kernels.threads import parallel_edges


def sum_rows(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    *,
    ends: Tensor | None = None,
    weight: Tensor | None = None,
    edges: Tensor | None = None,
    row_scale: Tensor | None = None,
    column_scale: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Compute `out[r] = row_scale[r] · Σ_e weight[edges[e]] · column_scale[indices[e]] · x[indices[e]]` on the CPU.

    Args:
        indptr: int64 [num_rows + 1].
        indices: integer [num_entries], rows of `x`.
        x: float32 or float64 [n, width] or [n, heads, width].
        ends: int64 [num_rows], where each row ends; None: where the next one begins.
        weight: [num_entries], or [num_entries, heads] for a three-dimensional `x`; None for ones.
        edges: integer [num_entries], row of `weight` for each entry; None for the entry's position.
        row_scale: [num_rows], or None for ones.
        column_scale: [n], or None for ones.
        out: memory for the result, contiguous; None to allocate it.

    Returns:
        [num_rows, width] or [num_rows, heads, width] in the dtype of `x`.
    """
    out = uninitialised(x, indptr.shape[0] - 1, *x.shape[1:]) if out is None else out
    kernel = _sum_rows if x.dim() == 2 else _sum_rows_of_heads
    args = arrays(indptr, ends, indices, x, weight, edges, row_scale, column_scale, out)
    parallel_edges(lambda lo, hi: kernel(*args, lo, hi), indptr, math.prod(x.shape[1:]))
    return out


def scatter_sum_torch(
    to: Tensor,
    source: Tensor,
    x: Tensor,
    size: int,
    *,
    weight: Tensor | None = None,
    scale: Tensor | None = None,
    out: Tensor | None = None,
    messages: Tensor | None = None,
) -> Tensor:
    """Compute `out[to[e]] += weight[e] · scale[source[e]] · x[source[e]]` over all edges in plain torch, on any device.

    Args:
        to: integer [num_edges], rows of the result.
        source: integer [num_edges], rows of `x`.
        x: floating point [n, width] or [n, heads, width].
        size: number of rows of the result.
        weight: [num_edges], or [num_edges, heads] for a three-dimensional `x`; None for ones.
        scale: [n], or None for ones.
        out: memory for the result; None to allocate it.
        messages: memory for the messages of a range of edges, [`message_rows`, …]; None to allocate them.

    Returns:
        [size, width] or [size, heads, width] in the dtype of `x`.
    """
    out = x.new_zeros(size, *x.shape[1:]) if out is None else out.zero_()
    for part in edge_ranges(len(to), x[0:1].nbytes):
        ids = source[part]
        rows = torch.index_select(x, 0, ids, out=None if messages is None else messages[: len(ids)])
        if weight is not None:
            rows *= weight[part].unsqueeze(-1)
        if scale is not None:
            rows *= per_row(scale.index_select(0, ids), rows)
        out.index_add_(0, to[part], rows)
    return out


def per_row(factors: Tensor, rows: Tensor) -> Tensor:
    """View one factor per row, [n], so that it multiplies all values of its row in `rows`, [n, …]."""
    return factors.view(-1, *[1] * (rows.dim() - 1))


def edge_dots(adjacency: Adjacency, grad: Tensor, x: Tensor, row_scale: Tensor | None) -> Tensor:
    """Compute the scaled dot product of each edge's rows of `grad` and `x` on the CPU.

    Args:
        adjacency: a block.
        grad: float32 or float64 [num_dst, width] or [num_dst, heads, width].
        x: [num_src, width] or [num_src, heads, width] in the dtype of `grad`.
        row_scale: [num_dst], or None for ones.

    Returns:
        [num_edges] or [num_edges, heads] in the dtype of `x`.
    """
    out = uninitialised(x, adjacency.num_edges, *x.shape[1:-1])
    views = (grad, x, out) if x.dim() == 3 else (grad.unsqueeze(1), x.unsqueeze(1), out.unsqueeze(1))
    args = arrays(adjacency.indptr, adjacency.indices, *views[:2], row_scale, views[2])
    parallel_edges(lambda lo, hi: _edge_dots(*args, lo, hi), adjacency.indptr, math.prod(x.shape[1:]))
    return out


def edge_dots_torch(adjacency: Adjacency, grad: Tensor, x: Tensor) -> Tensor:
    """Compute the dot product of each edge's rows of `grad` and `x` in plain torch, in the shape of `edge_dots`."""
    out = x.new_empty(adjacency.num_edges, *x.shape[1:-1])
    for part in edge_ranges(adjacency.num_edges, 2 * x[0:1].nbytes):
        rows = grad.index_select(0, adjacency.destinations[part])
        out[part] = rows.mul_(x.index_select(0, adjacency.indices[part])).sum(-1)
    return out


@compiled
def _sum_rows(indptr, ends, indices, x, weight, edges, row_scale, column_scale, out, lo, hi):
    """Sum the rows of a matrix; branches on arguments that are None vanish at compilation.

    A loop over heads around the innermost one, or a factor of 1, would take as long as adding 32 values.
    """
    ahead, end = rows_ahead(x.strides[0]), indptr[hi]
    for row in range(lo, hi):
        total = out[row]
        total[:] = 0
        for e in range(indptr[row], indptr[row + 1] if ends is None else ends[row]):
            if e + ahead < end:
                prefetch_row(x, indices[e + ahead])
                if weight is not None and edges is not None:
                    prefetch(weight, edges[e + ahead])
            source = np.uint64(indices[e])  # unsigned: skips numba's negative-index check
            values = x[source]
            if weight is None and column_scale is None:
                for c in range(len(values)):
                    total[c] += values[c]
            else:
                factor = x.dtype.type(1)
                if weight is not None:
                    factor = weight[edges[e] if edges is not None else e]
                if column_scale is not None:
                    factor *= column_scale[source]
                for c in range(len(values)):
                    total[c] += factor * values[c]
        if row_scale is not None:
            factor = row_scale[row]
            for c in range(len(total)):
                total[c] *= factor


@compiled
def _sum_rows_of_heads(indptr, ends, indices, x, weight, edges, row_scale, column_scale, out, lo, hi):
    """Sum rows per head; `weight` is [num_entries, heads]. Views of rows let the innermost loop vectorise."""
    ahead, end = rows_ahead(x.strides[0]), indptr[hi]
    for row in range(lo, hi):
        out[row] = 0
        for e in range(indptr[row], indptr[row + 1] if ends is None else ends[row]):
            if e + ahead < end:
                prefetch_row(x, indices[e + ahead])
                if weight is not None and edges is not None:
                    prefetch_row(weight, edges[e + ahead])
            source = indices[e]
            for head in range(x.shape[1]):
                total, values = out[row, head], x[source, head]
                factor = x.dtype.type(1)
                if weight is not None:
                    factor = weight[edges[e] if edges is not None else e, head]
                if column_scale is not None:
                    factor *= column_scale[source]
                for c in range(len(values)):
                    total[c] += factor * values[c]
        if row_scale is not None:
            out[row] *= row_scale[row]


# Dot products may be reassociated, which allows vectorisation; the order is fixed at compilation.
@compiled(fastmath={"reassoc", "nsz", "contract"})
def _edge_dots(indptr, indices, grad, x, row_scale, out, lo, hi):
    ahead, end = rows_ahead(x.strides[0]), indptr[hi]
    for row in range(lo, hi):
        for e in range(indptr[row], indptr[row + 1]):
            if e + ahead < end:
                prefetch_row(x, indices[e + ahead])
            for head in range(x.shape[1]):
                left, right = grad[row, head], x[indices[e], head]
                total = x.dtype.type(0)
                for c in range(len(right)):
                    total += left[c] * right[c]
                out[e, head] = total * row_scale[row] if row_scale is not None else total
