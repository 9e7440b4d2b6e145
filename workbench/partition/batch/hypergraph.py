"""Hypergraph partition of a batch by Mt-KaHyPar, whose connectivity objective is the redundancy itself.

On the whole training batch of ogbn-arxiv (undirected, fanouts 10, 25) its default preset with one thread is within 1 %
of its deterministic preset in less than half the time; with more threads only the latter is reproducible. Its preset
for many parts loads 2 to 5 % more inputs, in a third to a quarter of the time.
"""

from torch import Tensor

from workbench.core.capacity import available_bytes
from workbench.partition.batch.batch_hypergraph import batch_hypergraph, check_memory
from workbench.partition.batch.prepared_batch import Cut, PreparedBatch
from workbench.partition.mtkahypar import mtkahypar
from workbench.partition.refine.computation_graph import fair_shares

_MANY_PARTS = 128  # from here on the default preset is too slow
# Memory of the default preset per vertex or net, and part. Measured 3, on ogbn-arxiv from 32 to 128 parts.
_BYTES_PER_NODE_AND_PART = 4


def prepare_hypergraph(batch: PreparedBatch) -> Cut:
    """Minimize the redundant sources of the output block: exact for a batch of one layer."""
    return _prepare(batch, 1)


def prepare_hypergraph_deep(batch: PreparedBatch) -> Cut:
    """Minimize the redundant inputs of the batch: exact for any number of layers."""
    return _prepare(batch, None)


def _prepare(batch: PreparedBatch, hops: int | None) -> Cut:
    options, num_seeds = batch.options, batch.mb.num_seeds
    limit = available_bytes() if options.max_bytes is None else options.max_bytes
    hypergraph = batch_hypergraph(batch.host, hops=hops, max_bytes=limit)
    weights = fair_shares(batch.computation_graph)[:num_seeds] if options.weights is None else options.weights

    def cut(num_parts: int) -> Tensor:
        preset = "DEFAULT" if num_parts < _MANY_PARTS else "LARGE_K"
        nodes = num_seeds + len(hypergraph.weights)
        extra_bytes = nodes * num_parts * _BYTES_PER_NODE_AND_PART if preset == "DEFAULT" else 0
        check_memory(len(hypergraph.pins), limit, extra_bytes)
        return mtkahypar(
            hypergraph.indptr,
            hypergraph.pins,
            hypergraph.weights,
            num_seeds,
            num_parts,
            weights=weights,
            seed=options.seed,
            imbalance=options.imbalance,
            preset=preset,
            time_limit_seconds=options.time_budget_seconds,
        )

    return cut
