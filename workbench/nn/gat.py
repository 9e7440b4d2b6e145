"""Graph attention network (Veličković et al.: "Graph Attention Networks", ICLR 2018)."""

import torch
from torch import Tensor, nn

from workbench.core.block import Block
from workbench.kernels.edge_softmax import edge_attention
from workbench.kernels.jit import runs_eagerly
from workbench.kernels.segment import segment_sum
from workbench.nn.linear_with_self import Exchanger, multiplies_before_exchange


class GATLayer(nn.Module):
    """GAT layer: `Σ α · e · W·h_src + b` with α = softmax(leaky_relu(a_l · W·h_src + a_r · W·h_dst)), per head.

    Parameters have the names of DGL's GATConv. An edge weight e scales the attention after the softmax. A destination
    without in-edges gets the bias, and with `self_attention` its own row and the bias.

    Args:
        in_dim: input channels.
        out_dim: output channels; with `concat` a multiple of `heads`.
        heads: number of attention heads.
        concat: concatenate the heads; False: average them.
        slope: negative slope of leaky_relu.
        bias: add a learned bias b.
        self_attention: every destination attends to itself, too, as over one more in-edge of weight 1: the layer of the
            paper and of MariusGNN's artifact, where DGL asks for self loops in the graph. A graph that has self loops
            needs none.

    Raises:
        ValueError: `heads` is below 1, or does not divide `out_dim`.
    """

    is_linear = False
    exchanges_itself = True
    exchanges_products: bool | None = None
    """Whether cooperating ranks exchange W · h, each computing that of its own rows, instead of h. None: if that sends
    no more bytes (`multiplies_before_exchange`); True pays off on fast links. It must be the same on all ranks."""

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        heads: int = 1,
        concat: bool = True,
        slope: float = 0.2,
        bias: bool = True,
        self_attention: bool = False,
    ) -> None:
        super().__init__()
        if heads < 1 or (concat and out_dim % heads):
            raise ValueError(f"heads is {heads}, which does not divide the {out_dim} output channels; choose a divisor")
        self.in_dim, self.heads, self.concat, self.slope = in_dim, heads, concat, slope
        self.self_attention = self_attention
        self.head_dim = out_dim // heads if concat else out_dim
        self.fc = nn.Linear(in_dim, heads * self.head_dim, bias=False)
        self.attn_l = nn.Parameter(torch.empty(1, heads, self.head_dim))
        self.attn_r = nn.Parameter(torch.empty(1, heads, self.head_dim))
        self.bias = nn.Parameter(torch.zeros(heads * self.head_dim)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize as DGL does: weights Glorot normal with the gain of ReLU, bias zero."""
        gain = nn.init.calculate_gain("relu")
        for weight in (self.fc.weight, self.attn_l, self.attn_r):
            nn.init.xavier_normal_(weight, gain=gain)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, block: Block, h: Tensor, exchange: Exchanger | None = None) -> Tensor:
        """Attend over the in-edges of every destination; [num_dst, heads · head_dim], or [num_dst, head_dim] averaged.

        Args:
            block: one layer of a batch.
            h: floating [num_src, in_dim]; with `exchange` only the owned sources.
            exchange: appends the rows of the halo to those of the owned sources: to `h`, or to W · h, which every rank
                then computes for its own rows alone.
        """
        if exchange is not None and self._multiplies_before_exchange(h):
            values = exchange(self.fc(h)).view(-1, self.heads, self.head_dim)
            score_src, score_dst = _dots(values, self.attn_l), _dots(values[: block.num_dst], self.attn_r)
        else:
            h = h if exchange is None else exchange(h)
            values = self.fc(h).view(-1, self.heads, self.head_dim)
            score_src, score_dst = self._scores(h)
        edges = _with_self_edges(block) if self.self_attention else block
        attention = edge_attention(edges, score_src, score_dst[: block.num_dst], self.slope)
        if edges.edge_weight is not None:
            attention = attention * edges.edge_weight[:, None].to(h.dtype)
        out = segment_sum(edges, values, attention).flatten(1)
        if self.bias is not None:
            out = out + self.bias
        return out if self.concat else out.view(-1, self.heads, self.head_dim).mean(1)

    def _multiplies_before_exchange(self, h: Tensor) -> bool:
        if self.exchanges_products is not None:
            return self.exchanges_products
        trains = torch.is_grad_enabled()
        options = {"needs_gradient": trains and h.requires_grad, "trains": trains}
        return multiplies_before_exchange(self.in_dim, self.fc.out_features, **options)

    def _scores(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Compute a_l · W·h and a_r · W·h as h · (W·a): two columns per head instead of a copy of all values."""
        weight = self.fc.weight.view(self.heads, self.head_dim, self.in_dim)
        projected = torch.einsum("shd,hdi->shi", torch.cat([self.attn_l, self.attn_r]), weight)
        scores = h @ projected.flatten(0, 1).T
        return scores[:, : self.heads], scores[:, self.heads :]

    def extra_repr(self) -> str:
        return f"heads={self.heads}, head_dim={self.head_dim}, concat={self.concat}" + (
            ", self_attention=True" if self.self_attention else ""
        )


@runs_eagerly
def _with_self_edges(block: Block) -> Block:
    """The block with one more edge at the end of every row, from the destination to itself, of weight 1."""
    indptr = block.indptr + torch.arange(block.num_dst + 1, device=block.device)
    own = indptr[1:] - 1
    given = torch.ones(block.num_edges + block.num_dst, dtype=torch.bool, device=block.device)
    given.index_fill_(0, own, False)
    indices = block.indices.new_empty(len(given)).masked_scatter_(given, block.indices)
    indices.index_copy_(0, own, torch.arange(block.num_dst, dtype=indices.dtype, device=block.device))
    weight = block.edge_weight
    if weight is not None:
        weight = weight.new_ones(len(given)).masked_scatter(given, weight)
    return Block(indptr, indices, block.num_src, block.num_dst, edge_weight=weight)


def _dots(values: Tensor, direction: Tensor) -> Tensor:
    """a · W·h per head, from the products: [n, heads, head_dim] and [1, heads, head_dim] to [n, heads]."""
    return torch.einsum("nhd,hd->nh", values, direction[0])
