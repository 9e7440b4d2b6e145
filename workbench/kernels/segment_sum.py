"""Weighted sums and means of source rows over the in-edges of each destination, with exact gradients.

Forward: `out[r] = scale[r] · Σ_{e in row r} weight[e] · x[source(e)]`. The gradient of `x` is the same sum over the
transposed edges, that of `weight` a dot product per edge. Every sum runs in the order of the edges of its row, so the
result does not depend on the number of threads.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from workbench.kernels.buffers import uninitialised
from workbench.kernels.eager import runs_eagerly
from workbench.kernels.jit import compiled
from workbench.kernels.prefetch import prefetch_row, rows_ahead
from workbench.kernels.segment import (
    Adjacency,
    arrays,
    check_rows,
    compute_dtype,
    edge_ranges,
    inverse_in_degrees,
    use_compiled,
)
from workbench.kernels.threads import parallel_edges


@compiled
def _sum_rows(indptr, indices, x, weight, edges, row_scale, column_scale, out, lo, hi):
    """Arguments that are None drop out when the kernel is compiled; rows are taken as views so that loops vectorise."""
    ahead, end = rows_ahead(x.strides[0]), indptr[hi]
    for row in range(lo, hi):
        out[row] = 0
        for e in range(indptr[row], indptr[row + 1]):
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


# The order within one dot product is free (it is fixed at compilation): without that it is not vectorised.
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


def sum_rows(
    indptr: Tensor,
    indices: Tensor,
    x: Tensor,
    *,
    weight: Tensor | None = None,
    edges: Tensor | None = None,
    row_scale: Tensor | None = None,
    column_scale: Tensor | None = None,
) -> Tensor:
    """`out[r] = row_scale[r] · Σ_e weight[edges[e]] · column_scale[indices[e]] · x[indices[e]]` on the CPU.

    Args:
        indptr: int64 [rows + 1].
        indices: integer [entries], rows of `x`.
        x: float32 or float64 [n, heads, width].
        weight: [entries, heads].
        edges: integer [entries], the row of `weight` for each entry; None: its own position.
        row_scale: [rows].
        column_scale: [n].
    """
    out = uninitialised(x, len(indptr) - 1, *x.shape[1:])
    args = arrays(indptr, indices, x, weight, edges, row_scale, column_scale, out)
    parallel_edges(lambda lo, hi: _sum_rows(*args, lo, hi), indptr, x.shape[1] * x.shape[2])
    return out


def scatter_sum_torch(
    to: Tensor, source: Tensor, x: Tensor, size: int, *, weight: Tensor | None = None, scale: Tensor | None = None
) -> Tensor:
    """`out[to[e]] += weight[e] · scale[source[e]] · x[source[e]]` over all edges, in plain torch for any device.

    Args:
        to: integer [num_edges], rows of the result.
        source: integer [num_edges], rows of `x`.
        x: floating [n, heads, width].
        size: rows of the result.
        weight: [num_edges, heads].
        scale: [n].
    """
    out = x.new_zeros(size, *x.shape[1:])
    for part in edge_ranges(len(to), x[0:1].nbytes):
        messages = x.index_select(0, source[part])
        if weight is not None:
            messages *= weight[part].unsqueeze(-1)
        if scale is not None:
            messages *= scale.index_select(0, source[part])[:, None, None]
        out.index_add_(0, to[part], messages)
    return out


def edge_dots_torch(adjacency: Adjacency, grad: Tensor, x: Tensor) -> Tensor:
    """[num_edges, heads]: dot products of each edge's rows of `grad` and `x`, in plain torch."""
    out = x.new_empty(adjacency.num_edges, x.shape[1])
    for part in edge_ranges(adjacency.num_edges, 2 * x[0:1].nbytes):
        rows = grad.index_select(0, adjacency.destinations[part])
        out[part] = rows.mul_(x.index_select(0, adjacency.indices[part])).sum(-1)
    return out


def _forward(adjacency: Adjacency, x: Tensor, weight: Tensor | None, scale: Tensor | None) -> Tensor:
    if use_compiled(x):
        return sum_rows(adjacency.indptr, adjacency.indices, x, weight=weight, row_scale=scale)
    out = scatter_sum_torch(adjacency.destinations, adjacency.indices, x, adjacency.num_dst, weight=weight)
    return out if scale is None else out.mul_(scale[:, None, None])


