"""What layers read from a block besides its edges."""

import torch
from torch import Tensor

from workbench.core.block import Block


def inverse_out_degrees(block: Block, dtype: torch.dtype) -> Tensor:
    """[num_src] in `dtype`: 1 / out-degree *in this block*, the out-degree taken as at least 1."""
    return torch.bincount(block.indices, minlength=block.num_src).clamp_(min=1).to(dtype).reciprocal_()
