"""The layers of `workbench.nn` on fake tensors, allocating and freeing in the same order as the layers do."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from torch import nn

from workbench.memory.analytic import reuse
from workbench.memory.analytic.aggregation import edge_attention, segment_max, segment_sum_with_self
from workbench.memory.analytic.dense import (
    activate,
    add,
    add_bias,
    add_in_place,
    linear,
    linear_with_self,
    normalise,
    scale,
)
from workbench.memory.analytic.fake_autograd import FakeAutograd, FakeTensor
from workbench.memory.analytic.fake_block import FakeBlock
from workbench.memory.analytic.lstm import last_states
from workbench.memory.analytic.rgcn import simulate_rgcn
from workbench.nn.gat import GATLayer
from workbench.nn.gcn import GCNLayer
from workbench.nn.gin import GINLayer
from workbench.nn.layer_order import multiplies_first
from workbench.nn.reuse.layers import ReusingGCNLayer, ReusingGINLayer, ReusingSAGELayer
from workbench.nn.rgcn import RGCNLayer
from workbench.nn.sage import SAGELayer

Parameters = Mapping[int, FakeTensor]
SimulateLayer = Callable[[FakeAutograd, Any, Parameters, FakeBlock, FakeTensor], FakeTensor]
SimulateUpdate = Callable[[FakeAutograd, Any, Parameters, FakeTensor, FakeTensor], FakeTensor]


def _linear(autograd: FakeAutograd, x: FakeTensor, module: nn.Linear, parameters: Parameters) -> FakeTensor:
    weight, bias = parameters.get(id(module.weight)), parameters.get(id(module.bias))
    return linear(autograd, x, module.out_features, weight, bias)


def _linear_with_self(
    autograd: FakeAutograd, x: FakeTensor, num_dst: int, module: nn.Linear, parameters: Parameters
) -> tuple[FakeTensor, FakeTensor]:
    weight, bias = parameters.get(id(module.weight)), parameters.get(id(module.bias))
    return linear_with_self(autograd, x, num_dst, module.out_features, weight, bias)


def simulate_sage(
    autograd: FakeAutograd, layer: SAGELayer, parameters: Parameters, block: FakeBlock, h: FakeTensor
) -> FakeTensor:
    """`workbench.nn.sage.SAGELayer`."""
    if layer.is_linear and _multiplies_first(autograd, layer, block):
        narrow, h_dst = _linear_with_self(autograd, h, block.sizes.num_dst, layer.fc_neigh, parameters)
        return _add_self(
            autograd, layer, parameters, h_dst, _sage_aggregate(autograd, layer, parameters, block, narrow)[0]
        )
    aggregated, h_dst = _sage_aggregate(autograd, layer, parameters, block, h)
    return _update_sage(autograd, layer, parameters, h_dst, aggregated)


def _update_sage(
    autograd: FakeAutograd, layer: SAGELayer, parameters: Parameters, h_dst: FakeTensor, aggregated: FakeTensor
) -> FakeTensor:
    return _add_self(autograd, layer, parameters, h_dst, _linear(autograd, aggregated, layer.fc_neigh, parameters))


def _multiplies_first(autograd: FakeAutograd, layer: SAGELayer | GCNLayer, block: FakeBlock) -> bool:
    sizes = block.sizes.num_src, block.sizes.num_dst, layer.in_dim, layer.out_dim
    return multiplies_first(*sizes, compiled=not autograd.on_cuda)


def _sage_aggregate(
    autograd: FakeAutograd, layer: SAGELayer, parameters: Parameters, block: FakeBlock, h: FakeTensor
) -> tuple[FakeTensor, FakeTensor]:
    num_dst = block.sizes.num_dst
    if layer.aggregator == "lstm":
        weights = [parameters.get(id(p)) for p in layer.lstm.parameters()]
        return last_states(autograd, block, h, layer.lstm, weights), _destination_rows(autograd, h, num_dst)
    if layer.aggregator == "pool":
        pooled, h_self = _linear_with_self(autograd, h, num_dst, layer.fc_pool, parameters)
        if block.sizes.weight_bytes is None:
            return _relu_in_place(autograd, segment_max(autograd, block, pooled)), h_self
        return segment_max(autograd, block, _relu_in_place(autograd, pooled)), h_self
    if layer.aggregator == "mean":
        return segment_sum_with_self(autograd, block, h, scale=block.degrees())
    share = block.degrees(plus_one=True)
    total, h_self = segment_sum_with_self(autograd, block, h, scale=share)
    return add(autograd, total, scale(autograd, h_self, share)), h_self


def _destination_rows(autograd: FakeAutograd, h: FakeTensor, num_dst: int) -> FakeTensor:
    """The destinations' rows, a slice whose gradient is padded to all rows."""
    h_self, shape = h.view(num_dst, is_view=True).detach(), (h.rows, h.cols, h.itemsize)
    autograd.record([h_self], [h], lambda grad: [autograd.empty(*shape)])
    return h_self


