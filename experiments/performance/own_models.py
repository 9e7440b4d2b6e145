"""Models such as a user may bring, in plain torch, which the analytic memory estimate does not know."""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.core.block import Block
from workbench.nn.sage import SAGELayer

Blocks = Sequence[Block]


def mean_of_sources(block: Block, h: Tensor) -> Tensor:
    """The mean over each destination's sources, by gather and index_add."""
    total = h.new_zeros(block.num_dst, h.shape[1]).index_add(0, block.destinations, h[block.indices])
    return total / block.in_degrees().clamp(min=1)[:, None]


class Attention(nn.Module):
    """Multi-head dot-product attention over edges."""

    def __init__(self, in_dim: int, hidden_dim: int, out_dim: int, num_layers: int, heads: int = 4) -> None:
        super().__init__()
        dims = [in_dim, *[hidden_dim] * num_layers]
        self.heads = heads
        self.qkv = nn.ModuleList([nn.Linear(i, 3 * o) for i, o in pairwise(dims)])
        self.out = nn.Linear(hidden_dim, out_dim)

    def forward(self, blocks: Blocks, x: Tensor) -> Tensor:
        for block, linear in zip(blocks, self.qkv, strict=True):
            query, key, value = (t.view(t.shape[0], self.heads, -1) for t in linear(x).chunk(3, 1))
            src, dst = block.indices.long(), block.destinations.long()
            scores = (query[dst] * key[src]).sum(-1) / key.shape[-1] ** 0.5
            weight = scores.clamp(-5, 5).exp()
            total = weight.new_zeros(block.num_dst, self.heads).index_add(0, dst, weight)
            messages = value[src] * (weight / total[dst])[..., None]
            out = torch.zeros_like(value[: block.num_dst]).index_add(0, dst, messages)
            x = F.elu(out.flatten(1))
        return self.out(x)


class Propagation(nn.Module):
    """APPNP: an MLP on all inputs, then mean aggregation with restarts."""

    def __init__(self, in_dim: int, hidden_dim: int, out_dim: int, num_layers: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Dropout(0.5), nn.Linear(in_dim, hidden_dim), nn.ReLU(), nn.Dropout(0.5), nn.Linear(hidden_dim, out_dim)
        )

    def forward(self, blocks: Blocks, x: Tensor) -> Tensor:
        start = h = self.mlp(x)
        for block in blocks:
            h = 0.9 * mean_of_sources(block, h) + 0.1 * start[: block.num_dst]
        return h


class Jumping(nn.Module):
    """Jumping knowledge: concatenates the seeds' rows of all layers."""

    def __init__(self, in_dim: int, hidden_dim: int, out_dim: int, num_layers: int) -> None:
        super().__init__()
        dims = [in_dim, *[hidden_dim] * num_layers]
        self.layers = nn.ModuleList([nn.Linear(2 * i, o) for i, o in pairwise(dims)])
        self.out = nn.Linear(in_dim + num_layers * hidden_dim, out_dim)

    def forward(self, blocks: Blocks, x: Tensor) -> Tensor:
        seeds, h = blocks[-1].num_dst, x
        rows = [h[:seeds]]
        for block, layer in zip(blocks, self.layers, strict=True):
            h = layer(torch.cat([h[: block.num_dst], mean_of_sources(block, h)], 1)).relu()
            rows.append(h[:seeds])
        return self.out(torch.cat(rows, 1))


class Residual(nn.Module):
    """SAGE layers of the library with LayerNorm, GELU, dropout, skip connections and node embeddings."""

    def __init__(self, in_dim: int, hidden_dim: int, out_dim: int, num_layers: int) -> None:
        super().__init__()
        self.inward, self.out = nn.Linear(in_dim, hidden_dim), nn.Linear(hidden_dim, out_dim)
        self.bucket = nn.Embedding(100, hidden_dim)
        self.layers = nn.ModuleList([SAGELayer(hidden_dim, hidden_dim) for _ in range(num_layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(hidden_dim) for _ in range(num_layers)])

    def forward(self, blocks: Blocks, x: Tensor, *, node_ids: Tensor) -> Tensor:
        h = self.inward(x) + self.bucket(node_ids % 100)
        for block, layer, norm in zip(blocks, self.layers, self.norms, strict=True):
            h = h[: block.num_dst] + F.dropout(F.gelu(norm(layer(block, h))), 0.3, self.training)
        return self.out(h)


class EdgeMLP(nn.Module):
    """EdgeConv: an MLP on both ends of an edge, then the maximum per channel."""

    def __init__(self, in_dim: int, hidden_dim: int, out_dim: int, num_layers: int) -> None:
        super().__init__()
        dims = [in_dim, *[hidden_dim] * (num_layers - 1), out_dim]
        self.layers = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(2 * i, hidden_dim), nn.SiLU(), nn.Linear(hidden_dim, o))
                for i, o in pairwise(dims)
            ]
        )

    def forward(self, blocks: Blocks, x: Tensor) -> Tensor:
        for block, layer in zip(blocks, self.layers, strict=True):
            src, dst = block.indices.long(), block.destinations.long()
            messages = layer(torch.cat([x[dst], x[src] - x[dst]], 1))
            index = dst[:, None].expand_as(messages)
            empty = messages.new_zeros(block.num_dst, messages.shape[1])
            x = empty.scatter_reduce(0, index, messages, "amax", include_self=False)
        return x


