"""METIS on the output block's edges between outputs: Betty's METIS baseline (ASPLOS 2023, section 6)."""

import torch
from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.partition.batch.options import PartitionOptions, output_rows
from workbench.partition.metis import metis, symmetric_adjacency


def metis_parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
    """Cut the graph that the output block induces on the outputs, made undirected and simple."""
    indptr, indices, _ = output_rows(mb)
    among = indices < mb.num_seeds
    kept = torch.zeros(len(indices) + 1, dtype=torch.int64)
    torch.cumsum(among, 0, out=kept[1:])
    adjacency = symmetric_adjacency(kept[indptr], indices[among])
    return metis(
        *adjacency,
        num_parts,
        weights=options.weights,
        seed=options.seed,
        time_limit_seconds=options.time_limit_seconds,
    )


def share_among_outputs(mb: MiniBatch) -> float:
    """The share of the output block's edges whose source is an output too; 0 without edges."""
    indices = output_rows(mb)[1]
    return float((indices < mb.num_seeds).double().mean()) if len(indices) else 0.0
