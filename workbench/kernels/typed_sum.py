"""Sums over typed edges whose messages depend on the edge's type, with exact gradients: the aggregations of R-GCN.

Forward: `out[r] = Σ_{e in row r} weight[e] · T(type[e]) · x[source(e)]`, where an `Operation` defines the linear maps T
by their parameters. On the CPU neither direction stores a message per edge, and every sum runs in a fixed order of
edges, so the result does not depend on the number of threads.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from workbench.kernels.buffers import uninitialised
from workbench.kernels.jit import compiled, runs_eagerly
from workbench.kernels.lane_instructions import prefetch_row, rows_ahead
from workbench.kernels.segment import Adjacency, arrays, check_rows, compute_dtype, edge_ranges, use_compiled
from workbench.kernels.threads import parallel_edges, parallel_rows

_MIN_VALUES_PER_THREAD = 1 << 16


class Edges(NamedTuple):
    """The edges of a block with their types, in both implementations' terms.

    Args:
        adjacency: a block.
        types: integer [num_edges].
        weight: [num_edges] in the dtype of the sums, or None for ones.
    """

    adjacency: Adjacency
    types: Tensor
    weight: Tensor | None


class Operation(NamedTuple):
    """A family of linear maps, one per type, by the sums over edges that it needs.

    Args:
        sum_compiled: (edges, indptr, ends, indices, positions, x, parameters) → sums of the rows of a CSR, whose
            entries are the edges at `positions` (None: all in order).
        sum_torch: (edges, to, source, size, x, parameters) → the same over edges in any order, on any device.
        gradient_of_parameters: (edges, gradient, x, parameters) → the gradient of the parameters.
        gradient_of_weight: (edges, gradient, x, parameters) → the gradient of the edge weights, [num_edges].
        adjoint: maps the parameters to those of the adjoint maps, which gradients of `x` pass through.
    """

    sum_compiled: Callable[..., Tensor]
    sum_torch: Callable[[Edges, Tensor, Tensor, int, Tensor, Tensor], Tensor]
    gradient_of_parameters: Callable[[Edges, Tensor, Tensor, Tensor], Tensor]
    gradient_of_weight: Callable[[Edges, Tensor, Tensor, Tensor], Tensor]
    adjoint: Callable[[Tensor], Tensor] = lambda parameters: parameters

    def sum_rows(self, edges: Edges, x: Tensor, parameters: Tensor) -> Tensor:
        """Sum the messages of each destination."""
        block = edges.adjacency
        if use_compiled(x):
            return self.sum_compiled(edges, block.indptr, None, block.indices, None, x, parameters)
        return self.sum_torch(edges, block.destinations, block.indices, block.num_dst, x, parameters)

    def gradient_of_x(self, edges: Edges, grad: Tensor, parameters: Tensor) -> Tensor:
        """Sum the gradients of each source's messages."""
        block, parameters = edges.adjacency, self.adjoint(parameters)
        if use_compiled(grad):
            indptr, ends, rows, positions = block.transposed
            return self.sum_compiled(edges, indptr, ends, rows, positions, grad, parameters)
        return self.sum_torch(edges, block.indices, block.destinations, block.num_src, grad, parameters)


def columns_per_thread(columns: int, edges: Edges, values_per_edge: int) -> int:
    """Return how many bases or blocks a thread needs at least, so that small gradients of parameters run in one."""
    return columns if edges.adjacency.num_edges * values_per_edge < _MIN_VALUES_PER_THREAD else 1


