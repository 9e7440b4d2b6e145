"""METIS on the output block itself: outputs and sources are vertices, an edge is an edge (no shared ones are counted).

A source that outputs in several parts need has edges that are cut; unlike the graph of shared in-neighbours, which has
an edge for every pair of outputs that share a source, this one has no more edges than the block.
"""

import torch
from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.kernels.csr import symmetric_rows
from workbench.partition.batch.options import PartitionOptions
from workbench.partition.even import cut_evenly, fill_empty_parts
from workbench.partition.metis import metis
from workbench.partition.refine.trees import computation_trees, fair_shares

_ROUNDS = 2  # instead of 10: a fifth of the time less, for 1 % more inputs on four real graphs


def star_parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
    """Cut the output block's bipartite graph; a destination and its own row as a source are one vertex."""
    if not mb.blocks:
        return cut_evenly(torch.arange(mb.num_seeds), num_parts, options.weights)
    block = mb.blocks[-1].to("cpu")
    rows = torch.repeat_interleave(torch.arange(block.num_dst, dtype=block.indices.dtype), block.indptr.diff())
    proper = rows != block.indices
    graph = symmetric_rows(rows[proper], block.indices[proper], None, block.num_src)
    part = metis(
        graph.indptr,
        graph.indices.to(torch.int64),
        num_parts,
        weights=_weights(mb, block.num_src, options.weights),
        seed=options.seed,
        imbalance=options.imbalance,
        rounds=_ROUNDS,
        time_limit_seconds=options.time_limit_seconds,
    )
    return fill_empty_parts(part[: mb.num_seeds], num_parts)


def _weights(mb: MiniBatch, num_src: int, weights: Tensor | None) -> Tensor:
    """Of the sources: fair shares of the bytes of all inputs and edges; with weights of the seeds, those alone."""
    if weights is not None:
        return torch.cat([weights.to(torch.float64), torch.zeros(num_src - len(weights), dtype=torch.float64)])
    trees = computation_trees(mb)
    outputs = trees.num_outputs
    shares = fair_shares(trees)[outputs : outputs + num_src]
    shares[:outputs] += trees.cost[:outputs]
    return shares
