"""What the layers of `workbench.nn` hold, in the order in which they make and drop it."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from torch import nn

from workbench.memory.analytic.dense import activate, add, add_bias, linear, linear_and_own, normalise, scale
from workbench.memory.analytic.edges import ShadowBlock, edge_attention, segment_max, segment_sum_and_own
from workbench.memory.analytic.lstm import last_states
from workbench.memory.analytic.tape import Shadow, Tape
from workbench.nn.gat import GATLayer
from workbench.nn.gcn import GCNLayer
from workbench.nn.gin import GINLayer
from workbench.nn.sage import SAGELayer

Parameters = Mapping[int, Shadow]
Price = Callable[[Tape, Any, Parameters, ShadowBlock, Shadow], Shadow]


def _linear(tape: Tape, x: Shadow, module: nn.Linear, parameters: Parameters) -> Shadow:
    weight, bias = parameters.get(id(module.weight)), parameters.get(id(module.bias))
    return linear(tape, x, module.out_features, weight, bias)


def _linear_and_own(
    tape: Tape, x: Shadow, num_dst: int, module: nn.Linear, parameters: Parameters
) -> tuple[Shadow, Shadow]:
    weight, bias = parameters.get(id(module.weight)), parameters.get(id(module.bias))
    return linear_and_own(tape, x, num_dst, module.out_features, weight, bias)


def price_sage(tape: Tape, layer: SAGELayer, parameters: Parameters, block: ShadowBlock, h: Shadow) -> Shadow:
    """`workbench.nn.sage.SAGELayer`."""
    if layer.is_linear and layer.out_dim < layer.in_dim:
        narrow, h_dst = _linear_and_own(tape, h, block.sizes.num_dst, layer.fc_neigh, parameters)
        return _add_self(tape, layer, parameters, h_dst, _sage_aggregate(tape, layer, parameters, block, narrow)[0])
    aggregated, h_dst = _sage_aggregate(tape, layer, parameters, block, h)
    return _add_self(tape, layer, parameters, h_dst, _linear(tape, aggregated, layer.fc_neigh, parameters))


def _sage_aggregate(
    tape: Tape, layer: SAGELayer, parameters: Parameters, block: ShadowBlock, h: Shadow
) -> tuple[Shadow, Shadow]:
    num_dst = block.sizes.num_dst
    if layer.aggregator == "lstm":
        weights = [parameters.get(id(p)) for p in layer.lstm.parameters()]
        return last_states(tape, block, h, layer.lstm, weights), _own_rows(tape, h, num_dst)
    if layer.aggregator == "pool":
        pooled, own = _linear_and_own(tape, h, num_dst, layer.fc_pool, parameters)
        if block.sizes.weight_bytes is None:
            return _relu_in_place(tape, segment_max(tape, block, pooled)), own
        return segment_max(tape, block, _relu_in_place(tape, pooled)), own
    if layer.aggregator == "mean":
        return segment_sum_and_own(tape, block, h, scale=block.degrees())
    share = block.degrees(plus_one=True)
    total, own = segment_sum_and_own(tape, block, h, scale=share)
    return add(tape, total, scale(tape, own, share)), own


def _own_rows(tape: Tape, h: Shadow, num_dst: int) -> Shadow:
    """A slice, whose gradient is filled up to all rows."""
    own, shape = h.view(num_dst, is_view=True).detached(), (h.rows, h.cols, h.itemsize)
    tape.record([own], [h], lambda grad: [tape.new(*shape)])
    return own


def _relu_in_place(tape: Tape, x: Shadow) -> Shadow:
    out = x.view().detached()
    tape.record([out], [x], lambda grad: [tape.like(grad)], saves=[out])
    return out


def _add_self(tape: Tape, layer: SAGELayer, parameters: Parameters, h_dst: Shadow, neighbours: Shadow) -> Shadow:
    if layer.aggregator != "gcn":
        return add(tape, _linear(tape, h_dst, layer.fc_self, parameters), neighbours)
    return add_bias(tape, neighbours, layer.bias, parameters)


def price_gcn(tape: Tape, layer: GCNLayer, parameters: Parameters, block: ShadowBlock, h: Shadow) -> Shadow:
    """`workbench.nn.gcn.GCNLayer`."""
    weight = parameters.get(id(layer.weight))
    if layer.out_dim < layer.in_dim:
        narrow = _gcn_aggregate(tape, layer, block, linear(tape, h, layer.out_dim, weight))
        return add_bias(tape, narrow, layer.bias, parameters)
    aggregated = _gcn_aggregate(tape, layer, block, h)
    return add_bias(tape, linear(tape, aggregated, layer.out_dim, weight), layer.bias, parameters)


def _gcn_aggregate(tape: Tape, layer: GCNLayer, block: ShadowBlock, h: Shadow) -> Shadow:
    degrees = None if layer.norm == "none" else block.degrees()
    if layer.norm == "both":
        h = scale(tape, h, block.out_degrees())
    return segment_sum_and_own(tape, block, h, scale=degrees)[0]


def price_gin(tape: Tape, layer: GINLayer, parameters: Parameters, block: ShadowBlock, h: Shadow) -> Shadow:
    """`workbench.nn.gin.GINLayer`."""
    aggregated, h_dst = segment_sum_and_own(tape, block, h)
    given = add(tape, scale(tape, h_dst, parameters.get(id(layer.eps))), aggregated)
    h = given
    for module in layer.mlp:
        if isinstance(module, nn.Linear):
            h = _linear(tape, h, module, parameters)
        elif isinstance(module, nn.ReLU):
            h = activate(tape, h, module)
        else:
            h = normalise(tape, h, module, parameters)
    return h


def price_gat(tape: Tape, layer: GATLayer, parameters: Parameters, block: ShadowBlock, h: Shadow) -> Shadow:
    """`workbench.nn.gat.GATLayer`."""
    heads, width = layer.heads, layer.heads * layer.head_dim
    values = _linear(tape, h, layer.fc, parameters)
    left, right = _scores(tape, layer, parameters, h, block.sizes.num_dst)
    attention = edge_attention(tape, block, left, right)
    if block.sizes.weight_bytes is not None:
        attention = scale(tape, attention)
    out = segment_sum_and_own(tape, block, values, weight=attention)[0]
    out = add_bias(tape, out, layer.bias, parameters)
    return out if layer.concat else _mean_of_heads(tape, out, heads, width)


def _scores(tape: Tape, layer: GATLayer, parameters: Parameters, h: Shadow, num_dst: int) -> tuple[Shadow, Shadow]:
    """Two columns a head of one product; each slice's gradient is filled up to all of it."""
    directions = _directions(tape, layer, parameters, h.itemsize)
    scores = linear(tape, h, 2 * layer.heads, directions)
    left, right = (_columns(tape, scores, layer.heads) for _ in range(2))
    return left, _own_rows(tape, right, num_dst)


