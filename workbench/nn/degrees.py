"""Degrees of a block's sources."""

import torch
from torch import Tensor

from workbench.core.block import Block


def inverse_out_degrees(block: Block, dtype: torch.dtype) -> Tensor:
    """Return 1 / max(1, out-degree) of every source, counted *in this block*: [num_src] in `dtype`."""
    return torch.bincount(block.indices, minlength=block.num_src).clamp_(min=1).to(dtype).reciprocal_()
