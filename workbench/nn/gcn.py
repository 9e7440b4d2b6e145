"""GCN (Kipf, Welling: "Semi-Supervised Classification with Graph Convolutional Networks", ICLR 2017)."""

import torch
from torch import Tensor, nn

from workbench.core.block import Block
from workbench.core.errors import check_choice
from workbench.kernels.segment import check_rows, compute_dtype, inverse_in_degrees, use_compiled
from workbench.kernels.segment_sum import segment_sum
from workbench.nn.degrees import inverse_out_degrees
from workbench.nn.layer_order import multiplies_first

GCN_NORMS = ("right", "both", "none")


class GCNLayer(nn.Module):
    """GCN layer: `(Σ c · e · h_src) · W + b` with the normalization c of an edge and its weight e.

    Parameters have the names of DGL's GraphConv. The normalizations:
    - right (default): c = 1 / in-degree. It depends on the destination alone, so micro-batches are exact.
    - both: c = 1 / √(out-degree · in-degree), DGL's default, degrees counted *in this block*, at least 1. Splitting a
      batch changes out-degrees: for exact micro-batches store the whole batch's normalization in the edge weights
      (`workbench.nn.symmetric_norm.symmetric_norm`) and use "none".
    - none: c = 1.

    Args:
        in_dim: input channels.
        out_dim: output channels.
        norm: "right", "both" or "none".
        bias: add a learned bias b.

    Raises:
        ValueError: an unknown norm.
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
        """Initialize as DGL does: weight Glorot uniform, bias zero."""
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, block: Block, h: Tensor) -> Tensor:
        """Compute the layer, multiplying by W first if that takes less memory (`nn.layer_order`).

        Args:
            block: one layer of a batch.
            h: floating [num_src, in_dim].

        Returns:
            [num_dst, out_dim].
        """
        sizes = block.num_src, block.num_dst, self.in_dim, self.out_dim
        if multiplies_first(*sizes, compiled=use_compiled(h)):
            return self._add_bias(self.aggregate(block, h @ self.weight))
        return self.update(h[: block.num_dst], self.aggregate(block, h))

    def aggregate(self, block: Block, h: Tensor) -> Tensor:
        """Compute the normalized sum Σ c · e · h_src of every destination.

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
        """Compute the layer from its aggregate.

        Args:
            h_dst: floating [num_dst, in_dim]; not used.
            aggregated: [num_dst, in_dim].

        Returns:
            [num_dst, out_dim].
        """
        return self._add_bias(aggregated @ self.weight)

    def _add_bias(self, out: Tensor) -> Tensor:
        return out if self.bias is None else out + self.bias

    def extra_repr(self) -> str:
        return f"{self.in_dim}, {self.out_dim}, norm={self.norm!r}"
