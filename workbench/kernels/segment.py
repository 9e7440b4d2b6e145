"""Segment reductions over the rows of a CSR, weighted sums, means and maxima of source rows, with exact gradients.

`segment_sum` and its relatives dispatch to compiled kernels on the CPU, to Triton's on a GPU, and to plain torch where
there are neither, whose messages per edge are bounded by `MESSAGE_BYTES`.
"""

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from workbench.kernels.buffers import uninitialised
from workbench.kernels.csr import index_dtype
from workbench.kernels.jit import compiled, runs_eagerly, triton_kernels
from workbench.kernels.lane_instructions import prefetch, prefetch_columns, prefetch_row, rows_ahead
from workbench.kernels.threads import parallel_edges, parallel_rows
from workbench.kernels.transpose import Transposed

MESSAGE_BYTES = 1 << 28


class Adjacency(Protocol):
    """The edges of a bipartite layer; `workbench.core.block.Block` implements it."""

    @property
    def indptr(self) -> Tensor: ...
    @property
    def indices(self) -> Tensor: ...
    @property
    def num_src(self) -> int: ...
    @property
    def num_dst(self) -> int: ...
    @property
    def num_edges(self) -> int: ...
    @cached_property
    def destinations(self) -> Tensor: ...
    @cached_property
    def transposed(self) -> Transposed: ...
    def expect_transposed(self) -> None: ...


def use_compiled(x: Tensor) -> bool:
    """Return whether to use the compiled implementation: on the CPU; other devices use `fused` kernels or torch's."""
    return x.device.type == "cpu"


def fused(x: Tensor) -> Any:
    """Return `workbench.kernels.triton_rows`, or None where plain torch runs."""
    return triton_kernels("triton_rows", x)


def compute_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype of sums: half precision is summed in float32, since long sums in bfloat16 lose their addends."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def check_rows(x: Tensor, adjacency: Adjacency) -> None:
    """Check that `x` has one row per source, since kernels do not check bounds."""
    if x.dim() < 2 or x.shape[0] != adjacency.num_src:
        raise ValueError(
            f"features have shape {tuple(x.shape)}, but the block has {adjacency.num_src} sources; pass one row per "
            "source (x[batch.node_ids] for the first block)"
        )


def arrays(*tensors: Tensor | None) -> list[Any]:
    """Return NumPy views for compiled kernels; None stays None."""
    return [None if t is None else (t.detach() if t.requires_grad else t).contiguous().numpy() for t in tensors]


@runs_eagerly
def inverse_in_degrees(adjacency: Adjacency, dtype: torch.dtype) -> Tensor:
    """Return 1 / max(1, in-degree), [num_dst] in `dtype`: float32 or float64."""
    indptr = adjacency.indptr
    if not use_compiled(indptr):
        return inverse_in_degrees_torch(indptr, dtype)
    out = torch.empty(indptr.shape[0] - 1, dtype=dtype)
    _inverse_in_degrees(indptr.numpy(), out.numpy())
    return out


def inverse_in_degrees_torch(indptr: Tensor, dtype: torch.dtype) -> Tensor:
    """Compute `inverse_in_degrees` in plain torch, on any device."""
    return indptr.diff().clamp_(min=1).to(dtype).reciprocal_()


@compiled
def _inverse_in_degrees(indptr, out):
    one = out.dtype.type(1)
    for row in range(len(out)):
        out[row] = one / out.dtype.type(max(1, indptr[row + 1] - indptr[row]))


