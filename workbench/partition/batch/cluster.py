"""Cluster partition of a batch: each seed's part in a partition of the whole graph, which is computed only once."""

import heapq

import torch
from torch import Tensor

from workbench.core.errors import ID_DTYPES
from workbench.partition.batch.prepared_batch import Cut, PreparedBatch


def prepare_cluster(batch: PreparedBatch) -> Cut:
    """Look up the seeds' labels in `node_parts`; parts are only as balanced as the graph partition makes them.

    Labels below the number of parts are the parts, so a label without seeds leaves a part empty (a split drops it). If
    labels reach it, whole clusters are packed into parts instead: heaviest first, each into the lightest part.

    Args:
        batch: the batch, with the options `node_parts`, and `weights` for packing.

    Returns:
        A function of the number of parts.

    Raises:
        ValueError: no `node_parts`, or a negative label.
        TypeError: `node_parts` is not an integer tensor.
        IndexError: a seed that `node_parts` does not cover.
    """
    labels = _labels(batch.seeds, batch.options.node_parts)
    cluster = torch.unique(labels, return_inverse=True)[1]
    weights = None if batch.options.weights is None else batch.options.weights.to(torch.float64)
    cluster_weights = torch.bincount(cluster, weights=weights).tolist()

    def cut(num_parts: int) -> Tensor:
        if not len(labels) or int(labels.max()) < num_parts:
            return labels
        return _pack(cluster_weights, num_parts)[cluster]

    return cut


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
