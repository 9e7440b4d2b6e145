"""Autograd functions of the allocation-efficient layers: results and gradients are written into buffers.

Gradients of parameters, and of inputs that are no buffers, are new tensors: they outlive the backward pass.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from workbench.kernels.buffers import uninitialised
from workbench.kernels.mask import apply_mask
from workbench.nn.reuse.aggregation import Aggregation
from workbench.nn.reuse.workspace import ForwardPass, Slots, sharing_memory


class AggregateLinear(torch.autograd.Function):
    """`out = (A h) W + h_dst W_self + b`, with A h W computed as A (h W) or as (A h) W."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        self_weight: Tensor | None,
        aggregation: Aggregation,
        multiplies_first: bool,
        name: str,
    ) -> Tensor:
        """Compute the layer.

        Args:
            ctx: of autograd.
            h: [num_src, in_dim].
            weight: W, [in_dim, out_dim].
            bias: b, [out_dim], or None.
            self_weight: W_self, [in_dim, out_dim], or None for zeros.
            aggregation: A.
            multiplies_first: compute A (h W).
            name: name of the result's buffer.
        """
        slots, num_dst = aggregation.slots, aggregation.block.num_dst
        out, aggregated = slots.result(name, h, num_dst, weight.shape[1]), None
        if multiplies_first:
            product = slots.shared("product", h, len(h), weight.shape[1])
            aggregation.apply(torch.mm(h, weight, out=product), out)
            _add(out, bias)
        else:
            aggregated = aggregation.apply(h, slots.of_layer("aggregate", h, num_dst, weight.shape[0]))
            _linear(aggregated, weight, bias, out)
        if self_weight is not None:
            out.addmm_(h[:num_dst], self_weight)
        ctx.save_for_backward(h, weight, self_weight, aggregated)
        ctx.aggregation = aggregation
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        h, weight, self_weight, aggregated = ctx.saved_tensors
        aggregation: Aggregation = ctx.aggregation
        slots, num_dst = aggregation.slots, aggregation.block.num_dst
        slots.run.start_backward()
        needs_h, needs_weight, needs_bias, needs_self = ctx.needs_input_grad[:4]
        for_h = slots.input_gradient(h) if needs_h else None
        for_weight = None
        if aggregated is None:
            product = slots.shared("product", grad, len(h), grad.shape[1])
            if needs_h or needs_weight:
                aggregation.apply_transposed(grad, product)
            for_weight = _weight_gradient(h, product, weight) if needs_weight else None
            if for_h is not None:
                torch.mm(product, weight.t(), out=for_h)
        else:
            for_weight = _weight_gradient(aggregated, grad, weight) if needs_weight else None
            if for_h is not None:
                product = slots.shared("product", grad, num_dst, weight.shape[0])
                aggregation.apply_transposed(torch.mm(grad, weight.t(), out=product), for_h)
        if for_h is not None and self_weight is not None:
            for_h[:num_dst].addmm_(grad, self_weight.t())
        for_self = None
        if self_weight is not None and needs_self:
            for_self = _weight_gradient(h[:num_dst], grad, self_weight)
        return for_h, for_weight, grad.sum(0) if needs_bias else None, for_self, None, None, None


class Linear(torch.autograd.Function):
    """`out = h W + b`."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor | None, slots: Slots) -> Tensor:
        ctx.save_for_backward(h, weight)
        ctx.slots = slots
        return _linear(h, weight, bias, slots.result("output", h, len(h), weight.shape[1]))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        h, weight = ctx.saved_tensors
        slots: Slots = ctx.slots
        slots.run.start_backward()
        needs_h, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        for_h = None
        if needs_h:
            is_buffer = slots.run.workspace.owns(h)
            for_h = slots.shared("hidden gradient", h, *h.shape) if is_buffer else uninitialised(h, *h.shape)
            torch.mm(grad, weight.t(), out=for_h)
        for_weight = _weight_gradient(h, grad, weight) if needs_weight else None
        return for_h, for_weight, grad.sum(0) if needs_bias else None, None


class ReLU(torch.autograd.Function):
    """ReLU in the memory of its argument.

    Dropout may overwrite the result: where it drops a value, the gradient that arrives here is zero in any case.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, run: ForwardPass) -> Tensor:
        ctx.mark_dirty(h)
        ctx.save_for_backward(sharing_memory(h))  # `h` itself may be modified by dropout, which autograd would refuse
        ctx.run = run
        return torch.relu_(h)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        ctx.run.start_backward()
        (result,), out = ctx.saved_tensors, ctx.run.in_place(grad)
        torch.ops.aten.threshold_backward.grad_input(grad, result, 0, grad_input=out)
        return out, None


class Dropout(torch.autograd.Function):
    """`workbench.nn.dropout.HashDropout` in the memory of its argument."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, node_ids: Tensor, key: int, threshold: int, run: ForwardPass) -> Tensor:
        ctx.mark_dirty(h)
        ctx.save_for_backward(node_ids)
        ctx.key, ctx.threshold, ctx.run = key, threshold, run
        apply_mask(h, node_ids, key, threshold, out=h)
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        (node_ids,) = ctx.saved_tensors
        ctx.run.start_backward()
        out = ctx.run.in_place(grad)
        return apply_mask(grad, node_ids, ctx.key, ctx.threshold, out=out), None, None, None, None


def _linear(h: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    return torch.mm(h, weight, out=out) if bias is None else torch.addmm(bias, h, weight, out=out)


def _add(out: Tensor, bias: Tensor | None) -> None:
    if bias is not None:
        out.add_(bias)


def _weight_gradient(h: Tensor, grad: Tensor, weight: Tensor) -> Tensor:
    """The gradient of W in `h W`, in the layout of W; autograd would copy another one."""
    return torch.mm(h.t(), grad) if weight.is_contiguous() else torch.mm(grad.t(), h).t()