def message_rows(num_edges: int, row_bytes: int) -> int:
    """Return the number of edges of the longest range of `edge_ranges`."""
    return min(num_edges, max(1, MESSAGE_BYTES // max(1, row_bytes)))


def edge_ranges(num_edges: int, row_bytes: int) -> Iterator[slice]:
    """Yield ranges of edges whose messages need at most `MESSAGE_BYTES`, which bounds the workspace in plain torch."""
    step = max(1, message_rows(num_edges, row_bytes))
    for start in range(0, num_edges, step):
        yield slice(start, min(start + step, num_edges))


def segment_sum(
    adjacency: Adjacency, x: Tensor, weight: Tensor | None = None, *, scale: Tensor | None = None
) -> Tensor:
    """Compute the weighted sum of source rows per destination; zeros without in-edges.

    Args:
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
        x: floating point [num_src, channels] or [num_src, heads, width]; half precision is summed in float32.
        weight: floating point [num_edges], or [num_edges, heads] for a three-dimensional `x`; None for ones.
        scale: [num_dst], factors of the sums, treated as constants; None for ones.

    Returns:
        The sums [num_dst, …] and the destinations' rows [num_dst, …], in the dtype of `x`.
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
    if kernels := fused(x):
        return kernels.sum_rows(adjacency.indptr, adjacency.indices, x, weight=weight, row_scale=scale)
    out = scatter_sum_torch(adjacency.destinations, adjacency.indices, x, adjacency.num_dst, weight=weight)
    return out if scale is None else out.mul_(per_row(scale, out))


def _gradient_of_x(adjacency: Adjacency, grad: Tensor, weight: Tensor | None, scale: Tensor | None) -> Tensor:
    if use_compiled(grad):
        indptr, ends, rows, edges = adjacency.transposed
        edges = None if weight is None else edges
        return sum_rows(indptr, rows, grad, ends=ends, weight=weight, edges=edges, column_scale=scale)
    size = adjacency.num_src
    if kernels := fused(grad):
        return kernels.scatter_rows(adjacency.indptr, adjacency.indices, grad, size, weight=weight, row_scale=scale)
    to, source = adjacency.indices, adjacency.destinations
    return scatter_sum_torch(to, source, grad, size, weight=weight, scale=scale)


def _gradient_of_weight(adjacency: Adjacency, grad: Tensor, x: Tensor, scale: Tensor | None) -> Tensor:
    if use_compiled(x):
        return edge_dots(adjacency, grad, x, scale)
    if kernels := fused(x):
        return kernels.edge_dots(adjacency.indptr, adjacency.indices, grad, x, row_scale=scale)
    dots = edge_dots_torch(adjacency, grad, x)
    return dots if scale is None else dots.mul_(per_row(scale.index_select(0, adjacency.destinations), dots))


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
        x: float32 or float64 [num_src, channels].
        weight: [num_edges] in the dtype of `x`, or None.

    Returns:
        Maxima [num_dst, channels], and winning edges [num_dst, channels], int32 (int64 from 2³¹ edges on).
    """
    out = uninitialised(x, adjacency.num_dst, x.shape[1])
    winner = uninitialised(x, *out.shape, dtype=index_dtype(adjacency.num_edges))
    args = arrays(adjacency.indptr, adjacency.indices, x, weight, out, winner)
    parallel_edges(lambda lo, hi: _max_rows(*args, lo, hi), adjacency.indptr, x.shape[1])
    return out, winner


def _maxima(adjacency: Adjacency, x: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    if use_compiled(x):
        return max_rows(adjacency, x, weight)
    if kernels := fused(x):
        return kernels.max_rows(adjacency.indptr, adjacency.indices, x, weight, index_dtype(adjacency.num_edges))
    return max_rows_torch(adjacency, x, weight)


def max_rows_torch(adjacency: Adjacency, x: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Compute `max_rows` in plain torch, on any device."""
    out = x.new_full((adjacency.num_dst, x.shape[1]), float("-inf"))
    edges = torch.arange(adjacency.num_edges, dtype=index_dtype(adjacency.num_edges), device=x.device)
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
        del messages, wins, candidates  # before those of the next edges are allocated
    none = winner == adjacency.num_edges
    return out.masked_fill_(none, 0), winner.masked_fill_(none, -1)


def _messages(adjacency: Adjacency, x: Tensor, weight: Tensor | None, part: slice) -> Tensor:
    messages = x.index_select(0, adjacency.indices[part])
    return messages if weight is None else messages.mul_(weight[part, None])


def _gradient_of_x_of_max(adjacency: Adjacency, grad: Tensor, winner: Tensor, weight: Tensor | None) -> Tensor:
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


def _gradient_of_weight_of_max(adjacency: Adjacency, grad: Tensor, winner: Tensor, x: Tensor) -> Tensor:
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
        out, winner = _maxima(adjacency, x, weight)
        ctx.adjacency = adjacency
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight, winner)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        x, weight, winner = ctx.saved_tensors
        for_x = _gradient_of_x_of_max(ctx.adjacency, grad, winner, weight) if ctx.needs_input_grad[0] else None
        for_weight = None if x is None else _gradient_of_weight_of_max(ctx.adjacency, grad, winner, x)
        return for_x, for_weight, None


@runs_eagerly
def segment_max(adjacency: Adjacency, x: Tensor, weight: Tensor | None = None) -> Tensor:
    """Compute the maximum of weighted source values per destination and channel; zero without in-edges.

    Args:
        x: floating point [num_src, channels].
        weight: floating point [num_edges], or None.

    Returns:
        [num_dst, channels] in the dtype of `x`. Among equal values the first edge receives the gradient.
    """
    check_rows(x, adjacency)
    if weight is not None and tuple(weight.shape) != (adjacency.num_edges,):
        raise ValueError(f"weight has shape {tuple(weight.shape)}; pass one row per edge: {adjacency.num_edges}")
    dtype = compute_dtype(x)
    return _Max.apply(x.to(dtype), None if weight is None else weight.to(dtype), adjacency).to(x.dtype)


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
