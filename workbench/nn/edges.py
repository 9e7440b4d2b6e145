"""What layers read from a block besides its edges."""

import torch
from torch import Tensor

from workbench.core.minibatch import Block


def edge_weights(block: Block, h: Tensor) -> Tensor | None:
    """The block's edge weights in the dtype of `h`, or None."""
    return None if block.edge_weight is None else block.edge_weight.to(h.dtype)


def in_degrees(block: Block, dtype: torch.dtype) -> Tensor:
    """[num_dst], at least 1 so that it can divide."""
    return block.in_degrees().clamp_(min=1).to(dtype)


def out_degrees(block: Block, dtype: torch.dtype) -> Tensor:
    """[num_src], at least 1 so that it can divide: edges of every source *in this block*."""
    return torch.bincount(block.indices, minlength=block.num_src).clamp_(min=1).to(dtype)