def _directions(tape: Tape, layer: GATLayer, parameters: Parameters, itemsize: int) -> Shadow:
    """W · a: a product of parameters, whose gradients are of their sizes."""
    out, weights = tape.new(layer.in_dim, 2 * layer.heads, itemsize), (layer.fc.weight, layer.attn_l, layer.attn_r)

    def backward(grad: Shadow) -> list[Shadow | None]:
        made = (tape.new(p.shape[0], p.numel() // p.shape[0], itemsize) for p in weights)
        return [grad.view(is_view=True) for grad in made]  # of W head by head, of both vectors side by side

    tape.record([out], [parameters.get(id(p)) for p in weights], backward)
    return out


def _columns(tape: Tape, x: Shadow, cols: int) -> Shadow:
    out, shape = x.view(cols=cols, is_view=True).detached(), (x.rows, x.cols, x.itemsize)
    tape.record([out], [x], lambda grad: [tape.new(*shape)])
    return out


def _mean_of_heads(tape: Tape, x: Shadow, heads: int, width: int) -> Shadow:
    out = tape.new(x.rows, width // heads, x.itemsize)
    tape.record([out], [x], lambda grad: [tape.new(grad.rows, width, grad.itemsize)])
    return out


PRICES: Mapping[type[nn.Module], Price] = MappingProxyType(
    {SAGELayer: price_sage, GCNLayer: price_gcn, GINLayer: price_gin, GATLayer: price_gat}
)
"""Layers that are known."""
