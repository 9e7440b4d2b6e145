"""Random permutation of node ids, so that the distance of two ids says nothing about neighbours or classes."""

from dataclasses import replace

import torch
from torch import Tensor

from workbench.core.dataset import Dataset
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, permutation, stream


def permute_nodes(dataset: Dataset, *, seed: int = 0) -> Dataset:
    """Permute the node ids of a data set.

    Published ids often follow a crawl, a date or a community, so that a range partition is good by accident. Rows of
    the graph and the split are sorted by the new ids, so that nothing of the old order remains.

    Args:
        dataset: a data set for node classification.
        seed: the same seed gives the same ids.

    Returns:
        A data set with a new fingerprint; its graph has no `edge_ids`, so edge ids are its CSR positions.

    Raises:
        ValueError: the data set has a split of its edges.
    """
    if dataset.link_split is not None:
        raise ValueError(
            f"{dataset.name} has a split of its edges, whose ids can't be permuted; use one for node classification"
        )
    old = permutation(stream(seed, Purpose.SHUFFLE), dataset.graph.num_nodes)
    new = torch.empty_like(old)
    new[old] = torch.arange(len(old))
    return Dataset.build(
        _permuted(dataset.graph, old, new),
        dataset.x[old],
        dataset.y[old],
        train_idx=new[dataset.train_idx].sort().values,
        val_idx=new[dataset.val_idx].sort().values,
        test_idx=new[dataset.test_idx].sort().values,
        num_classes=dataset.num_classes,
        name=dataset.name,
        split=dataset.split,
        features=dataset.features,
    )


def _permuted(graph: Graph, old: Tensor, new: Tensor) -> Graph:
    src = new[graph.indices.long()]
    dst = torch.repeat_interleave(new, graph.in_degrees())
    order = torch.argsort(src, stable=True)  # from_edges keeps this order within rows
    weight, kind = (None if v is None else v[order] for v in (graph.edge_weight, graph.edge_type))
    node_type = None if graph.node_type is None else graph.node_type[old]
    permuted = Graph.from_edges(
        src[order], dst[order], num_nodes=len(new), edge_weight=weight, edge_type=kind, node_type=node_type
    )
    return replace(permuted, edge_ids=None)
