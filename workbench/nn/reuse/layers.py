"""SAGE, GCN, GIN, ReLU and dropout that reuse buffers (Hoang et al., "BatchGNN", 2023, section 3)."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from workbench.core.block import Block
from workbench.core.randomness import stream
from workbench.kernels.buffers import uninitialised
from workbench.kernels.dropout_mask import apply_mask
from workbench.kernels.segment import check_rows, fused, message_rows, scatter_sum_torch, sum_rows, use_compiled
from workbench.kernels.transpose import Transposed, transpose_into
from workbench.nn.dropout import HashDropout
from workbench.nn.gcn import GCNLayer
from workbench.nn.gin import GINLayer
from workbench.nn.linear_with_self import multiplies_first
from workbench.nn.reuse.workspace import ForwardPass, Slots, Workspace, sharing_memory
from workbench.nn.sage import SAGELayer


class _ReusingLayer(nn.Module):
    """A layer that uses its buffers in a forward pass of the whole model, and allocates as usual outside of one."""

    exchanges_itself = False

    def use(self, workspace: Workspace, position: int, *, is_last: bool) -> None:
        """Set the buffers."""
        self.workspace, self.position, self.is_last = workspace, position, is_last

    def slots(self, block: Block) -> Slots | None:
        """The buffers of the running forward pass of the model; None outside of one."""
        run = self.workspace.active
        if run is None:
            return None
        if block.edge_weight is not None and block.edge_weight.requires_grad:
            raise ValueError(
                "edge weights require a gradient, which layers that reuse buffers do not compute; build the model with "
                "reuse_buffers=False"
            )
        return Slots(run, self.position, self.is_last)


class ReusingSAGELayer(_ReusingLayer, SAGELayer):
    """`SAGELayer` with aggregator "mean" or "gcn" that reuses buffers."""

    def forward(self, block: Block, h: Tensor) -> Tensor:
        slots = self.slots(block)
        if slots is None:
            return super().forward(block, h)
        scale, own, self_weight, bias = in_degrees(block, h, slots), None, None, None
        if self.aggregator == "gcn":
            scale, bias = scale.add_(1).reciprocal_(), self.bias
            own = scale[:, None]
        else:
            scale, self_weight, bias = scale.clamp_(min=1).reciprocal_(), self.fc_self.weight.t(), self.fc_self.bias
        aggregation = Aggregation(block, slots, scale, own)
        return _aggregate_linear(h, self.fc_neigh.weight.t(), bias, self_weight, aggregation)


class ReusingGCNLayer(_ReusingLayer, GCNLayer):
    """`GCNLayer` with norm "right" that reuses buffers."""

    def forward(self, block: Block, h: Tensor) -> Tensor:
        slots = self.slots(block)
        if slots is None:
            return super().forward(block, h)
        aggregation = Aggregation(block, slots, in_degrees(block, h, slots).clamp_(min=1).reciprocal_())
        return _aggregate_linear(h, self.weight, self.bias, None, aggregation)


class ReusingGINLayer(_ReusingLayer, GINLayer):
    """`GINLayer` with a constant ε that reuses buffers; a norm inside its MLP allocates as usual."""

    def forward(self, block: Block, h: Tensor) -> Tensor:
        slots = self.slots(block)
        if slots is None:
            return super().forward(block, h)
        modules: list[Any] = list(self.mlp)
        first, *norms, _, last = modules
        aggregation = Aggregation(block, slots, own=1 + self.eps)
        hidden = AggregateLinear.apply(h, first.weight.t(), first.bias, None, aggregation, False, "hidden")
        for norm in norms:
            hidden = norm(hidden)
        return Linear.apply(ReLU.apply(hidden, slots.run), last.weight.t(), last.bias, slots)


class ReusingReLU(nn.ReLU):
    """ReLU in the memory of its argument.

    Args:
        workspace: of the model.
    """

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()
        self.workspace = workspace

    def forward(self, input: Tensor) -> Tensor:
        run = self.workspace.active
        return super().forward(input) if run is None else ReLU.apply(input, run)


class ReusingDropout(HashDropout):
    """`HashDropout` in the memory of its argument; torch's dropout, without node ids, allocates as usual.

    Args:
        p: probability of dropping a value, in [0, 1).
        layer: number of the layer, from 0 at the input.
        seed: the model's seed.
        workspace: of the model.
    """

    def __init__(self, p: float, layer: int = 0, seed: int = 0, *, workspace: Workspace) -> None:
        super().__init__(p, layer, seed)
        self.workspace = workspace

    def _drop(self, h: Tensor, node_ids: Tensor, step: int) -> Tensor:
        run = self.workspace.active
        if run is None:
            return super()._drop(h, node_ids, step)
        return Dropout.apply(h, node_ids, stream(*self._key(step)), self._threshold, run)


class Aggregation(NamedTuple):
    """The matrix A of `(A h)[v] = scale[v] · Σ e · h_src + own[v] · h[v]`, for the destinations v of a block.

    Args:
        block: one layer of a batch, with the edge weights e.
        slots: where temporaries are.
        scale: [num_dst], or None for ones.
        own: factors of the destinations' own rows, [num_dst, 1] or [1]; None for zeros.
    """

    block: Block
    slots: Slots
    scale: Tensor | None = None
    own: Tensor | None = None

    def apply(self, h: Tensor, out: Tensor) -> Tensor:
        """Compute `A h` in the memory `out`, [num_dst, channels]."""
        block = self.block
        check_rows(h, block)
        weight = None if block.edge_weight is None else block.edge_weight.to(h.dtype)
        if use_compiled(h):
            sum_rows(block.indptr, block.indices, h, weight=weight, row_scale=self.scale, out=out)
        elif kernels := fused(h):
            kernels.sum_rows(block.indptr, block.indices, h, weight=weight, row_scale=self.scale, out=out)
        else:
            self._scatter(self._destinations(), block.indices, h, weight, None, out)
            if self.scale is not None:
                out.mul_(self.scale[:, None])
        return out if self.own is None else out.addcmul_(h[: block.num_dst], self.own)

    def apply_transposed(self, grad: Tensor, out: Tensor) -> Tensor:
        """Compute `Aᵀ grad` in the memory `out`, [num_src, channels]."""
        block = self.block
        weight = None if block.edge_weight is None else block.edge_weight.to(grad.dtype)
        if use_compiled(grad):
            indptr, ends, rows, edges = self._transposed()
            order = None if weight is None else edges
            sum_rows(indptr, rows, grad, ends=ends, weight=weight, edges=order, column_scale=self.scale, out=out)
        elif kernels := fused(grad):
            indptr, indices = block.indptr, block.indices
            kernels.scatter_rows(indptr, indices, grad, len(out), weight=weight, row_scale=self.scale, out=out)
        else:
            self._scatter(block.indices, self._destinations(), grad, weight, self.scale, out)
        if self.own is not None:
            out[: block.num_dst].addcmul_(grad, self.own)
        return out

    def _scatter(
        self, to: Tensor, source: Tensor, x: Tensor, weight: Tensor | None, scale: Tensor | None, out: Tensor
    ) -> None:
        rows = message_rows(len(to), x[0:1].nbytes)
        messages = self.slots.shared("messages", x, rows, *x.shape[1:])
        scatter_sum_torch(to, source, x, len(out), weight=weight, scale=scale, out=out, messages=messages)

    def _transposed(self) -> Transposed:
        """The edges grouped by source: those that the block has computed already, or in buffers."""
        block = self.block
        if "transposed" in block.__dict__:
            return block.transposed
        take, count = self.slots.shared, block.num_edges
        offsets = take("transposed offsets", block.indptr, block.num_src + 2)
        rows = take("transposed rows", block.indices, count)
        edges = take("transposed edges", block.indptr, count if block.edge_weight is not None else 0)
        return transpose_into(block.indptr, block.indices, offsets, rows, edges)

    def _destinations(self) -> Tensor:
        """The destination of every edge: those that the block has computed already, or in buffers."""
        block = self.block
        if "destinations" in block.__dict__:
            return block.destinations
        positions, rows = (self.slots.shared(name, block.indptr, block.num_edges) for name in ("edges", "destinations"))
        torch.arange(block.num_edges, out=positions)
        return torch.searchsorted(block.indptr, positions, right=True, out=rows).sub_(1)


def _aggregate_linear(
    h: Tensor, weight: Tensor, bias: Tensor | None, self_weight: Tensor | None, aggregation: Aggregation
) -> Tensor:
    """Compute the layer in the order that takes less memory."""
    block, (in_dim, out_dim) = aggregation.block, weight.shape
    first = multiplies_first(block.num_src, block.num_dst, in_dim, out_dim, compiled=use_compiled(h))
    return AggregateLinear.apply(h, weight, bias, self_weight, aggregation, first, "output")


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
            h: [num_src, in_dim].
            weight: W, [in_dim, out_dim].
            bias: b, [out_dim], or None.
            self_weight: W_self, [in_dim, out_dim], or None for zeros.
            name: name of the result's buffer.
        """
        slots, num_dst = aggregation.slots, aggregation.block.num_dst
        out, aggregated = slots.result(name, h, num_dst, weight.shape[1]), None
        if multiplies_first:
            product = slots.shared("product", h, len(h), weight.shape[1])
            aggregation.apply(torch.mm(h, weight, out=product), out)
            if bias is not None:
                out.add_(bias)
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


def _weight_gradient(h: Tensor, grad: Tensor, weight: Tensor) -> Tensor:
    """The gradient of W in `h W`, in the layout of W; autograd would copy another one."""
    return torch.mm(h.t(), grad) if weight.is_contiguous() else torch.mm(grad.t(), h).t()


def in_degrees(block: Block, like: Tensor, slots: Slots) -> Tensor:
    """Return the in-degree of every destination, [num_dst] in the dtype of `like`, in a buffer."""
    out = slots.of_layer("scale", like, block.num_dst)
    return torch.sub(block.indptr[1:], block.indptr[:-1], out=out)
