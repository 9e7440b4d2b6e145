"""Sums over typed edges with one coefficient per type and basis: the aggregation of R-GCN's basis decomposition.

Two directions of one bilinear map, each the gradient of the other. *Expand* sums rows once per basis,
`out[r, b] = Σ_e weight[e] · a[type[e], b] · x[source(e)]`; *contract* sums rows that have a part per basis,
`out[r] = Σ_e Σ_b weight[e] · a[type[e], b] · x[source(e), b]`. The number of dimensions of `x` chooses.
"""

import torch
from torch import Tensor

from workbench.kernels.buffers import uninitialised
from workbench.kernels.instructions import prefetch_row, rows_ahead
from workbench.kernels.jit import compiled
from workbench.kernels.segment import arrays, edge_ranges, use_compiled
from workbench.kernels.threads import parallel_edges, parallel_rows
from workbench.kernels.typed_sum import Edges, Operation, columns_per_thread


def _sum_rows(edges: Edges, x: Tensor, coefficients: Tensor) -> Tensor:
    adjacency = edges.adjacency
    if not use_compiled(x):
        return _sum_torch(edges, adjacency.destinations, adjacency.indices, adjacency.num_dst, x, coefficients)
    return _sum_compiled(edges, adjacency.indptr, None, adjacency.indices, None, x, coefficients)


def _gradient_of_x(edges: Edges, grad: Tensor, coefficients: Tensor) -> Tensor:
    adjacency = edges.adjacency
    if not use_compiled(grad):
        return _sum_torch(edges, adjacency.indices, adjacency.destinations, adjacency.num_src, grad, coefficients)
    indptr, ends, rows, positions = adjacency.transposed
    return _sum_compiled(edges, indptr, ends, rows, positions, grad, coefficients)


def _sum_compiled(
    edges: Edges,
    indptr: Tensor,
    ends: Tensor | None,
    indices: Tensor,
    positions: Tensor | None,
    x: Tensor,
    coefficients: Tensor,
) -> Tensor:
    """Expand or contract the rows of `x` over the rows of a CSR, whose entries are the edges at `positions`."""
    shape = (coefficients.shape[1], x.shape[1]) if x.dim() == 2 else x.shape[2:]
    out = uninitialised(x, len(indptr) - 1, *shape)
    kernel = _expand if x.dim() == 2 else _contract
    args = arrays(indptr, ends, indices, x, edges.types, coefficients, edges.weight, positions, out)
    parallel_edges(lambda lo, hi: kernel(*args, lo, hi), indptr, x[0:1].numel() + out[0:1].numel())
    return out


def _sum_torch(edges: Edges, to: Tensor, source: Tensor, size: int, x: Tensor, coefficients: Tensor) -> Tensor:
    """Compute `out[to[e]] += weight[e] · a[type[e]] · x[source[e]]` in plain torch, on any device."""
    expands = x.dim() == 2
    out = x.new_zeros(size, coefficients.shape[1], x.shape[1]) if expands else x.new_zeros(size, x.shape[2])
    for part in edge_ranges(len(to), max(x[0:1].nbytes, out[0:1].nbytes)):
        factors = _factors(edges, part, coefficients)
        rows = x.index_select(0, source[part])
        if expands:
            out.index_add_(0, to[part], factors[:, :, None] * rows[:, None])
        else:
            out.index_add_(0, to[part], torch.bmm(factors[:, None], rows)[:, 0])
    return out


def _factors(edges: Edges, part: slice, coefficients: Tensor) -> Tensor:
    factors = coefficients.index_select(0, edges.types[part].long())
    return factors if edges.weight is None else factors.mul_(edges.weight[part, None])


def _gradient_of_coefficients(edges: Edges, grad: Tensor, x: Tensor, coefficients: Tensor) -> Tensor:
    out = torch.zeros_like(coefficients, memory_format=torch.contiguous_format)
    if use_compiled(x):
        adjacency, num_bases = edges.adjacency, coefficients.shape[1]
        wide, narrow = (grad, x) if x.dim() == 2 else (x, grad)
        args = arrays(adjacency.indptr, adjacency.indices, wide, narrow, edges.types, edges.weight, out)
        is_expand = x.dim() == 2
        min_bases = columns_per_thread(num_bases, edges, wide[0:1].numel())
        parallel_rows(lambda lo, hi: _coefficient_gradient(*args, is_expand, lo, hi), num_bases, min_bases)
        return out
    for part in edge_ranges(edges.adjacency.num_edges, _dots_bytes(grad, x)):
        dots = _dots(edges, part, grad, x)
        out.index_add_(0, edges.types[part].long(), dots if edges.weight is None else dots * edges.weight[part, None])
    return out


