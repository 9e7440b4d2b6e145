"""Graph attention (Velickovic et al.: "Graph Attention Networks", ICLR 2018)."""

import torch
from torch import Tensor, nn

from workbench.core.block import Block
from workbench.kernels.edge_softmax import edge_attention
from workbench.kernels.segment_sum import segment_sum


class GATLayer(nn.Module):
    """`Σ α · e · W·h + b` with α the softmax of leaky_relu(a_l · W·h_src + a_r · W·h_dst), per head.

    DGL GATConv's parameters and names. An edge weight e scales the attention after the softmax. Without in-edges the
    result is the bias.

    Args:
        in_dim: channels of `h`.
        out_dim: channels of the result; with `concat` the heads divide it.
        heads: number of heads.
        concat: put the heads side by side; else average them.
        slope: of leaky_relu below zero.
        bias: learn an additive term.

    Raises:
        ValueError: `heads` is below 1, or does not divide `out_dim`.
    """

    is_linear = False

    def __init__(
        self, in_dim: int, out_dim: int, *, heads: int = 1, concat: bool = True, slope: float = 0.2, bias: bool = True
    ) -> None:
        super().__init__()
        if heads < 1 or (concat and out_dim % heads):
            raise ValueError(f"{heads} heads do not divide {out_dim} channels; choose a divisor")
        self.in_dim, self.heads, self.concat, self.slope = in_dim, heads, concat, slope
        self.head_dim = out_dim // heads if concat else out_dim
        self.fc = nn.Linear(in_dim, heads * self.head_dim, bias=False)
        self.attn_l = nn.Parameter(torch.empty(1, heads, self.head_dim))
        self.attn_r = nn.Parameter(torch.empty(1, heads, self.head_dim))
        self.bias = nn.Parameter(torch.zeros(heads * self.head_dim)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew, as DGL does: Glorot normal with the gain of ReLU, bias zero."""
        gain = nn.init.calculate_gain("relu")
        for weight in (self.fc.weight, self.attn_l, self.attn_r):
            nn.init.xavier_normal_(weight, gain=gain)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, block: Block, h: Tensor) -> Tensor:
        """[num_src, in_dim] → [num_dst, heads · head_dim], or [num_dst, head_dim] averaged over heads."""
        values = self.fc(h).view(-1, self.heads, self.head_dim)
        left, right = self._scores(h)
        attention = edge_attention(block, left, right[: block.num_dst], self.slope)
        if block.edge_weight is not None:
            attention = attention * block.edge_weight[:, None].to(h.dtype)
        out = segment_sum(block, values, attention).flatten(1)
        if self.bias is not None:
            out = out + self.bias
        return out if self.concat else out.view(-1, self.heads, self.head_dim).mean(1)

    def _scores(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """a_l · W·h and a_r · W·h as h · (W·a): two columns a head instead of a copy of all values."""
        weight = self.fc.weight.view(self.heads, self.head_dim, self.in_dim)
        directions = torch.einsum("shd,hdi->shi", torch.cat([self.attn_l, self.attn_r]), weight)
        scores = h @ directions.flatten(0, 1).T
        return scores[:, : self.heads], scores[:, self.heads :]

    def extra_repr(self) -> str:
        return f"heads={self.heads}, head_dim={self.head_dim}, concat={self.concat}"
