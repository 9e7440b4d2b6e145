"""Cluster partition of a batch: each seed's part in a partition of the whole graph, which is computed only once."""

import heapq

import torch
from torch import Tensor

from workbench.core.errors import ID_DTYPES
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch.options import PartitionOptions


def cluster_parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
    """Look up the seeds' labels in `node_parts`; parts are only as balanced as the graph partition makes them.

    Labels below `num_parts` are the parts, so a label without seeds leaves a part empty (a split drops it). If labels
    reach `num_parts`, whole clusters are packed into parts instead: heaviest first, each into the lightest part.

    Args:
        mb: the batch.
        num_parts: number of parts.
        options: `node_parts`, and `weights` for packing.

    Returns:
        int64 [num_seeds] in [0, num_parts), on the CPU.

    Raises:
        ValueError: no `node_parts`, or a negative label.
        TypeError: `node_parts` is not an integer tensor.
        IndexError: a seed that `node_parts` does not cover.
    """
    labels = _labels(mb.seeds, options.node_parts)
    if not len(labels) or int(labels.max()) < num_parts:
        return labels
    cluster = torch.unique(labels, return_inverse=True)[1]
    weights = None if options.weights is None else options.weights.to(torch.float64)
    return _pack(torch.bincount(cluster, weights=weights).tolist(), num_parts)[cluster]


def _labels(seeds: Tensor, node_parts: Tensor | None) -> Tensor:
    if node_parts is None:
        raise ValueError(
            "method 'cluster' reads a partition of the whole graph: pass node_parts=partition_graph(g, num_parts)"
        )
    if node_parts.dtype not in ID_DTYPES or node_parts.dim() != 1:
        raise TypeError(
            f"node_parts must be an integer vector, not {node_parts.dtype} of shape {tuple(node_parts.shape)}"
        )
    if len(seeds) and int(seeds.max()) >= len(node_parts):
        raise IndexError(
            f"node_parts has {len(node_parts)} labels, but the batch has seed {int(seeds.max())}; pass one label per "
            "node of the graph"
        )
    labels = node_parts[seeds.to(node_parts.device)].to("cpu", torch.int64)
    if len(labels) and int(labels.min()) < 0:
        raise ValueError(f"node_parts is {int(labels.min())} for a seed; labels must be non-negative")
    return labels


def _pack(weights: list[float], num_parts: int) -> Tensor:
    """Assign clusters to parts greedily: heaviest cluster first, each to the lightest part."""
    lightest = [(0.0, label) for label in range(num_parts)]
    part = torch.empty(len(weights), dtype=torch.int64)
    for cluster in sorted(range(len(weights)), key=lambda c: -weights[c]):
        weight, label = lightest[0]
        part[cluster] = label
        heapq.heapreplace(lightest, (weight + weights[cluster], label))
    return part
