"""Range baseline of Betty (ASPLOS 2023, section 6): the seeds in ascending order of id, cut evenly."""

import torch

from workbench.partition.balance import cut_evenly
from workbench.partition.batch.prepared_batch import Cut, PreparedBatch


def prepare_range(batch: PreparedBatch) -> Cut:
    """Cut the seeds, sorted by raw-graph id, into runs of equal weight."""
    order = torch.argsort(batch.seeds)
    return lambda num_parts: cut_evenly(order, num_parts, batch.options.weights)
