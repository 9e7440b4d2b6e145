"""Sums over typed edges of rows times a block-diagonal matrix per type: the aggregation of R-GCN's "bdd" regularizer.

`out[r, b] = Σ_{e in row r} weight[e] · x[source(e), b] @ Q[type[e], b]`; the gradient of `x` is the same sum over the
transposed edges with transposed matrices.
"""

import torch
from torch import Tensor

from workbench.kernels.buffers import uninitialised
from workbench.kernels.jit import compiled
from workbench.kernels.lane_instructions import prefetch_row, rows_ahead
from workbench.kernels.segment import arrays, edge_ranges, use_compiled
from workbench.kernels.threads import parallel_edges, parallel_rows
from workbench.kernels.typed_sum import Edges, Operation, columns_per_thread


def _sum_compiled(
    edges: Edges,
    indptr: Tensor,
    ends: Tensor | None,
    indices: Tensor,
    positions: Tensor | None,
    x: Tensor,
    matrices: Tensor,
) -> Tensor:
    """Sum products over the rows of a CSR, whose entries are the edges at `positions`."""
    out = uninitialised(x, len(indptr) - 1, x.shape[1], matrices.shape[3])
    args = arrays(indptr, ends, indices, x, edges.types, matrices, edges.weight, positions, out)
    parallel_edges(lambda lo, hi: _sum_products(*args, lo, hi), indptr, matrices[0:1].numel())
    return out


def _sum_torch(edges: Edges, to: Tensor, source: Tensor, size: int, x: Tensor, matrices: Tensor) -> Tensor:
    """Compute `out[to[e]] += weight[e] · x[source[e]] @ Q[type[e]]` in plain torch, on any device."""
    out = x.new_zeros(size, x.shape[1], matrices.shape[3])
    for part in edge_ranges(len(to), matrices[0:1].nbytes):
        rows = x.index_select(0, source[part])
        if edges.weight is not None:
            rows.mul_(edges.weight[part, None, None])
        out.index_add_(0, to[part], _products(rows, matrices.index_select(0, edges.types[part].long())))
    return out


def _products(rows: Tensor, matrices: Tensor) -> Tensor:
    """Multiply rows [n, blocks, in] by matrices [n, blocks, in, out]."""
    return torch.matmul(rows[:, :, None], matrices)[:, :, 0].to(rows.dtype)  # of autocast


def _gradient_of_matrices(edges: Edges, grad: Tensor, x: Tensor, matrices: Tensor) -> Tensor:
    out = x.new_zeros(matrices.shape)
    if use_compiled(x):
        args = arrays(edges.adjacency.indptr, edges.adjacency.indices, grad, x, edges.types, edges.weight, out)
        min_blocks = columns_per_thread(x.shape[1], edges, matrices[0:1].numel())
        parallel_rows(lambda lo, hi: _matrix_gradient(*args, lo, hi), x.shape[1], min_blocks)
        return out
    for part in edge_ranges(edges.adjacency.num_edges, matrices[0:1].nbytes):
        to, rows = _ends(edges, part, grad, x)
        if edges.weight is not None:
            rows.mul_(edges.weight[part, None, None])
        out.index_add_(0, edges.types[part].long(), rows[:, :, :, None] * to[:, :, None])
    return out


def _gradient_of_weight(edges: Edges, grad: Tensor, x: Tensor, matrices: Tensor) -> Tensor:
    adjacency = edges.adjacency
    out = x.new_empty(adjacency.num_edges)
    if use_compiled(x):
        args = arrays(adjacency.indptr, adjacency.indices, grad, x, edges.types, matrices, out)
        parallel_edges(lambda lo, hi: _weight_gradient(*args, lo, hi), adjacency.indptr, matrices[0:1].numel())
        return out
    for part in edge_ranges(adjacency.num_edges, matrices[0:1].nbytes):
        to, rows = _ends(edges, part, grad, x)
        out[part] = (_products(rows, matrices.index_select(0, edges.types[part].long())) * to).sum((1, 2))
    return out


def _ends(edges: Edges, part: slice, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Copy each edge's rows of `grad` and `x`."""
    adjacency = edges.adjacency
    return grad.index_select(0, adjacency.destinations[part]), x.index_select(0, adjacency.indices[part])


BLOCK_DIAGONAL = Operation(
    _sum_compiled, _sum_torch, _gradient_of_matrices, _gradient_of_weight, adjoint=lambda matrices: matrices.mT
)
"""x [num_src, blocks, in] with matrices [types, blocks, in, out] → [num_dst, blocks, out]."""


@compiled
def _sum_products(indptr, ends, indices, x, types, matrices, weight, positions, out, lo, hi):
    ahead, end = rows_ahead(x.strides[0]), indptr[hi]
    for row in range(lo, hi):
        out[row] = 0
        for e in range(indptr[row], indptr[row + 1] if ends is None else ends[row]):
            if e + ahead < end:
                prefetch_row(x, indices[e + ahead])
            edge = e if positions is None else positions[e]
            factor = x.dtype.type(1) if weight is None else weight[edge]
            for b in range(x.shape[1]):
                values, matrix, total = x[indices[e], b], matrices[types[edge], b], out[row, b]
                for i in range(len(values)):
                    scaled, line = factor * values[i], matrix[i]
                    for o in range(len(total)):
                        total[o] += scaled * line[o]


@compiled
def _matrix_gradient(indptr, indices, grad, x, types, weight, out, lo, hi):
    """Add the outer products of each edge's rows for the blocks [lo, hi)."""
    for row in range(len(indptr) - 1):
        for e in range(indptr[row], indptr[row + 1]):
            factor = x.dtype.type(1) if weight is None else weight[e]
            for b in range(lo, hi):
                values, right, total = x[indices[e], b], grad[row, b], out[types[e], b]
                for i in range(len(values)):
                    scaled, line = factor * values[i], total[i]
                    for o in range(len(right)):
                        line[o] += scaled * right[o]


@compiled
def _weight_gradient(indptr, indices, grad, x, types, matrices, out, lo, hi):
    for row in range(lo, hi):
        for e in range(indptr[row], indptr[row + 1]):
            total = x.dtype.type(0)
            for b in range(x.shape[1]):
                values, matrix, right = x[indices[e], b], matrices[types[e], b], grad[row, b]
                for i in range(len(values)):
                    inner, line = x.dtype.type(0), matrix[i]
                    for o in range(len(right)):
                        inner += line[o] * right[o]
                    total += values[i] * inner
            out[e] = total
