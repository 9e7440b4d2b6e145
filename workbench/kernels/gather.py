"""Source rows laid out edge by edge, for layers that work on every message (LSTM)."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from workbench.kernels.segment import Adjacency, check_rows, use_compiled
from workbench.kernels.segment_sum import sum_rows


class _Gather(torch.autograd.Function):
    """Backward is a sum over each source's edges, not a scatter: the same for any number of threads."""

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
    """`x[source]` of every edge, in the order asked for.

    Args:
        adjacency: a block.
        x: floating [num_src, channels].
        order: int64 [num_edges], a permutation of the edges.

    Returns:
        [num_edges, channels].

    Raises:
        ValueError: `x` has another number of rows.
    """
    check_rows(x, adjacency)
    return _Gather.apply(x, order, adjacency)