def _gradient_of_weight(edges: Edges, grad: Tensor, x: Tensor, coefficients: Tensor) -> Tensor:
    adjacency = edges.adjacency
    out = x.new_empty(adjacency.num_edges)
    if use_compiled(x):
        wide, narrow = (grad, x) if x.dim() == 2 else (x, grad)
        args = arrays(adjacency.indptr, adjacency.indices, wide, narrow, edges.types, coefficients, out)
        is_expand = x.dim() == 2
        parallel_edges(lambda lo, hi: _weight_gradient(*args, is_expand, lo, hi), adjacency.indptr, wide[0:1].numel())
        return out
    for part in edge_ranges(adjacency.num_edges, _dots_bytes(grad, x)):
        out[part] = (_dots(edges, part, grad, x) * coefficients.index_select(0, edges.types[part].long())).sum(1)
    return out


def _dots_bytes(grad: Tensor, x: Tensor) -> int:
    return grad[0:1].nbytes + x[0:1].nbytes


def _dots(edges: Edges, part: slice, grad: Tensor, x: Tensor) -> Tensor:
    """Compute the dot products of each edge's rows of `grad` and `x` per basis, [edges, bases], in plain torch."""
    to = grad.index_select(0, edges.adjacency.destinations[part])
    source = x.index_select(0, edges.adjacency.indices[part])
    wide, narrow = (to, source) if x.dim() == 2 else (source, to)
    return torch.bmm(wide, narrow[:, :, None])[:, :, 0]


BASIS = Operation(_sum_rows, _gradient_of_x, _gradient_of_coefficients, _gradient_of_weight)
"""x [num_src, width] → [num_dst, bases, width], or x [num_src, bases, width] → [num_dst, width]."""


@compiled
def _expand(indptr, ends, indices, x, types, coefficients, weight, positions, out, lo, hi):
    ahead, end = rows_ahead(x.strides[0]), indptr[hi]
    for row in range(lo, hi):
        out[row] = 0
        for e in range(indptr[row], indptr[row + 1] if ends is None else ends[row]):
            if e + ahead < end:
                prefetch_row(x, indices[e + ahead])
            edge = e if positions is None else positions[e]
            factor = x.dtype.type(1) if weight is None else weight[edge]
            values = x[indices[e]]
            for b in range(coefficients.shape[1]):
                total, scaled = out[row, b], factor * coefficients[types[edge], b]
                for c in range(len(values)):
                    total[c] += scaled * values[c]


@compiled
def _contract(indptr, ends, indices, x, types, coefficients, weight, positions, out, lo, hi):
    ahead, end = rows_ahead(x.strides[0]), indptr[hi]
    for row in range(lo, hi):
        out[row] = 0
        total = out[row]
        for e in range(indptr[row], indptr[row + 1] if ends is None else ends[row]):
            if e + ahead < end:
                prefetch_row(x, indices[e + ahead])
            edge = e if positions is None else positions[e]
            factor = x.dtype.type(1) if weight is None else weight[edge]
            for b in range(coefficients.shape[1]):
                values, scaled = x[indices[e], b], factor * coefficients[types[edge], b]
                for c in range(len(values)):
                    total[c] += scaled * values[c]


# Dot products may be reassociated, which allows vectorisation; the order is fixed at compilation.
@compiled(fastmath={"reassoc", "nsz", "contract"})
def _dot(left, right):
    total = left.dtype.type(0)
    for c in range(len(left)):
        total += left[c] * right[c]
    return total


@compiled
def _coefficient_gradient(indptr, indices, wide, narrow, types, weight, out, is_expand, lo, hi):
    """Add `out[type[e], b] += weight[e] · wide[·, b] · narrow[·]` for the bases [lo, hi)."""
    for row in range(len(indptr) - 1):
        for e in range(indptr[row], indptr[row + 1]):
            factor = wide.dtype.type(1) if weight is None else weight[e]
            outer, inner = (row, indices[e]) if is_expand else (indices[e], row)
            for b in range(lo, hi):
                out[types[e], b] += factor * _dot(wide[outer, b], narrow[inner])


@compiled
def _weight_gradient(indptr, indices, wide, narrow, types, coefficients, out, is_expand, lo, hi):
    for row in range(lo, hi):
        for e in range(indptr[row], indptr[row + 1]):
            outer, inner = (row, indices[e]) if is_expand else (indices[e], row)
            total = wide.dtype.type(0)
            for b in range(coefficients.shape[1]):
                total += coefficients[types[e], b] * _dot(wide[outer, b], narrow[inner])
            out[e] = total
