"""Symmetric normalization of GCN as edge weights, so that micro-batches compute the same as the whole batch."""

from dataclasses import replace

import torch

from workbench.core.block import Block
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.kernels.segment import inverse_in_degrees
from workbench.nn.degrees import inverse_out_degrees


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
