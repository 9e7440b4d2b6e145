"""GCN (Kipf, Welling: "Semi-Supervised Classification with Graph Convolutional Networks", ICLR 2017)."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from workbench.core.block import Block
from workbench.core.errors import check_choice
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.kernels.segment import check_rows, compute_dtype, inverse_in_degrees, segment_sum, use_compiled
from workbench.nn.linear_with_self import multiplies_first

GCN_NORMS = ("right", "both", "none")


class GCNLayer(nn.Module):
    """GCN layer: `(Σ c · e · h_src) · W + b` with the normalization c of an edge and its weight e.

    Parameters have the names of DGL's GraphConv. The normalizations:
    - right (default): c = 1 / in-degree. It depends on the destination alone, so micro-batches are exact.
    - both: c = 1 / √(out-degree · in-degree), DGL's default, degrees counted *in this block*, at least 1. Splitting a
      batch changes out-degrees: for exact micro-batches store the whole batch's normalization in the edge weights
      (`workbench.nn.gcn.symmetric_norm`) and use "none".
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
        """Compute the layer, multiplying by W first if that takes less memory (`multiplies_first`)."""
        sizes = block.num_src, block.num_dst, self.in_dim, self.out_dim
        if multiplies_first(*sizes, compiled=use_compiled(h)):
            return self._add_bias(self.aggregate(block, h @ self.weight))
        return self.update(h[: block.num_dst], self.aggregate(block, h))

    def aggregate(self, block: Block, h: Tensor) -> Tensor:
        """Compute the normalized sum Σ c · e · h_src of every destination, [num_dst, channels]."""
        scale, dtype = None, compute_dtype(h)
        if self.norm == "right":
            scale = inverse_in_degrees(block, dtype)
        if self.norm == "both":
            check_rows(h, block)
            scale = inverse_in_degrees(block, dtype).sqrt_()
            h = h * inverse_out_degrees(block, dtype).sqrt_()[:, None].to(h.dtype)
        return segment_sum(block, h, block.edge_weight, scale=scale)

    def update(self, h_dst: Tensor, aggregated: Tensor) -> Tensor:
        """Compute the layer from its aggregate [num_dst, in_dim]; `h_dst` is not used."""
        return self._add_bias(aggregated @ self.weight)

    def _add_bias(self, out: Tensor) -> Tensor:
        return out if self.bias is None else out + self.bias

    def extra_repr(self) -> str:
        return f"{self.in_dim}, {self.out_dim}, norm={self.norm!r}"


def symmetric_norm(batch: MiniBatch, dtype: torch.dtype | None = None) -> MiniBatch:
    """Multiply a batch's edge weights by 1/√(out-degree · in-degree), with degrees counted in its own blocks.

    A split copies edge weights, so a GCN with norm "none" then computes the whole batch's symmetric normalization
    exactly in every micro-batch.

    Args:
        batch: a batch before it is split.
        dtype: dtype of the new weights; None: that of the batch's weights, or torch's default if it has none.

    Returns:
        The batch with the new `edge_weight`.

    Raises:
        ValueError: the batch has exchanges, so out-degrees are spread over processes.

    Source: Kipf and Welling (ICLR 2017), equation 2.
    """
    refuse_halo(batch.exchanges, "normalized")
    return replace(batch, blocks=tuple(_with_symmetric_weights(block, dtype) for block in batch.blocks))


def _with_symmetric_weights(block: Block, dtype: torch.dtype | None) -> Block:
    old = block.edge_weight
    dtype = dtype or (torch.get_default_dtype() if old is None else old.dtype)
    inverse_src = inverse_out_degrees(block, torch.float64).index_select(0, block.indices)
    inverse_dst = inverse_in_degrees(block, torch.float64).index_select(0, block.destinations)
    weight = inverse_src.mul_(inverse_dst).sqrt_()
    return replace(block, edge_weight=(weight if old is None else weight * old).to(dtype))


def inverse_out_degrees(block: Block, dtype: torch.dtype) -> Tensor:
    """Return 1 / max(1, out-degree) of every source, counted *in this block*: [num_src] in `dtype`."""
    return torch.bincount(block.indices, minlength=block.num_src).clamp_(min=1).to(dtype).reciprocal_()
