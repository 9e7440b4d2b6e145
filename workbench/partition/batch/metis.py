"""METIS on the graph that the output block induces on the seeds: Betty's METIS baseline (ASPLOS 2023, section 6)."""

from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.kernels.csr import offsets
from workbench.partition.batch.options import PartitionOptions, output_rows
from workbench.partition.metis import metis, symmetric_adjacency


def metis_parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
    """Minimize the edge cut of the graph that the output block induces on the seeds, made undirected and simple."""
    indptr, indices, _ = output_rows(mb)
    among_seeds = indices < mb.num_seeds
    adjacency = symmetric_adjacency(offsets(among_seeds.long())[indptr], indices[among_seeds])
    return metis(
        *adjacency,
        num_parts,
        weights=options.weights,
        seed=options.seed,
        time_limit_seconds=options.time_limit_seconds,
    )


def share_among_seeds(mb: MiniBatch) -> float:
    """Return the fraction of the output block's edges whose source is a seed too; 0 without edges."""
    indices = output_rows(mb)[1]
    return float((indices < mb.num_seeds).double().mean()) if len(indices) else 0.0