def _relu_in_place(autograd: FakeAutograd, x: FakeTensor) -> FakeTensor:
    out = x.view().detach()
    autograd.record([out], [x], lambda grad: [autograd.empty_like(grad)], saves=[out])
    return out


def _add_self(
    autograd: FakeAutograd, layer: SAGELayer, parameters: Parameters, h_dst: FakeTensor, neighbours: FakeTensor
) -> FakeTensor:
    if layer.aggregator != "gcn":
        return add_in_place(autograd, _linear(autograd, h_dst, layer.fc_self, parameters), neighbours)
    return add_bias(autograd, neighbours, layer.bias, parameters)


def simulate_gcn(
    autograd: FakeAutograd, layer: GCNLayer, parameters: Parameters, block: FakeBlock, h: FakeTensor
) -> FakeTensor:
    """`workbench.nn.gcn.GCNLayer`."""
    if _multiplies_first(autograd, layer, block):
        product = linear(autograd, h, layer.out_dim, parameters.get(id(layer.weight)))
        return add_bias(autograd, _gcn_aggregate(autograd, layer, block, product), layer.bias, parameters)
    return _update_gcn(autograd, layer, parameters, h, _gcn_aggregate(autograd, layer, block, h))


def _update_gcn(
    autograd: FakeAutograd, layer: GCNLayer, parameters: Parameters, _h_dst: FakeTensor, aggregated: FakeTensor
) -> FakeTensor:
    out = linear(autograd, aggregated, layer.out_dim, parameters.get(id(layer.weight)))
    return add_bias(autograd, out, layer.bias, parameters)


def _gcn_aggregate(autograd: FakeAutograd, layer: GCNLayer, block: FakeBlock, h: FakeTensor) -> FakeTensor:
    degrees = None if layer.norm == "none" else block.degrees()
    if layer.norm == "both":
        h = scale(autograd, h, block.out_degrees())
    return segment_sum_with_self(autograd, block, h, scale=degrees)[0]


def simulate_gin(
    autograd: FakeAutograd, layer: GINLayer, parameters: Parameters, block: FakeBlock, h: FakeTensor
) -> FakeTensor:
    """`workbench.nn.gin.GINLayer`."""
    aggregated, h_dst = segment_sum_with_self(autograd, block, h)
    return _update_gin(autograd, layer, parameters, h_dst, aggregated)


def _update_gin(
    autograd: FakeAutograd, layer: GINLayer, parameters: Parameters, h_dst: FakeTensor, aggregated: FakeTensor
) -> FakeTensor:
    mlp_input = add(autograd, scale(autograd, h_dst, parameters.get(id(layer.eps))), aggregated)
    h = mlp_input  # which stays alive until the end, as the argument of `layer.mlp` does
    for module in layer.mlp:
        if isinstance(module, nn.Linear):
            h = _linear(autograd, h, module, parameters)
        elif isinstance(module, nn.ReLU):
            h = activate(autograd, h, module)
        else:
            h = normalise(autograd, h, module, parameters)
    return h


