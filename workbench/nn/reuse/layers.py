"""SAGE, GCN, GIN, ReLU and dropout that reuse buffers (Hoang et al., "BatchGNN", 2023, section 3)."""

from typing import Any

from torch import Tensor, nn

from workbench.core.block import Block
from workbench.core.randomness import stream
from workbench.kernels.segment import use_compiled
from workbench.nn.dropout import HashDropout
from workbench.nn.gcn import GCNLayer
from workbench.nn.gin import GINLayer
from workbench.nn.layer_order import multiplies_first
from workbench.nn.reuse.aggregation import Aggregation, in_degrees
from workbench.nn.reuse.functions import AggregateLinear, Dropout, Linear, ReLU
from workbench.nn.reuse.workspace import Slots, Workspace
from workbench.nn.sage import SAGELayer


class _ReusingLayer(nn.Module):
    """A layer that uses its buffers in a forward pass of the whole model, and allocates as usual outside of one."""

    exchanges_itself = False

    def use(self, workspace: Workspace, position: int, *, is_last: bool) -> None:
        """Set the buffers.

        Args:
            workspace: of the model.
            position: number of the layer.
            is_last: the output leaves the model.
        """
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


def _aggregate_linear(
    h: Tensor, weight: Tensor, bias: Tensor | None, self_weight: Tensor | None, aggregation: Aggregation
) -> Tensor:
    """Compute the layer in the order that takes less memory."""
    block, (in_dim, out_dim) = aggregation.block, weight.shape
    first = multiplies_first(block.num_src, block.num_dst, in_dim, out_dim, compiled=use_compiled(h))
    return AggregateLinear.apply(h, weight, bias, self_weight, aggregation, first, "output")
