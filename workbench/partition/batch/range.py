"""Seeds in the order of their ids, cut evenly: Betty's range baseline (ASPLOS 2023, section 6)."""

import torch
from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.partition.batch.options import PartitionOptions
from workbench.partition.even import cut_evenly


def range_parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
    """Cut the seeds, sorted by raw-graph id, into runs."""
    return cut_evenly(torch.argsort(mb.seeds.cpu()), num_parts, options.weights)
