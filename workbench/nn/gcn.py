"""Graph convolution (Kipf, Welling: "Semi-Supervised Classification with Graph Convolutional Networks", ICLR 2017)."""

import torch
from torch import Tensor, nn

from workbench.core.block import Block
from workbench.core.errors import check_choice
from workbench.kernels.segment import check_rows, compute_dtype, inverse_in_degrees
from workbench.kernels.segment_sum import segment_sum
from workbench.nn.edges import inverse_out_degrees

GCN_NORMS = ("right", "both", "none")


class GCNLayer(nn.Module):
    """`(Σ norm · e · h) · W + b`, with DGL GraphConv's parameters and names; an edge weight e scales its message.

    The norms:
    - right (default): 1 / in-degree. A row's normaliser depends on that row alone, so micro-batches are exact.
    - both: 1 / √(out-degree · in-degree), DGL's default, degrees counted *in this block* and at least 1. A source's
      out-degree changes when a batch is split: for exact micro-batches write the whole batch's normalisers with
      `workbench.nn.norm.symmetric_norm` and use "none".
    - none: plain sum.

    Args:
        in_dim: channels of `h`.
        out_dim: channels of the result.
        norm: "right", "both" or "none".
        bias: learn an additive term.

    Raises:
        ValueError: another norm.
    """

    is_linear = True

    def __init__(self, in_dim: int, out_dim: int, *, norm: str = "right", bias: bool = True) -> None:
        super().__init__()
        check_choice("norm", norm, GCN_NORMS)
        self.in_dim, self.out_dim, self.norm = in_dim, out_dim, norm
        self.weight = nn.Parameter(torch.empty(in_dim, out_dim))
        self.bias = nn.Parameter(torch.zeros(out_dim)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew, as DGL does: Glorot uniform, bias zero."""
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def aggregate(self, block: Block, h: Tensor) -> Tensor:
        """The normalised sum of the sources' rows.

        Args:
            block: one layer of a batch.
            h: floating [num_src, channels].

        Returns:
            [num_dst, channels].
        """
        scale, dtype = None, compute_dtype(h)
        if self.norm == "right":
            scale = inverse_in_degrees(block, dtype)
        if self.norm == "both":
            check_rows(h, block)
            scale = inverse_in_degrees(block, dtype).sqrt_()
            h = h * inverse_out_degrees(block, dtype).sqrt_()[:, None].to(h.dtype)
        return segment_sum(block, h, block.edge_weight, scale=scale)

    def update(self, h_dst: Tensor, aggregated: Tensor) -> Tensor:
        """The layer's result from the aggregate; the destinations' own rows are not read.

        Args:
            h_dst: floating [num_dst, in_dim].
            aggregated: [num_dst, in_dim].

        Returns:
            [num_dst, out_dim].
        """
        return self._add_bias(aggregated @ self.weight)

    def forward(self, block: Block, h: Tensor) -> Tensor:
        """[num_src, in_dim] → [num_dst, out_dim]; multiplies first where that makes the aggregated rows narrower."""
        if self.out_dim < self.in_dim:
            return self._add_bias(self.aggregate(block, h @ self.weight))
        return self.update(h[: block.num_dst], self.aggregate(block, h))

    def _add_bias(self, out: Tensor) -> Tensor:
        return out if self.bias is None else out + self.bias

    def extra_repr(self) -> str:
        return f"{self.in_dim}, {self.out_dim}, norm={self.norm!r}"
