"""Layers row by row in plain torch: slow, obvious, differentiable."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from workbench.core.block import Block
from workbench.nn.gat import GATLayer
from workbench.nn.gcn import GCNLayer
from workbench.nn.gin import GINLayer
from workbench.nn.rgcn import RGCNLayer
from workbench.nn.sage import SAGELayer

Messages = Callable[[int], tuple[Tensor, Tensor]]


def _messages(block: Block, h: Tensor, row: int) -> tuple[Tensor, Tensor]:
    """Return source rows and weights of one destination's in-edges."""
    edges = slice(int(block.indptr[row]), int(block.indptr[row + 1]))
    weight = torch.ones(block.num_edges, dtype=h.dtype) if block.edge_weight is None else block.edge_weight.to(h.dtype)
    return h[block.indices[edges].long()], weight[edges]


def _stack(block: Block, h: Tensor, width: int, row_of: Callable[[int, Tensor, Tensor], Tensor]) -> Tensor:
    rows = [row_of(row, *_messages(block, h, row)) for row in range(block.num_dst)]
    return torch.stack(rows) if rows else h.new_zeros(0, width)


def _sum(block: Block, h: Tensor) -> Tensor:
    return _stack(block, h, h.shape[1], lambda _, m, w: (m * w[:, None]).sum(0))


def _mean(block: Block, h: Tensor) -> Tensor:
    return _stack(block, h, h.shape[1], lambda _, m, w: (m * w[:, None]).sum(0) / max(1, len(m)))


def _sage(layer: SAGELayer, block: Block, h: Tensor) -> Tensor:
    h_dst, width = h[: block.num_dst], h.shape[1]
    if layer.aggregator == "gcn":
        total = _stack(block, h, width, lambda row, m, w: ((m * w[:, None]).sum(0) + h_dst[row]) / (len(m) + 1))
        return layer.fc_neigh(total) + layer.bias
    if layer.aggregator == "mean":
        aggregated = _mean(block, h)
    elif layer.aggregator == "pool":
        pooled = layer.fc_pool(h).relu()
        aggregated = _stack(
            block,
            pooled,
            width,
            lambda _, m, w: (m * w[:, None]).max(0).values if len(m) else m.new_zeros(width),
        )
    else:
        aggregated = _stack(block, h, width, lambda _, m, w: _lstm(layer.lstm, m * w[:, None]))
    return layer.fc_self(h_dst) + layer.fc_neigh(aggregated)


def _lstm(lstm: nn.LSTM, messages: Tensor) -> Tensor:
    """Unroll the equations of the LSTM cell."""
    hidden = cell = messages.new_zeros(lstm.hidden_size)
    for message in messages:
        gates = (
            lstm.weight_ih_l0 @ message + lstm.bias_ih_l0 + lstm.weight_hh_l0 @ hidden + lstm.bias_hh_l0  # type: ignore[operator]
        )
        enter, forget, cell_input, output = gates.chunk(4)
        cell = forget.sigmoid() * cell + enter.sigmoid() * cell_input.tanh()
        hidden = output.sigmoid() * cell.tanh()
    return hidden


def _gcn(layer: GCNLayer, block: Block, h: Tensor) -> Tensor:
    assert layer.bias is not None
    if layer.norm == "both":
        h = h / torch.bincount(block.indices, minlength=block.num_src).clamp(min=1).to(h.dtype).sqrt()[:, None]
    aggregated = _mean(block, h) if layer.norm == "right" else _sum(block, h)
    if layer.norm == "both":
        aggregated = aggregated / block.in_degrees().clamp(min=1).to(h.dtype).sqrt()[:, None]
    return aggregated @ layer.weight + layer.bias


def _gat(layer: GATLayer, block: Block, h: Tensor) -> Tensor:
    bias = layer.bias
    assert bias is not None
    values = layer.fc(h).view(-1, layer.heads, layer.head_dim)
    left, right = (values * layer.attn_l).sum(-1), (values * layer.attn_r).sum(-1)

    def row_of(row: int, message: Tensor, weight: Tensor) -> Tensor:
        edges = slice(int(block.indptr[row]), int(block.indptr[row + 1]))
        sources = block.indices[edges].long()
        if layer.self_attention:
            sources, weight = torch.cat([sources, torch.tensor([row])]), torch.cat([weight, weight.new_ones(1)])
            message = torch.cat([message, values.flatten(1)[row : row + 1]])
        score = nn.functional.leaky_relu(left[sources] + right[row], layer.slope)
        share = score.softmax(0) * weight[:, None]
        return (message.view(-1, layer.heads, layer.head_dim) * share[:, :, None]).sum(0).flatten() + bias

    out = _stack(block, values.flatten(1), layer.heads * layer.head_dim, row_of)
    return out if layer.concat else out.view(-1, layer.heads, layer.head_dim).mean(1)


def _relation_matrices(layer: RGCNLayer) -> list[Tensor]:
    weights = layer.linear_r["W"]
    if layer.regularizer == "basis":
        return list(torch.einsum("rb,bio->rio", layer.linear_r["coeff"], weights))
    blocks = weights.view(layer.num_relations, layer.num_bases, layer.in_dim // layer.num_bases, -1)
    return [torch.block_diag(*blocks[relation]) for relation in range(layer.num_relations)]


def _rgcn(layer: RGCNLayer, block: Block, h: Tensor) -> Tensor:
    assert block.edge_type is not None
    matrices = _relation_matrices(layer)

    def row_of(row: int, messages: Tensor, weight: Tensor) -> Tensor:
        types = block.edge_type[int(block.indptr[row]) : int(block.indptr[row + 1])].tolist()  # type: ignore[index]
        total = torch.zeros(layer.out_dim, dtype=h.dtype)
        for message, w, relation in zip(messages, weight, types, strict=True):
            count = {"relation": types.count(relation), "right": len(types), "none": 1}[layer.norm]
            total = total + w / count * (message @ matrices[relation])
        return total

    out = _stack(block, h, layer.out_dim, row_of)
    if layer.loop_weight is not None:
        out = out + h[: block.num_dst] @ layer.loop_weight
    return out if layer.h_bias is None else out + layer.h_bias


def by_rows(layer: nn.Module, block: Block, h: Tensor) -> Tensor:
    """Compute `layer(block, h)` row by row."""
    if isinstance(layer, SAGELayer):
        return _sage(layer, block, h)
    if isinstance(layer, GCNLayer):
        return _gcn(layer, block, h)
    if isinstance(layer, GINLayer):
        return layer.mlp((1 + layer.eps) * h[: block.num_dst] + _sum(block, h))
    if isinstance(layer, RGCNLayer):
        return _rgcn(layer, block, h)
    assert isinstance(layer, GATLayer)
    return _gat(layer, block, h)
