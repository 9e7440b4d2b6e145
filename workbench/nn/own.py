"""A linear layer over all sources that also hands on the destinations' own rows."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from workbench.kernels.eager import runs_eagerly


class _LinearAndOwn(torch.autograd.Function):
    """The gradient of the own rows is added in place: a slice would fill and add a second array of all sources.

    Where `h` needs no gradient (the features of the first layer), its own rows ask for none either: the layer that
    reads them would compute one of [num_dst, in_dim] for nothing.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor | None, num_dst: int) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(h, weight)
        ctx.set_materialize_grads(False)
        own = h[:num_dst]
        if not ctx.needs_input_grad[0]:
            ctx.mark_non_differentiable(own)
        return nn.functional.linear(h, weight, bias), own

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, own: Tensor | None) -> Any:  # type: ignore[override]
        h, weight = ctx.saved_tensors
        if grad is None:  # only the own rows were used
            grad = torch.zeros(h.shape[0], weight.shape[0])
        grad = grad.to(h)  # autocast computes forward in less precision
        for_h = grad @ weight if ctx.needs_input_grad[0] else None
        if for_h is not None and own is not None:
            for_h[: own.shape[0]] += own
        for_weight = grad.T @ h if ctx.needs_input_grad[1] else None
        return for_h, for_weight, grad.sum(0) if ctx.needs_input_grad[2] else None, None


@runs_eagerly
def linear_and_own(linear: nn.Linear, h: Tensor, num_dst: int) -> tuple[Tensor, Tensor]:
    """`linear(h)` and `h[:num_dst]`.

    Args:
        linear: a linear layer.
        h: floating [num_src, in_dim].
        num_dst: destinations, the first rows.
    """
    return _LinearAndOwn.apply(h, linear.weight, linear.bias, num_dst)
