"""Mt-KaHyPar on the hypergraph of a batch, whose objective is the redundancy itself.

On the whole training batch of ogbn-arxiv (undirected, fanouts 10, 25) its default with one thread is within 1 % of its
deterministic preset in less than half the work; with more threads only the latter repeats. Its preset for many parts
loads 2 to 5 % more inputs, in a third to a quarter of the work.
"""

from torch import Tensor

from workbench.core.host_memory import available_bytes
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch.nets import batch_nets, check_room
from workbench.partition.batch.options import PartitionOptions, byte_weights
from workbench.partition.hypergraph import cut_nets

_MANY_PARTS = 128  # from here on the default takes too long
# Of the default: nodes are outputs and nets. Measured 3, on ogbn-arxiv from 32 to 128 parts.
_BYTES_PER_NODE_AND_PART = 4


def hypergraph_parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
    """Cut so that few sources of the output block are loaded by several parts: exact for a batch of one layer."""
    return _cut(mb, num_parts, options, 1)


def hypergraph_deep_parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
    """Cut so that few inputs of the batch are loaded by several parts: exact for any number of layers."""
    return _cut(mb, num_parts, options, None)


def _cut(mb: MiniBatch, num_parts: int, options: PartitionOptions, hops: int | None) -> Tensor:
    limit = available_bytes() if options.max_bytes is None else options.max_bytes
    preset = "DEFAULT" if num_parts < _MANY_PARTS else "LARGE_K"
    nets = batch_nets(mb, hops=hops, max_bytes=limit)
    nodes = mb.num_seeds + len(nets.weights)
    check_room(len(nets.pins), limit, nodes * num_parts * _BYTES_PER_NODE_AND_PART if preset == "DEFAULT" else 0)
    return cut_nets(
        nets.indptr,
        nets.pins,
        nets.weights,
        mb.num_seeds,
        num_parts,
        weights=byte_weights(mb, options),
        seed=options.seed,
        imbalance=options.imbalance,
        preset=preset,
        time_limit_seconds=options.time_limit_seconds,
    )
