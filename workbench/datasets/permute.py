"""A set with its node ids shuffled, so that neither neighbours nor classes are told by how near two ids are."""

from dataclasses import replace

import torch
from torch import Tensor

from workbench.core.dataset import Dataset
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, permutation, stream


def permute_nodes(dataset: Dataset, *, seed: int = 0) -> Dataset:
    """The same set under other node ids.

    Published ids often follow a crawl, a date or a community: a cut by range is then a good one, by luck. Rows of the
    graph and the split are sorted by the new ids, so that no order is left of the old ones.

    Args:
        dataset: of node classification.
        seed: the same seed gives the same ids.

    Returns:
        A data set with a fingerprint of its own; `edge_ids` of its graph are those of its own rows.

    Raises:
        ValueError: a set whose split is of edges.
    """
    if dataset.link_split is not None:
        raise ValueError(f"{dataset.name} has a split of its edges, which would keep their old ids; use another set")
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
    order = torch.argsort(src, stable=True)  # rows keep this order
    weight, kind = (None if v is None else v[order] for v in (graph.edge_weight, graph.edge_type))
    node_type = None if graph.node_type is None else graph.node_type[old]
    permuted = Graph.from_edges(
        src[order], dst[order], num_nodes=len(new), edge_weight=weight, edge_type=kind, node_type=node_type
    )
    return replace(permuted, edge_ids=None)
