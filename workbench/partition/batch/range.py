"""Range baseline of Betty (ASPLOS 2023, section 6): the seeds in ascending order of id, cut evenly."""

import torch
from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.partition.balance import cut_evenly
from workbench.partition.batch.options import PartitionOptions


def range_parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
    """Cut the seeds, sorted by raw-graph id, into runs of equal weight."""
    return cut_evenly(torch.argsort(mb.seeds.cpu()), num_parts, options.weights)