def _gradient_of_x(adjacency: Adjacency, grad: Tensor, weight: Tensor | None, scale: Tensor | None) -> Tensor:
    if use_compiled(grad):
        indptr, rows, edges = adjacency.transposed
        return sum_rows(indptr, rows, grad, weight=weight, edges=None if weight is None else edges, column_scale=scale)
    to, source = adjacency.indices, adjacency.destinations
    return scatter_sum_torch(to, source, grad, adjacency.num_src, weight=weight, scale=scale)


def _gradient_of_weight(adjacency: Adjacency, grad: Tensor, x: Tensor, scale: Tensor | None) -> Tensor:
    if not use_compiled(x):
        dots = edge_dots_torch(adjacency, grad, x)
        return dots if scale is None else dots.mul_(scale.index_select(0, adjacency.destinations)[:, None])
    out = uninitialised(x, adjacency.num_edges, x.shape[1])
    args = arrays(adjacency.indptr, adjacency.indices, grad, x, scale, out)
    parallel_edges(lambda lo, hi: _edge_dots(*args, lo, hi), adjacency.indptr, x.shape[1] * x.shape[2])
    return out


class _Sum(torch.autograd.Function):
    """Gives the sums and the destinations' own rows; saves `x` only for a weight that needs a gradient, no messages.

    The gradient of the own rows is added to that of `x` here: through a slice, autograd would fill and add a second
    array of all sources.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, scale: Tensor | None, adjacency: Adjacency
    ) -> tuple[Tensor, Tensor]:
        ctx.adjacency = adjacency
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight, scale)
        return _forward(adjacency, x, weight, scale), x[: adjacency.num_dst]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, own: Tensor | None) -> Any:  # type: ignore[override]
        x, weight, scale = ctx.saved_tensors
        adjacency = ctx.adjacency
        if grad is None:
            if own is None:
                return None, None, None, None
            grad = torch.zeros_like(own)  # only the own rows were used
        for_x = _gradient_of_x(adjacency, grad, weight, scale) if ctx.needs_input_grad[0] else None
        if for_x is not None and own is not None:
            for_x[: adjacency.num_dst] += own
        for_weight = None if x is None else _gradient_of_weight(adjacency, grad, x, scale)
        return for_x, for_weight, None, None


@runs_eagerly
def segment_sum_and_own(
    adjacency: Adjacency, x: Tensor, weight: Tensor | None = None, *, scale: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`segment_sum`, and the destinations' own rows `x[:num_dst]`, in one step for the backward pass."""
    check_rows(x, adjacency)
    heads = x.shape[1] if weight is not None and weight.dim() == 2 else 1
    if weight is not None and tuple(weight.shape) not in ((adjacency.num_edges,), (adjacency.num_edges, heads)):
        raise ValueError(f"weight has shape {tuple(weight.shape)}; the block has {adjacency.num_edges} edges")
    dtype = compute_dtype(x)
    weight = None if weight is None else weight.to(dtype).reshape(-1, heads)
    rows = x.to(dtype).reshape(x.shape[0], heads, math.prod(x.shape[1:]) // heads)
    out, own = _Sum.apply(rows, weight, None if scale is None else scale.to(dtype), adjacency)
    shape = (adjacency.num_dst, *x.shape[1:])
    return out.view(shape).to(x.dtype), own.view(shape).to(x.dtype)


def segment_sum(
    adjacency: Adjacency, x: Tensor, weight: Tensor | None = None, *, scale: Tensor | None = None
) -> Tensor:
    """For each destination the weighted sum of its sources' rows; zeros without in-edges.

    Args:
        adjacency: a block.
        x: floating [num_src, channels] or [num_src, heads, width]; half precision is summed in float32.
        weight: floating [num_edges], or [num_edges, heads] with the three-dimensional `x`.
        scale: [num_dst], multiplies the sums; a constant.

    Returns:
        [num_dst, …] in the dtype of `x`. Gradients flow to `x` and `weight`, once.

    Raises:
        ValueError: shapes that do not fit.
    """
    return segment_sum_and_own(adjacency, x, weight, scale=scale)[0]


def segment_mean(adjacency: Adjacency, x: Tensor, weight: Tensor | None = None) -> Tensor:
    """The weighted sum over the in-degree (Σ weight · x / in-degree); arguments as for `segment_sum`."""
    return segment_sum(adjacency, x, weight, scale=inverse_in_degrees(adjacency, compute_dtype(x)))
