"""Attention over the in-edges of each destination: softmax of leaky_relu(left[source] + right[destination])."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from workbench.kernels.buffers import uninitialised
from workbench.kernels.jit import compiled, runs_eagerly
from workbench.kernels.lane_instructions import prefetch_row, rows_ahead
from workbench.kernels.segment import (
    Adjacency,
    arrays,
    check_rows,
    compute_dtype,
    scatter_sum_torch,
    sum_rows,
    use_compiled,
)
from workbench.kernels.threads import parallel_edges


@compiled
def _leaky(value, slope):
    return value if value > 0 else value * slope


@compiled
def _scores_below_maximum(indptr, indices, left, right, slope, out, lo, hi):
    """Compute `out[e, h]`, the score minus the largest score of the row, for all edges of the rows."""
    ahead, end = rows_ahead(left.strides[0]), indptr[hi]
    largest = np.empty(left.shape[1], left.dtype)
    for row in range(lo, hi):
        largest[:] = -np.inf
        for e in range(indptr[row], indptr[row + 1]):
            if e + ahead < end:
                prefetch_row(left, indices[e + ahead])
            for h in range(left.shape[1]):
                out[e, h] = _leaky(left[indices[e], h] + right[row, h], slope)
                largest[h] = max(largest[h], out[e, h])
        for e in range(indptr[row], indptr[row + 1]):
            for h in range(left.shape[1]):
                out[e, h] -= largest[h]


@compiled
def _divide_by_sums(indptr, values, lo, hi):
    total = np.empty(values.shape[1], values.dtype)
    for row in range(lo, hi):
        total[:] = 0
        for e in range(indptr[row], indptr[row + 1]):
            for h in range(values.shape[1]):
                total[h] += values[e, h]
        for e in range(indptr[row], indptr[row + 1]):
            for h in range(values.shape[1]):
                values[e, h] /= total[h]


@compiled
def _score_gradients(indptr, indices, left, right, slope, attention, grad, out, out_right, lo, hi):
    """Compute `out[e, h]`, the gradient of left + right of each edge, and `out_right`, its sum over each row."""
    ahead, end = rows_ahead(left.strides[0]), indptr[hi]
    dots = np.empty(left.shape[1], left.dtype)
    for row in range(lo, hi):
        dots[:] = 0
        out_right[row] = 0
        for e in range(indptr[row], indptr[row + 1]):
            if e + ahead < end:
                prefetch_row(left, indices[e + ahead])
            for h in range(left.shape[1]):
                dots[h] += attention[e, h] * grad[e, h]
        for e in range(indptr[row], indptr[row + 1]):
            for h in range(left.shape[1]):
                value = attention[e, h] * (grad[e, h] - dots[h])
                value = value if left[indices[e], h] + right[row, h] > 0 else value * slope
                out[e, h] = value
                out_right[row, h] += value


def attention_rows(adjacency: Adjacency, left: Tensor, right: Tensor, slope: float) -> Tensor:
    """Compute the attention [num_edges, heads] on the CPU."""
    out = uninitialised(left, adjacency.num_edges, left.shape[1])
    indptr, indices, lefts, rights, outs = arrays(adjacency.indptr, adjacency.indices, left, right, out)
    typed = outs.dtype.type(slope)
    parallel_edges(
        lambda lo, hi: _scores_below_maximum(indptr, indices, lefts, rights, typed, outs, lo, hi),
        adjacency.indptr,
        left.shape[1],
    )
    out.exp_()  # torch's exp is vectorised, numba's is not
    parallel_edges(lambda lo, hi: _divide_by_sums(indptr, outs, lo, hi), adjacency.indptr, left.shape[1])
    return out


def attention_rows_torch(adjacency: Adjacency, left: Tensor, right: Tensor, slope: float) -> Tensor:
    """Compute `attention_rows` in plain torch, on any device."""
    rows = adjacency.destinations
    out = torch.nn.functional.leaky_relu(_sums_per_edge(adjacency, left, right), slope)
    largest = out.new_full(right.shape, float("-inf"))
    largest.scatter_reduce_(0, rows.long()[:, None].expand_as(out), out, "amax")
    out = out.sub_(largest.index_select(0, rows)).exp_()
    return out.div_(out.new_zeros(right.shape).index_add_(0, rows, out).index_select(0, rows))


def _sums_per_edge(adjacency: Adjacency, left: Tensor, right: Tensor) -> Tensor:
    return left.index_select(0, adjacency.indices).add_(right.index_select(0, adjacency.destinations))


def _gradients(
    adjacency: Adjacency, left: Tensor, right: Tensor, slope: float, attention: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of `left + right` per edge, and of `right`."""
    if use_compiled(left):
        out, for_right = uninitialised(attention, *attention.shape), right.new_empty(right.shape)  # contiguous
        indptr, indices, lefts, rights = arrays(adjacency.indptr, adjacency.indices, left, right)
        args = arrays(attention, grad, out, for_right)
        typed = lefts.dtype.type(slope)
        parallel_edges(
            lambda lo, hi: _score_gradients(indptr, indices, lefts, rights, typed, *args, lo, hi),
            adjacency.indptr,
            left.shape[1],
        )
        return out, for_right
    rows = adjacency.destinations
    out = attention * grad
    dots = torch.zeros_like(right).index_add_(0, rows, out)
    out -= attention * dots.index_select(0, rows)
    out = torch.where(_sums_per_edge(adjacency, left, right) > 0, out, out * slope)
    return out, torch.zeros_like(right).index_add_(0, rows, out)