def simulate_gat(
    autograd: FakeAutograd, layer: GATLayer, parameters: Parameters, block: FakeBlock, h: FakeTensor
) -> FakeTensor:
    """`workbench.nn.gat.GATLayer`."""
    heads, width = layer.heads, layer.heads * layer.head_dim
    values = _linear(autograd, h, layer.fc, parameters)
    left, right = _scores(autograd, layer, parameters, h, block.sizes.num_dst)
    attention = edge_attention(autograd, block, left, right)
    if block.sizes.weight_bytes is not None:
        attention = scale(autograd, attention)
    out = segment_sum_with_self(autograd, block, values, weight=attention)[0]
    out = add_bias(autograd, out, layer.bias, parameters)
    return out if layer.concat else _mean_of_heads(autograd, out, heads, width)


def _scores(
    autograd: FakeAutograd, layer: GATLayer, parameters: Parameters, h: FakeTensor, num_dst: int
) -> tuple[FakeTensor, FakeTensor]:
    """Attention scores of sources and destinations: column slices of one product, each gradient padded to all of it."""
    directions = _directions(autograd, layer, parameters, h.itemsize)
    scores = linear(autograd, h, 2 * layer.heads, directions)
    left, right = (_columns(autograd, scores, layer.heads) for _ in range(2))
    return left, _destination_rows(autograd, right, num_dst)


def _directions(autograd: FakeAutograd, layer: GATLayer, parameters: Parameters, itemsize: int) -> FakeTensor:
    """The product of the weight matrix and the attention vectors; gradients have the sizes of the parameters."""
    out, weights = (
        autograd.empty(layer.in_dim, 2 * layer.heads, itemsize),
        (layer.fc.weight, layer.attn_l, layer.attn_r),
    )

    def backward(grad: FakeTensor) -> list[FakeTensor | None]:
        grads = (autograd.empty(p.shape[0], p.numel() // p.shape[0], itemsize) for p in weights)
        return [grad.view(is_view=True) for grad in grads]  # of W per head, of both vectors concatenated

    autograd.record([out], [parameters.get(id(p)) for p in weights], backward)
    return out


def _columns(autograd: FakeAutograd, x: FakeTensor, cols: int) -> FakeTensor:
    out, shape = x.view(cols=cols, is_view=True).detach(), (x.rows, x.cols, x.itemsize)
    autograd.record([out], [x], lambda grad: [autograd.empty(*shape)])
    return out


def _mean_of_heads(autograd: FakeAutograd, x: FakeTensor, heads: int, width: int) -> FakeTensor:
    out = autograd.empty(x.rows, width // heads, x.itemsize)
    autograd.record([out], [x], lambda grad: [autograd.empty(grad.rows, width, grad.itemsize)])
    return out


LAYERS: Mapping[type[nn.Module], SimulateLayer] = MappingProxyType(
    {
        SAGELayer: simulate_sage,
        GCNLayer: simulate_gcn,
        GINLayer: simulate_gin,
        GATLayer: simulate_gat,
        RGCNLayer: simulate_rgcn,
        ReusingSAGELayer: reuse.simulate_sage,
        ReusingGCNLayer: reuse.simulate_gcn,
        ReusingGINLayer: reuse.simulate_gin,
    }
)
"""Layer types that the analytic model supports, with their simulation."""

UPDATES: Mapping[type[nn.Module], SimulateUpdate] = MappingProxyType(
    {
        SAGELayer: _update_sage,
        GCNLayer: _update_gcn,
        GINLayer: _update_gin,
        ReusingSAGELayer: _update_sage,
        ReusingGCNLayer: _update_gcn,
        ReusingGINLayer: _update_gin,
    }
)
"""The same for `update(h_dst, aggregated)` of layers with a linear aggregate."""
