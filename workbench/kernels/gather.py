"""Gathering source rows per edge, for layers that process every message (LSTM)."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from workbench.kernels.row_sums import sum_rows
from workbench.kernels.segment import Adjacency, check_rows, use_compiled


class _Gather(torch.autograd.Function):
    """Its backward pass sums over each source's edges instead of scattering, independent of the number of threads."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, adjacency: Adjacency) -> Tensor:
        ctx.adjacency = adjacency
        ctx.save_for_backward(order)
        return x.index_select(0, adjacency.indices[order])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        (order,) = ctx.saved_tensors
        wide = grad if grad.dtype == torch.float64 else grad.float()
        if use_compiled(grad):
            position = torch.empty_like(order)
            position[order] = torch.arange(len(order))
            indptr, _, edges = ctx.adjacency.transposed
            out = sum_rows(indptr, position[edges], wide.unsqueeze(1)).squeeze(1)
        else:
            out = wide.new_zeros(ctx.adjacency.num_src, grad.shape[1])
            out.index_add_(0, ctx.adjacency.indices[order], wide)
        return out.to(grad.dtype), None, None


def gather_edges(adjacency: Adjacency, x: Tensor, order: Tensor) -> Tensor:
    """Gather `x[source]` for every edge.

    Args:
        adjacency: a block.
        x: floating point [num_src, channels].
        order: int64 [num_edges], a permutation of the edges: the order of the result's rows.

    Returns:
        [num_edges, channels] in the dtype of `x`.

    Raises:
        ValueError: if `x` has another number of rows.
    """
    check_rows(x, adjacency)
    return _Gather.apply(x, order, adjacency)
