"""Random baseline of Betty (ASPLOS 2023, section 6): a permutation of the seeds, cut evenly."""

import torch
from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import Purpose, stream
from workbench.kernels.hash import hash_index_torch
from workbench.partition.balance import cut_evenly
from workbench.partition.batch.options import PartitionOptions


def random_parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
    """Cut the seeds, sorted by a hash of (seed, step, raw-graph id), into runs of equal weight."""
    key = stream(options.seed, Purpose.PARTITION, mb.step)
    return cut_evenly(torch.argsort(hash_index_torch(key, mb.seeds.cpu())), num_parts, options.weights)