def _sum_by_source(adjacency: Adjacency, values: Tensor) -> Tensor:
    if use_compiled(values):
        indptr, ends, _, edges = adjacency.transposed
        return sum_rows(indptr, edges, values, ends=ends)
    edges = torch.arange(adjacency.num_edges, device=values.device)
    return scatter_sum_torch(adjacency.indices, edges, values, adjacency.num_src)


class _Attention(torch.autograd.Function):
    """Saves the attention and one score per node; the scores of edges are recomputed."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, slope: float, adjacency: Adjacency) -> Tensor:
        implementation = attention_rows if use_compiled(left) else attention_rows_torch
        attention = implementation(adjacency, left, right, slope)
        ctx.adjacency, ctx.slope = adjacency, slope
        if ctx.needs_input_grad[0]:
            adjacency.expect_transposed()
        ctx.save_for_backward(left, right, attention)
        return attention

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        left, right, attention = ctx.saved_tensors
        per_edge, for_right = _gradients(ctx.adjacency, left, right, ctx.slope, attention, grad)
        for_left = _sum_by_source(ctx.adjacency, per_edge) if ctx.needs_input_grad[0] else None
        return for_left, for_right, None, None


@runs_eagerly
def edge_attention(adjacency: Adjacency, left: Tensor, right: Tensor, slope: float = 0.2) -> Tensor:
    """Compute the softmax over each destination's in-edges of leaky_relu(left[source] + right[destination]).

    Args:
        left: floating point [num_src, heads].
        right: floating point [num_dst, heads].
        slope: slope of leaky_relu below zero; 1 omits the nonlinearity.

    Returns:
        [num_edges, heads] in the dtype of `left`; half precision is computed in float32.

    Source: Veličković et al., Graph Attention Networks (ICLR 2018), equation 3.
    """
    check_rows(left, adjacency)
    if tuple(right.shape) != (adjacency.num_dst, left.shape[1]):
        raise ValueError(f"right has shape {tuple(right.shape)}; it must be {(adjacency.num_dst, left.shape[1])}")
    dtype = compute_dtype(left)
    return _Attention.apply(left.to(dtype), right.to(dtype), slope, adjacency).to(left.dtype)
