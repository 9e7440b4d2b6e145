"""Seeds in a random order, cut evenly: Betty's random baseline (ASPLOS 2023, section 6)."""

import torch
from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import Purpose, stream
from workbench.kernels.hash import hash_index_torch
from workbench.partition.batch.options import PartitionOptions
from workbench.partition.even import cut_evenly


def random_parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
    """Cut the seeds, sorted by a hash of (seed, step, raw-graph id), into runs."""
    key = stream(options.seed, Purpose.PARTITION, mb.step)
    return cut_evenly(torch.argsort(hash_index_torch(key, mb.seeds.cpu())), num_parts, options.weights)