class Padded(nn.Module):
    """A transformer layer over each destination and its sources, padded to the largest in-degree."""

    def __init__(self, in_dim: int, hidden_dim: int, out_dim: int, num_layers: int) -> None:
        super().__init__()
        self.inward, self.out = nn.Linear(in_dim, hidden_dim), nn.Linear(hidden_dim, out_dim)
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(hidden_dim, 2, hidden_dim, batch_first=True) for _ in range(num_layers)]
        )

    def forward(self, blocks: Blocks, x: Tensor) -> Tensor:
        h = self.inward(x)
        for block, layer in zip(blocks, self.layers, strict=True):
            degrees = block.in_degrees()
            place = torch.arange(int(degrees.max()) + 1)
            inside = place[None, :] <= degrees[:, None]
            padded = h.new_zeros(block.num_dst, len(place), h.shape[1])
            padded[:, 0] = h[: block.num_dst]
            rows = block.destinations.long()
            column = torch.arange(block.num_edges) - block.indptr[:-1][rows] + 1
            padded = padded.index_put((rows, column), h[block.indices.long()])
            h = layer(padded, src_key_padding_mask=~inside)[:, 0]
        return self.out(h)


class Buckets(nn.Module):
    """A GRU over the sources of every destination, one call per in-degree (bucketing)."""

    def __init__(self, in_dim: int, hidden_dim: int, out_dim: int, num_layers: int) -> None:
        super().__init__()
        dims = [in_dim, *[hidden_dim] * num_layers]
        self.cells = nn.ModuleList([nn.GRU(i, o, batch_first=True) for i, o in pairwise(dims)])
        self.own = nn.ModuleList([nn.Linear(i, o) for i, o in pairwise(dims)])
        self.out = nn.Linear(hidden_dim, out_dim)

    def forward(self, blocks: Blocks, x: Tensor) -> Tensor:
        for block, cell, own in zip(blocks, self.cells, self.own, strict=True):
            degrees = block.in_degrees()
            out = own(x[: block.num_dst])
            for degree in degrees.unique().tolist():
                if degree:
                    rows = (degrees == degree).nonzero()[:, 0]
                    edges = block.indptr[rows][:, None] + torch.arange(degree)
                    out = out.index_add(0, rows, cell(x[block.indices[edges].long()])[1][0])
            x = out.relu()
        return self.out(x)


class Sparse(nn.Module):
    """Sparse matrix products that transform only rows with sources, and BatchNorm."""

    def __init__(self, in_dim: int, hidden_dim: int, out_dim: int, num_layers: int) -> None:
        super().__init__()
        dims = [in_dim, *[hidden_dim] * num_layers]
        self.layers = nn.ModuleList([nn.Linear(i, o) for i, o in pairwise(dims)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(hidden_dim) for _ in range(num_layers)])
        self.out = nn.Linear(hidden_dim, out_dim)

    def forward(self, blocks: Blocks, x: Tensor) -> Tensor:
        for block, layer, norm in zip(blocks, self.layers, self.norms, strict=True):
            index = torch.stack([block.destinations.long(), block.indices.long()])
            ones = x.new_ones(block.num_edges)
            adjacency = torch.sparse_coo_tensor(index, ones, (block.num_dst, block.num_src), check_invariants=False)
            reached = torch.sparse.mm(adjacency, x)
            rows = (block.in_degrees() > 0).nonzero()[:, 0]
            h = layer(x[: block.num_dst])
            x = norm(h.index_add(0, rows, layer(reached[rows]))).relu()
        return self.out(x)


class Thresholded(nn.Module):
    """Sums only messages with a positive score, so that tensor sizes depend on values, not on the batch's sizes."""

    def __init__(self, in_dim: int, hidden_dim: int, out_dim: int, num_layers: int) -> None:
        super().__init__()
        dims = [in_dim, *[hidden_dim] * num_layers]
        self.layers = nn.ModuleList([nn.Linear(i, o + 1) for i, o in pairwise(dims)])
        self.hidden_dim, self.out = hidden_dim, nn.Linear(hidden_dim, out_dim)

    def forward(self, blocks: Blocks, x: Tensor) -> Tensor:
        for block, layer in zip(blocks, self.layers, strict=True):
            values, score = layer(x).split([self.hidden_dim, 1], 1)
            messages, gate = values[block.indices], score[block.indices, 0]
            chosen = (gate > 0).nonzero()[:, 0]
            weighted = messages[chosen] * gate[chosen].sigmoid()[:, None]
            x = values[: block.num_dst].index_add(0, block.destinations[chosen], weighted).relu()
        return self.out(x)


class AllToAll(nn.Module):
    """Every destination attends to every other and sums its sources by a dense adjacency matrix."""

    def __init__(self, in_dim: int, hidden_dim: int, out_dim: int, num_layers: int) -> None:
        super().__init__()
        dims = [in_dim, *[hidden_dim] * num_layers]
        self.layers = nn.ModuleList([nn.Linear(i, o) for i, o in pairwise(dims)])
        self.out = nn.Linear(hidden_dim, out_dim)

    def forward(self, blocks: Blocks, x: Tensor) -> Tensor:
        for block, layer in zip(blocks, self.layers, strict=True):
            adjacency = x.new_zeros(block.num_dst, block.num_src)
            adjacency[block.destinations.long(), block.indices.long()] = 1.0
            own = x[: block.num_dst]
            x = layer(torch.softmax(own @ own.T, 1) @ own + adjacency @ x).relu()
        return self.out(x)


OWN_MODELS = (Attention, Propagation, Jumping, Residual, EdgeMLP, Padded, Buckets, Sparse, Thresholded, AllToAll)