@runs_eagerly
def typed_sum_with_self(
    operation: Operation,
    adjacency: Adjacency,
    types: Tensor,
    x: Tensor,
    parameters: Tensor,
    weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the sums of an operation and the destinations' rows `x[:num_dst]`, with one fused backward pass.

    Args:
        types: integer [num_edges], in [0, num_types); kernels do not check them.
        x: floating point [num_src, …]; half precision is summed in float32.
        parameters: floating point [num_types, …].
        weight: floating point [num_edges], or None for ones.

    Returns:
        The sums [num_dst, …] and the destinations' rows, in the dtype of `x`; all inputs are differentiable once.
    """
    check_rows(x, adjacency)
    dtype = compute_dtype(x)
    weight = None if weight is None else weight.to(dtype)
    out, self_rows = _TypedSum.apply(x.to(dtype), parameters.to(dtype), weight, types, adjacency, operation)
    return out.to(x.dtype), self_rows.to(x.dtype)


class _TypedSum(torch.autograd.Function):
    """Adds the gradient of the destinations' rows in place: a slice's backward would allocate another [num_src, …]."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        parameters: Tensor,
        weight: Tensor | None,
        types: Tensor,
        adjacency: Adjacency,
        operation: Operation,
    ) -> tuple[Tensor, Tensor]:
        ctx.adjacency, ctx.operation = adjacency, operation
        if ctx.needs_input_grad[0]:
            adjacency.expect_transposed()
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x if any(ctx.needs_input_grad[1:3]) else None, parameters, weight, types)
        self_rows = x[: adjacency.num_dst]
        if not ctx.needs_input_grad[0]:
            ctx.mark_non_differentiable(self_rows)
        return operation.sum_rows(Edges(adjacency, types, weight), x, parameters), self_rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, self_grad: Tensor | None) -> Any:  # type: ignore[override]
        x, parameters, weight, types = ctx.saved_tensors
        edges, operation = Edges(ctx.adjacency, types, weight), ctx.operation
        needs_x, needs_parameters, needs_weight = ctx.needs_input_grad[:3]
        for_x = for_parameters = for_weight = None
        if grad is not None:
            for_x = operation.gradient_of_x(edges, grad, parameters) if needs_x else None
            for_parameters = operation.gradient_of_parameters(edges, grad, x, parameters) if needs_parameters else None
            for_weight = operation.gradient_of_weight(edges, grad, x, parameters) if needs_weight else None
        if needs_x and self_grad is not None:
            if for_x is None:  # only the destinations' rows were used
                for_x = self_grad.new_zeros(ctx.adjacency.num_src, *self_grad.shape[1:])
            for_x[: ctx.adjacency.num_dst] += self_grad
        return for_x, for_parameters, for_weight, None, None, None


@runs_eagerly
def inverse_relation_degrees(adjacency: Adjacency, types: Tensor, num_types: int, dtype: torch.dtype) -> Tensor:
    """Return 1 / c per edge, where c counts the edges of the same type in the same row: [num_edges] in `dtype`.

    Args:
        types: integer [num_edges], in [0, num_types).
        dtype: float32 or float64.
    """
    if not use_compiled(types):
        return inverse_relation_degrees_torch(adjacency, types, num_types, dtype)
    out = torch.empty(adjacency.num_edges, dtype=dtype)
    args = arrays(adjacency.indptr, types, out)
    parallel_edges(lambda lo, hi: _inverse_relation_degrees(*args, num_types, lo, hi), adjacency.indptr)
    return out


def inverse_relation_degrees_torch(adjacency: Adjacency, types: Tensor, num_types: int, dtype: torch.dtype) -> Tensor:
    """Compute `inverse_relation_degrees` in plain torch, on any device."""
    group = adjacency.destinations.long() * num_types + types
    ordered = group.sort().values  # torch.unique would make the host wait for a GPU
    counts = torch.searchsorted(ordered, group, right=True) - torch.searchsorted(ordered, group)
    return counts.to(dtype).reciprocal_()


@compiled
def _inverse_relation_degrees(indptr, types, out, num_types, lo, hi):
    counts = np.zeros(num_types, np.int64)
    for row in range(lo, hi):
        for e in range(indptr[row], indptr[row + 1]):
            counts[types[e]] += 1
        for e in range(indptr[row], indptr[row + 1]):
            out[e] = 1 / counts[types[e]]
        for e in range(indptr[row], indptr[row + 1]):
            counts[types[e]] = 0


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
            out.index_add_(0, to[part], torch.bmm(factors[:, None], rows)[:, 0].to(out.dtype))  # of autocast
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
    return torch.bmm(wide, narrow[:, :, None])[:, :, 0].to(x.dtype)  # of autocast


BASIS = Operation(_sum_compiled, _sum_torch, _gradient_of_coefficients, _gradient_of_weight)
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
