"""Range partition of a graph: node ids in ascending order, cut evenly."""

import torch
from torch import Tensor

from workbench.partition.balance import cut_evenly


def range_nodes(num_nodes: int, num_parts: int) -> Tensor:
    """Cut the node ids into runs of equal length."""
    return cut_evenly(torch.arange(num_nodes), num_parts)
