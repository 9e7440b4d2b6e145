"""A partition of the whole graph, read at the seeds: cut once, used for every batch."""

import heapq

import torch
from torch import Tensor

from workbench.core.errors import ID_DTYPES
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch.options import PartitionOptions


def cluster_parts(mb: MiniBatch, num_parts: int, options: PartitionOptions) -> Tensor:
    """The seeds' labels in `node_parts`; seed counts of the parts are as uneven as the graph's partition makes them.

    Labels below `num_parts` are taken as they are, so labels that no seed has leave parts empty (a split drops them).
    With labels from `num_parts` on, whole clusters are packed into parts instead: heaviest first, each into what is
    then the lightest part.

    Raises:
        ValueError: no `node_parts`, or a negative label.
        TypeError: `node_parts` is not an integer tensor.
        IndexError: a seed beyond `node_parts`.
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
            f"node_parts has {len(node_parts)} nodes, but seed {int(seeds.max())} occurs; give one label a graph node"
        )
    labels = node_parts[seeds.to(node_parts.device)].to("cpu", torch.int64)
    if len(labels) and int(labels.min()) < 0:
        raise ValueError(f"node_parts holds {int(labels.min())} at a seed; labels must not be negative")
    return labels


def _pack(weights: list[float], num_parts: int) -> Tensor:
    """The part of every cluster."""
    lightest = [(0.0, label) for label in range(num_parts)]
    part = torch.empty(len(weights), dtype=torch.int64)
    for cluster in sorted(range(len(weights)), key=lambda c: -weights[c]):
        weight, label = lightest[0]
        part[cluster] = label
        heapq.heapreplace(lightest, (weight + weights[cluster], label))
    return part
