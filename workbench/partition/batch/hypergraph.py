"""Mt-KaHyPar on the hypergraph of a batch, whose objective is the redundancy itself."""

from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.partition.batch.nets import batch_nets
from workbench.partition.batch.options import PartitionOptions
from workbench.partition.hypergraph import cut_nets


def hypergraph_parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
    """Cut so that few sources of the output block are loaded by several parts: exact for a batch of one layer."""
    return _cut(mb, num_parts, options, 1)


def hypergraph_deep_parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
    """Cut so that few inputs of the batch are loaded by several parts: exact for any number of layers."""
    return _cut(mb, num_parts, options, None)


def _cut(mb: MiniBatch, num_parts: int, options: PartitionOptions, hops: int | None) -> Tensor:
    nets = batch_nets(mb, hops=hops, max_bytes=options.max_bytes)
    return cut_nets(
        nets.indptr, nets.pins, nets.weights, mb.num_seeds, num_parts, weights=options.weights, seed=options.seed
    )
