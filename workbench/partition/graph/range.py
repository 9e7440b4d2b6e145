"""Range partition of a graph: node ids in ascending order, cut evenly."""

import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.partition.balance import cut_evenly


def range_nodes(g: Graph, num_parts: int, seed: int) -> Tensor:
    """Cut the node ids into runs of equal length, whatever the seed."""
    return cut_evenly(torch.arange(g.num_nodes), num_parts)
