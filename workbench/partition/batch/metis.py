"""METIS on the graph that the output block induces on the seeds: Betty's METIS baseline (ASPLOS 2023, section 6)."""

from workbench.core.minibatch import MiniBatch
from workbench.kernels.csr import offsets
from workbench.partition.batch.prepared_batch import Cut, PreparedBatch, output_rows
from workbench.partition.metis import metis, symmetric_adjacency


def prepare_metis(batch: PreparedBatch) -> Cut:
    """Minimize the edge cut of the graph that the output block induces on the seeds, made undirected and simple."""
    indptr, indices, _ = output_rows(batch.host)
    among_seeds = indices < batch.mb.num_seeds
    adjacency = symmetric_adjacency(offsets(among_seeds.long())[indptr], indices[among_seeds])
    options = batch.options
    return lambda num_parts: metis(
        *adjacency,
        num_parts,
        weights=options.weights,
        seed=options.seed,
        time_limit_seconds=options.time_budget_seconds,
    )


def share_among_seeds(mb: MiniBatch) -> float:
    """Return the fraction of the output block's edges whose source is a seed too; 0 without edges."""
    indices = output_rows(mb)[1]
    return float((indices < mb.num_seeds).double().mean()) if len(indices) else 0.0
