"""Elementwise maximum of weighted source rows over the in-edges of each destination, with exact gradients.

Forward: `out[r, c] = max_{e in row r} weight[e] · x[source(e), c]`, zero without in-edges. The gradient flows to the
winning edge only (the argmax, the first among equals). Backward adds into the sources by ranges of *channels*: each sum
then runs in the order of destinations for any number of threads, and needs no transposed edges.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from workbench.kernels.buffers import uninitialised
from workbench.kernels.compiler_boundary import runs_eagerly
from workbench.kernels.instructions import prefetch_columns, prefetch_row, rows_ahead
from workbench.kernels.jit import compiled
from workbench.kernels.segment import (
    Adjacency,
    arrays,
    check_rows,
    compute_dtype,
    edge_ranges,
    use_compiled,
)
from workbench.kernels.threads import parallel_edges, parallel_rows

_CHANNELS_PER_LINE = 16
_MIN_VALUES_PER_THREAD = 1 << 16


@compiled
def _max_rows(indptr, indices, x, weight, out, winner, lo, hi):
    """Compute maxima and winning edges (`winner`, −1 for an empty row). A NaN always wins, so that it propagates."""
    ahead, end = rows_ahead(x.strides[0]), indptr[hi]
    for row in range(lo, hi):
        best, edge = out[row], winner[row]
        empty = indptr[row] == indptr[row + 1]
        best[:] = 0 if empty else -np.inf
        edge[:] = -1 if empty else indptr[row]
        for e in range(indptr[row], indptr[row + 1]):
            if e + ahead < end:
                prefetch_row(x, indices[e + ahead])
            values = x[indices[e]]
            factor = x.dtype.type(1) if weight is None else weight[e]
            this = winner.dtype.type(e)
            for c in range(len(values)):
                value = factor * values[c]
                wins = (value > best[c]) | ((value != value) & (best[c] == best[c]))
                best[c] = value if wins else best[c]
                edge[c] = this if wins else edge[c]


@compiled
def _add_to_winners(indptr, indices, grad, winner, weight, out, lo, hi):
    """Add `out[source of the winner] += weight · grad` for the channels [lo, hi)."""
    ahead = rows_ahead((hi - lo) * out.itemsize)
    for row in range(len(grad)):
        for e in range(indptr[row], indptr[row + 1]):
            if e + ahead < len(indices):
                prefetch_columns(out, indices[e + ahead], lo, hi)
        edges, grads = winner[row], grad[row]
        for c in range(lo, hi):
            if edges[c] >= 0:
                factor = grads.dtype.type(1) if weight is None else weight[edges[c]]
                out[indices[edges[c]], c] += factor * grads[c]


@compiled
def _weight_of_winners(indices, grad, x, winner, out, lo, hi):
    """Add the gradient of the weights; an edge wins in its own row only, so rows can be divided among threads."""
    for row in range(lo, hi):
        for c in range(grad.shape[1]):
            edge = winner[row, c]
            if edge >= 0:
                out[edge] += grad[row, c] * x[indices[edge], c]


def max_rows(adjacency: Adjacency, x: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Compute the maxima and the winning edges on the CPU.

    Args:
        adjacency: a block.
        x: float32 or float64 [num_src, channels].
        weight: [num_edges] in the dtype of `x`, or None.

    Returns:
        Maxima [num_dst, channels], and winning edges [num_dst, channels], int32 (int64 from 2³¹ edges on).
    """
    out = uninitialised(x, adjacency.num_dst, x.shape[1])
    winner = uninitialised(x, *out.shape, dtype=_edge_dtype(adjacency))
    args = arrays(adjacency.indptr, adjacency.indices, x, weight, out, winner)
    parallel_edges(lambda lo, hi: _max_rows(*args, lo, hi), adjacency.indptr, x.shape[1])
    return out, winner


