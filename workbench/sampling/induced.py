"""Edges of the subgraph that some nodes induce, which subgraph-sampling methods train on."""

import torch
from torch import Tensor

from workbench.core.errors import check_ids
from workbench.core.graph import Graph
from workbench.sampling.neighbor import FullNeighborSampler
from workbench.sampling.sampler import check_graph


def induced_edges(graph: Graph, nodes: Tensor) -> int:
    """Count the edges between some nodes: those of the subgraph that they induce.

    Args:
        graph: the graph.
        nodes: int64 or int32 [n], node ids, each once.

    Returns:
        The number of edges, each direction counted.

    Raises:
        TypeError: ids of another dtype.
        ValueError: duplicate nodes.
        IndexError: an id out of range.

    Source: Cooperative Minibatching, section 3.3.

    >>> path = Graph.from_edges(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]), num_nodes=4)
    >>> induced_edges(path, torch.tensor([3, 0, 1, 2])), induced_edges(path, torch.tensor([0, 2, 3]))
    (3, 1)
    """
    check_graph(graph)
    nodes = check_ids("nodes", nodes, graph.num_nodes, unique=True).to(graph.device)
    chosen = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
    chosen[nodes] = True
    return int(chosen[FullNeighborSampler(1).draw(graph, nodes, layer=0).sources].sum())
