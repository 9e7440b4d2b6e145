"""Weighted sums and means of source rows over the in-edges of each destination, with exact gradients.

Forward: `out[r] = scale[r] · Σ_{e in row r} weight[e] · x[source(e)]`. The gradient of `x` is the same sum over the
transposed edges; that of `weight` is a dot product per edge. Every sum runs in the order of the edges of its row, so
the result does not depend on the number of threads.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from workbench.kernels.compiler_boundary import runs_eagerly
from workbench.kernels.row_sums import edge_dots, edge_dots_torch, per_row, scatter_sum_torch, sum_rows
from workbench.kernels.segment import Adjacency, check_rows, compute_dtype, inverse_in_degrees, use_compiled


def segment_sum(
    adjacency: Adjacency, x: Tensor, weight: Tensor | None = None, *, scale: Tensor | None = None
) -> Tensor:
    """Compute the weighted sum of source rows per destination; zeros without in-edges.

    Args:
        adjacency: a block.
        x: floating point [num_src, channels] or [num_src, heads, width]; half precision is summed in float32.
        weight: floating point [num_edges], or [num_edges, heads] for a three-dimensional `x`; None for ones.
        scale: [num_dst], factors of the sums, treated as constants; None for ones.

    Returns:
        [num_dst, …] in the dtype of `x`. `x` and `weight` are differentiable once.

    Raises:
        ValueError: if shapes do not match.
    """
    return segment_sum_with_self(adjacency, x, weight, scale=scale)[0]


def segment_mean(adjacency: Adjacency, x: Tensor, weight: Tensor | None = None) -> Tensor:
    """Compute the weighted sum of source rows divided by the in-degree, per destination; zeros without in-edges.

    Args:
        adjacency: a block.
        x: floating point [num_src, channels] or [num_src, heads, width]; half precision is summed in float32.
        weight: floating point [num_edges], or [num_edges, heads] for a three-dimensional `x`; None for ones.

    Returns:
        [num_dst, …] in the dtype of `x`.

    Raises:
        ValueError: if shapes do not match.
    """
    return segment_sum(adjacency, x, weight, scale=inverse_in_degrees(adjacency, compute_dtype(x)))


@runs_eagerly
def segment_sum_with_self(
    adjacency: Adjacency, x: Tensor, weight: Tensor | None = None, *, scale: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute `segment_sum` and the destinations' rows `x[:num_dst]`, with one fused backward pass.

    Args:
        adjacency: a block.
        x: floating point [num_src, channels] or [num_src, heads, width]; half precision is summed in float32.
        weight: floating point [num_edges], or [num_edges, heads] for a three-dimensional `x`; None for ones.
        scale: [num_dst], factors of the sums, treated as constants; None for ones.

    Returns:
        The sums [num_dst, …] and the destinations' rows [num_dst, …], in the dtype of `x`.

    Raises:
        ValueError: if shapes do not match.
    """
    check_rows(x, adjacency)
    if x.dim() != 2 or weight is not None or x.dtype not in (torch.float32, torch.float64):
        return _converted(adjacency, x, weight, scale)
    return _Sum.apply(x, None, None if scale is None else scale.to(x.dtype), adjacency)


def _converted(adjacency: Adjacency, x: Tensor, weight: Tensor | None, scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """Sum in the dtype and the shape that kernels support; in the plain case each conversion would be a call of torch
    and a node of autograd.
    """
    heads = x.shape[1] if weight is not None and weight.dim() == 2 else 1
    if weight is not None and tuple(weight.shape) not in ((adjacency.num_edges,), (adjacency.num_edges, heads)):
        raise ValueError(f"weight has shape {tuple(weight.shape)}; pass one row per edge: {adjacency.num_edges}")
    dtype, groups = compute_dtype(x), [heads] if heads > 1 else []
    weight = None if weight is None else weight.to(dtype).reshape(-1, *groups)
    rows = x.to(dtype).reshape(x.shape[0], *groups, math.prod(x.shape[1:]) // heads)
    out, self_rows = _Sum.apply(rows, weight, None if scale is None else scale.to(dtype), adjacency)
    shape = (adjacency.num_dst, *x.shape[1:])
    return out.view(shape).to(x.dtype), self_rows.view(shape).to(x.dtype)


def _forward(adjacency: Adjacency, x: Tensor, weight: Tensor | None, scale: Tensor | None) -> Tensor:
    if use_compiled(x):
        return sum_rows(adjacency.indptr, adjacency.indices, x, weight=weight, row_scale=scale)
    out = scatter_sum_torch(adjacency.destinations, adjacency.indices, x, adjacency.num_dst, weight=weight)
    return out if scale is None else out.mul_(per_row(scale, out))


def _gradient_of_x(adjacency: Adjacency, grad: Tensor, weight: Tensor | None, scale: Tensor | None) -> Tensor:
    if use_compiled(grad):
        indptr, ends, rows, edges = adjacency.transposed
        edges = None if weight is None else edges
        return sum_rows(indptr, rows, grad, ends=ends, weight=weight, edges=edges, column_scale=scale)
    to, source = adjacency.indices, adjacency.destinations
    return scatter_sum_torch(to, source, grad, adjacency.num_src, weight=weight, scale=scale)


def _gradient_of_weight(adjacency: Adjacency, grad: Tensor, x: Tensor, scale: Tensor | None) -> Tensor:
    if not use_compiled(x):
        dots = edge_dots_torch(adjacency, grad, x)
        return dots if scale is None else dots.mul_(per_row(scale.index_select(0, adjacency.destinations), dots))
    return edge_dots(adjacency, grad, x, scale)


class _Sum(torch.autograd.Function):
    """Returns the sums and the destinations' rows `x[:num_dst]`; saves no messages, and `x` only for weight gradients.

    The gradient of the destinations' rows is added to that of `x` here: through a slice, autograd would allocate and
    add a second array for all sources.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, scale: Tensor | None, adjacency: Adjacency
    ) -> tuple[Tensor, Tensor]:
        ctx.adjacency = adjacency
        if ctx.needs_input_grad[0]:
            adjacency.expect_transposed()
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight, scale)
        return _forward(adjacency, x, weight, scale), x[: adjacency.num_dst]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, self_grad: Tensor | None) -> Any:  # type: ignore[override]
        x, weight, scale = ctx.saved_tensors
        adjacency = ctx.adjacency
        if grad is None:
            if self_grad is None:
                return None, None, None, None
            grad = torch.zeros_like(self_grad)  # only the destinations' rows were used
        for_x = _gradient_of_x(adjacency, grad, weight, scale) if ctx.needs_input_grad[0] else None
        if for_x is not None and self_grad is not None:
            for_x[: adjacency.num_dst] += self_grad
        for_weight = None if x is None else _gradient_of_weight(adjacency, grad, x, scale)
        return for_x, for_weight, None, None
