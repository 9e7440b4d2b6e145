"""Random baseline of Betty (ASPLOS 2023, section 6): a permutation of the seeds, cut evenly."""

import torch

from workbench.core.randomness import Purpose, stream
from workbench.kernels.hash import hash_index_torch
from workbench.partition.balance import cut_evenly
from workbench.partition.batch.prepared_batch import Cut, PreparedBatch


def prepare_random(batch: PreparedBatch) -> Cut:
    """Cut the seeds, sorted by a hash of (seed, step, raw-graph id), into runs of equal weight."""
    key = stream(batch.options.seed, Purpose.PARTITION, batch.mb.step)
    order = torch.argsort(hash_index_torch(key, batch.seeds))
    return lambda num_parts: cut_evenly(order, num_parts, batch.options.weights)
