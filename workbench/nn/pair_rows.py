"""Rows of the ends of pairs, gathered so that the gradients of a row that occurs often are summed in one pass."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from workbench.kernels.gather import gather_rows
from workbench.kernels.row_scatter import add_rows
from workbench.kernels.segment import compute_dtype


def pair_rows(h: Tensor, *positions: Tensor) -> tuple[Tensor, ...]:
    """Gather `h[p]` for every `p`, with one sum over all positions in the backward pass, in their order.

    Args:
        h: floating [n, dim].
        positions: int64, of any shape, in [0, n).

    Returns:
        A [*p.shape, dim] per `p`.

    Raises:
        IndexError: a position out of range.
    """
    return _PairRows.apply(h, *positions)


class _PairRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, *positions: Tensor) -> tuple[Tensor, ...]:
        ctx.positions, ctx.shape, ctx.dtype = positions, h.shape, h.dtype
        ctx.set_materialize_grads(False)
        return tuple(gather_rows(h.detach(), p.flatten()).view(*p.shape, h.shape[1]) for p in positions)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:  # type: ignore[override]
        out = None
        for positions, grad in zip(ctx.positions, grads, strict=True):
            if grad is not None and ctx.needs_input_grad[0]:
                dtype = compute_dtype(grad)  # half precision would lose the addends of a row that occurs often
                out = grad.new_zeros(ctx.shape, dtype=dtype) if out is None else out
                add_rows(out, positions.flatten(), grad.flatten(0, -2).to(dtype))
        return None if out is None else out.to(ctx.dtype), *[None] * len(ctx.positions)