def max_rows_torch(adjacency: Adjacency, x: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Compute `max_rows` in plain torch, on any device."""
    out = x.new_full((adjacency.num_dst, x.shape[1]), float("-inf"))
    edges = torch.arange(adjacency.num_edges, dtype=_edge_dtype(adjacency), device=x.device)
    winner = edges.new_full(out.shape, adjacency.num_edges)
    parts = list(edge_ranges(adjacency.num_edges, 2 * x[0:1].nbytes))
    rows = adjacency.destinations.long()[:, None].expand(-1, x.shape[1])
    for part in parts:
        out.scatter_reduce_(0, rows[part], _messages(adjacency, x, weight, part), "amax")
    for part in parts:
        messages = _messages(adjacency, x, weight, part)
        wins = (messages == out.gather(0, rows[part])) | messages.isnan()
        candidates = torch.where(wins, edges[part, None], adjacency.num_edges)
        winner.scatter_reduce_(0, rows[part], candidates, "amin")
    none = winner == adjacency.num_edges
    return out.masked_fill_(none, 0), winner.masked_fill_(none, -1)


def _messages(adjacency: Adjacency, x: Tensor, weight: Tensor | None, part: slice) -> Tensor:
    messages = x.index_select(0, adjacency.indices[part])
    return messages if weight is None else messages.mul_(weight[part, None])


def _edge_dtype(adjacency: Adjacency) -> torch.dtype:
    return torch.int32 if adjacency.num_edges < 2**31 else torch.int64


def _gradient_of_x(adjacency: Adjacency, grad: Tensor, winner: Tensor, weight: Tensor | None) -> Tensor:
    out = uninitialised(grad, adjacency.num_src, grad.shape[1]).zero_()
    if use_compiled(grad):
        args = arrays(adjacency.indptr, adjacency.indices, grad, winner, weight, out)
        lines = -(-grad.shape[1] // _CHANNELS_PER_LINE)
        min_lines = lines if grad.numel() < _MIN_VALUES_PER_THREAD else 1

        def add(lo: int, hi: int) -> None:
            _add_to_winners(*args, lo * _CHANNELS_PER_LINE, min(hi * _CHANNELS_PER_LINE, grad.shape[1]))

        parallel_rows(add, lines, min_rows=min_lines)
    elif adjacency.num_edges:
        edges = winner.clamp(min=0).long()
        values = grad.masked_fill(winner < 0, 0)
        out.scatter_add_(0, adjacency.indices.long()[edges], values if weight is None else values.mul_(weight[edges]))
    return out


def _gradient_of_weight(adjacency: Adjacency, grad: Tensor, winner: Tensor, x: Tensor) -> Tensor:
    out = x.new_zeros(adjacency.num_edges)
    if use_compiled(grad):
        args = arrays(adjacency.indices, grad, x, winner, out)
        parallel_edges(lambda lo, hi: _weight_of_winners(*args, lo, hi), adjacency.indptr, x.shape[1])
    elif adjacency.num_edges:
        edges = winner.clamp(min=0).long()
        dots = grad.masked_fill(winner < 0, 0).mul_(x.gather(0, adjacency.indices.long()[edges]))
        out.index_add_(0, edges.flatten(), dots.flatten())
    return out


class _Max(torch.autograd.Function):
    """Saves the winning edges, and `x` only if the weight requires a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, adjacency: Adjacency) -> Tensor:
        implementation = max_rows if use_compiled(x) else max_rows_torch
        out, winner = implementation(adjacency, x, weight)
        ctx.adjacency = adjacency
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight, winner)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        x, weight, winner = ctx.saved_tensors
        for_x = _gradient_of_x(ctx.adjacency, grad, winner, weight) if ctx.needs_input_grad[0] else None
        for_weight = None if x is None else _gradient_of_weight(ctx.adjacency, grad, winner, x)
        return for_x, for_weight, None


@runs_eagerly
def segment_max(adjacency: Adjacency, x: Tensor, weight: Tensor | None = None) -> Tensor:
    """Compute the maximum of weighted source values per destination and channel; zero without in-edges.

    Args:
        adjacency: a block.
        x: floating point [num_src, channels].
        weight: floating point [num_edges], or None.

    Returns:
        [num_dst, channels] in the dtype of `x`. Among equal values the first edge receives the gradient.

    Raises:
        ValueError: if shapes do not match.
    """
    check_rows(x, adjacency)
    if weight is not None and tuple(weight.shape) != (adjacency.num_edges,):
        raise ValueError(f"weight has shape {tuple(weight.shape)}; pass one row per edge: {adjacency.num_edges}")
    dtype = compute_dtype(x)
    return _Max.apply(x.to(dtype), None if weight is None else weight.to(dtype), adjacency).to(x.dtype)
