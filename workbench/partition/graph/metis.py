"""METIS (minimum edge cut) on the whole graph."""

from torch import Tensor

from workbench.core.graph import Graph
from workbench.partition.metis import metis, symmetric_adjacency


def metis_nodes(g: Graph, num_parts: int, seed: int) -> Tensor:
    """Partition the graph's undirected simple version."""
    return metis(*symmetric_adjacency(g.indptr.cpu(), g.indices.cpu()), num_parts, seed=seed)
