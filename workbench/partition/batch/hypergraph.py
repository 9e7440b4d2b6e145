"""Hypergraph partition of a batch by Mt-KaHyPar, whose connectivity objective is the redundancy itself.

On the whole training batch of ogbn-arxiv (undirected, fanouts 10, 25) its default preset with one thread is within 1 %
of its deterministic preset in less than half the time; with more threads only the latter is reproducible. Its preset
for many parts loads 2 to 5 % more inputs, in a third to a quarter of the time.
"""

from torch import Tensor

from workbench.core.capacity import available_bytes
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch.batch_hypergraph import batch_hypergraph, check_memory
from workbench.partition.batch.options import PartitionOptions, byte_weights
from workbench.partition.mtkahypar import mtkahypar

_MANY_PARTS = 128  # from here on the default preset is too slow
# Memory of the default preset per vertex or net, and part. Measured 3, on ogbn-arxiv from 32 to 128 parts.
_BYTES_PER_NODE_AND_PART = 4


def hypergraph_parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
    """Minimize the redundant sources of the output block: exact for a batch of one layer."""
    return _partition(mb, num_parts, options, 1)


def hypergraph_deep_parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
    """Minimize the redundant inputs of the batch: exact for any number of layers."""
    return _partition(mb, num_parts, options, None)


def _partition(mb: MiniBatch, num_parts: int, options: PartitionOptions, hops: int | None) -> Tensor:
    limit = available_bytes() if options.max_bytes is None else options.max_bytes
    preset = "DEFAULT" if num_parts < _MANY_PARTS else "LARGE_K"
    hypergraph = batch_hypergraph(mb, hops=hops, max_bytes=limit)
    nodes = mb.num_seeds + len(hypergraph.weights)
    extra_bytes = nodes * num_parts * _BYTES_PER_NODE_AND_PART if preset == "DEFAULT" else 0
    check_memory(len(hypergraph.pins), limit, extra_bytes)
    return mtkahypar(
        hypergraph.indptr,
        hypergraph.pins,
        hypergraph.weights,
        mb.num_seeds,
        num_parts,
        weights=byte_weights(mb, options),
        seed=options.seed,
        imbalance=options.imbalance,
        preset=preset,
        time_limit_seconds=options.time_limit_seconds,
    )
