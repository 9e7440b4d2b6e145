"""Sums over typed edges whose messages depend on the edge's type, with exact gradients: the aggregations of R-GCN.

Forward: `out[r] = Σ_{e in row r} weight[e] · T(type[e]) · x[source(e)]`, where an `Operation` defines the linear maps T
by their parameters. Neither direction stores a message per edge, and every sum runs in a fixed order of edges, so the
result does not depend on the number of threads.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from workbench.kernels.compiler_boundary import runs_eagerly
from workbench.kernels.jit import compiled
from workbench.kernels.segment import Adjacency, arrays, check_rows, compute_dtype, use_compiled
from workbench.kernels.threads import parallel_edges

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
        sum_rows: (edges, x, parameters) → the sums per destination.
        gradient_of_x: (edges, gradient, parameters) → the gradient of `x`.
        gradient_of_parameters: (edges, gradient, x, parameters) → the gradient of the parameters.
        gradient_of_weight: (edges, gradient, x, parameters) → the gradient of the edge weights, [num_edges].
    """

    sum_rows: Callable[[Edges, Tensor, Tensor], Tensor]
    gradient_of_x: Callable[[Edges, Tensor, Tensor], Tensor]
    gradient_of_parameters: Callable[[Edges, Tensor, Tensor, Tensor], Tensor]
    gradient_of_weight: Callable[[Edges, Tensor, Tensor, Tensor], Tensor]


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
        operation: the linear maps.
        adjacency: a block.
        types: integer [num_edges], in [0, num_types); kernels do not check them.
        x: floating point [num_src, …]; half precision is summed in float32.
        parameters: floating point [num_types, …].
        weight: floating point [num_edges], or None for ones.

    Returns:
        The sums [num_dst, …] and the destinations' rows, in the dtype of `x`; all inputs are differentiable once.

    Raises:
        ValueError: if `x` has another number of rows.
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
        adjacency: a block.
        types: integer [num_edges], in [0, num_types).
        num_types: number of types.
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
    _, inverse, counts = torch.unique(group, return_inverse=True, return_counts=True)
    return counts.to(dtype).reciprocal_().index_select(0, inverse)


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
