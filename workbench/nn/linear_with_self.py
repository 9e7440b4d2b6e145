"""Linear layers of sources and destinations with fewer allocations: one for the own rows, one added to a sum."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from workbench.core.block import Block
from workbench.kernels.jit import runs_eagerly


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
    """Compute `linear(h, weight, bias)` and `h[:num_dst]`, the rows of the destinations."""
    return _LinearWithSelf.apply(h, weight, bias, num_dst)


def add_to_linear(linear: nn.Module, h: Tensor, other: Tensor) -> Tensor:
    """Compute `linear(h) + other`, in the memory of the linear layer's result if nothing else can refer to it.

    A hook on the linear layer may keep its result, and a module of another type may save it.
    """
    out = linear(h)
    if type(linear) is not nn.Linear or out.dtype != other.dtype or _has_hooks(linear) or torch.compiler.is_compiling():
        return out + other
    return out.add_(other)


def _has_hooks(module: nn.Module) -> bool:
    everywhere = nn.modules.module
    hooks = (module._forward_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or bool(everywhere._global_forward_hooks or everywhere._global_backward_hooks)


def multiplies_first(num_src: int, num_dst: int, in_dim: int, out_dim: int, *, compiled: bool) -> bool:
    """Return whether a layer multiplies by its weight before it aggregates, which gives the same result up to rounding.

    The order with the smaller intermediate result also takes less time on a CPU: a sampled block has several sources
    per destination, whose dense product is most of a layer's work, and parts of a batch share sources, so that work per
    source is repeated in every micro-batch. The torch kernels of other devices materialise one message per edge, which
    is narrower after a multiplication that narrows the rows.
    """
    return out_dim < in_dim and not (compiled and num_dst * in_dim <= num_src * out_dim)


def multiplies_before_exchange(in_dim: int, out_dim: int, *, needs_gradient: bool, trains: bool = True) -> bool:
    """Return whether ranks multiply the rows that they own and exchange the products, in a layer that multiplies all
    rows before it aggregates them (GAT), because that sends no more bytes: then no rank multiplies rows of others.

    Rows travel forward, and gradients back: of products if the model is trained, of the layer's input if it needs one.
    The answer depends on what all ranks have alike, so that all exchange rows of the same width.
    """
    return out_dim * (1 + trains) <= in_dim * (1 + needs_gradient)


Exchanger = Callable[[Tensor], Tensor]
"""Fills the halo of a block: maps its owned source rows to the rows of [owned | halo]. It may have a method `start(h,
num_dst)` that begins to, and returns the destinations' rows and a function that finishes, such as
`workbench.cooperative.sampler.HaloExchange.start`."""


def call_layer(layer: nn.Module, block: Block, h: Tensor, exchange: Exchanger | None) -> Tensor:
    """Call a layer of a block, whose halo it may fill itself: after, or during, work on its own rows.

    It is called with (block, h, exchange) if it sets `exchanges_itself`, else with (block, h).
    """
    if exchange is None:
        return layer(block, h)
    if getattr(layer, "exchanges_itself", False):
        return layer(block, h, exchange)
    return layer(block, exchange(h))
