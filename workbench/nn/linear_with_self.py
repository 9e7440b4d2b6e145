"""Linear layers of sources and destinations with fewer allocations: one for the own rows, one added to a sum."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from workbench.kernels.compiler_boundary import runs_eagerly


class _LinearWithSelf(torch.autograd.Function):
    """Adds the gradient of the own rows in place: the backward of a slice would allocate a second [num_src, in_dim].

    If `h` requires no gradient (the input features), its own rows don't either: the layer that reads them would compute
    an unused gradient of [num_dst, in_dim].
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor | None, num_dst: int) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(h, weight)
        ctx.set_materialize_grads(False)
        h_dst = h[:num_dst]
        if not ctx.needs_input_grad[0]:
            ctx.mark_non_differentiable(h_dst)
        return nn.functional.linear(h, weight, bias), h_dst

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, grad_dst: Tensor | None) -> Any:  # type: ignore[override]
        h, weight = ctx.saved_tensors
        if grad is None:  # only h_dst was used
            grad = torch.zeros(h.shape[0], weight.shape[0])
        # Autocast runs this layer's forward pass, and that of the layer before, in lower precision.
        grad, weight = grad.to(h), weight.to(h)
        grad_h = grad @ weight if ctx.needs_input_grad[0] else None
        if grad_h is not None and grad_dst is not None:
            grad_h[: grad_dst.shape[0]] += grad_dst
        grad_weight = grad.T @ h if ctx.needs_input_grad[1] else None
        return grad_h, grad_weight, grad.sum(0) if ctx.needs_input_grad[2] else None, None


@runs_eagerly
def linear_with_self(h: Tensor, num_dst: int, weight: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Compute `linear(h, weight, bias)` and `h[:num_dst]`.

    Args:
        h: floating [num_src, in_dim].
        num_dst: number of destinations, the first rows of `h`.
        weight: floating [out_dim, in_dim].
        bias: floating [out_dim], or None.

    Returns:
        [num_src, out_dim] and [num_dst, in_dim].
    """
    return _LinearWithSelf.apply(h, weight, bias, num_dst)


def add_to_linear(linear: nn.Module, h: Tensor, other: Tensor) -> Tensor:
    """Compute `linear(h) + other`, in the memory of the linear layer's result if nothing else can refer to it.

    Args:
        linear: a linear layer; a hook on it may keep its result, and a module of another type may save it.
        h: floating [rows, in_dim].
        other: floating [rows, out_dim].

    Returns:
        [rows, out_dim].
    """
    out = linear(h)
    if type(linear) is not nn.Linear or out.dtype != other.dtype or _has_hooks(linear) or torch.compiler.is_compiling():
        return out + other
    return out.add_(other)


def _has_hooks(module: nn.Module) -> bool:
    everywhere = nn.modules.module
    hooks = (module._forward_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or bool(everywhere._global_forward_hooks or everywhere._global_backward_hooks)
