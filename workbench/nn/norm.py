"""Normalisation of channels, and of edges by degrees."""

from dataclasses import replace

import torch
from torch import nn

from workbench.core.block import Block
from workbench.core.errors import check_choice
from workbench.core.minibatch import MiniBatch
from workbench.kernels.segment import inverse_in_degrees
from workbench.nn.edges import inverse_out_degrees

_NORMS: dict[str, type[nn.Module]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}


def build_norm(kind: str | None, channels: int) -> nn.Module:
    """A norm over the channels of [nodes, channels].

    Args:
        kind: "batch" (its statistics are those of the rows at hand: not exact under splitting), "layer", or None.
        channels: channels.

    Raises:
        ValueError: another kind.
    """
    if kind is None:
        return nn.Identity()
    check_choice("norm", kind, _NORMS)
    return _NORMS[kind](channels)


def symmetric_norm(batch: MiniBatch, dtype: torch.dtype | None = None) -> MiniBatch:
    """The batch with 1/√(out-degree · in-degree) of its own blocks in `edge_weight`, times the weights it had.

    A split copies edge weights, so a GCN with norm "none" then computes the whole batch's symmetric normalisation (Kipf
    and Welling, ICLR 2017, equation 2) in every micro-batch exactly.

    Args:
        batch: a batch that is not split yet.
        dtype: of the new weights; default: that of the weights it had, else torch's default.
    """
    return replace(batch, blocks=tuple(_with_symmetric_weights(block, dtype) for block in batch.blocks))


def _with_symmetric_weights(block: Block, dtype: torch.dtype | None) -> Block:
    had = block.edge_weight
    dtype = dtype or (torch.get_default_dtype() if had is None else had.dtype)
    left = inverse_out_degrees(block, torch.float64).index_select(0, block.indices)
    right = inverse_in_degrees(block, torch.float64).index_select(0, block.destinations)
    weight = left.mul_(right).sqrt_()
    return replace(block, edge_weight=(weight if had is None else weight * had).to(dtype))
