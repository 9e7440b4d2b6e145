"""Statistics of any graph: degrees, clustering, reciprocity, homophily."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from workbench.core.graph import Graph
from workbench.standin.clustering import Clustering, mean_clustering
from workbench.standin.edge_statistics import homophily, reciprocity, simple_undirected

QUANTILES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


@dataclass(frozen=True)
class GraphStatistics:
    """Statistics of a graph; degrees and clustering are those of its undirected simple version.

    Args:
        num_nodes: number of nodes.
        num_edges: number of stored edges.
        mean_degree: mean number of neighbours.
        largest_degree: largest number of neighbours.
        degree_quantiles: pairs (share of nodes, degree): the smallest degree that this share does not exceed.
        clustering: mean local clustering coefficient.
        reciprocity: share of edges whose reverse exists, not counting self loops; None without edges.
        homophily: share of edges between labelled nodes whose ends have the same class; None if it is undefined.
    """

    num_nodes: int
    num_edges: int
    mean_degree: float
    largest_degree: int
    degree_quantiles: tuple[tuple[float, int], ...]
    clustering: Clustering
    reciprocity: float | None
    homophily: float | None


def graph_statistics(graph: Graph, y: Tensor | None = None, *, seed: int = 0) -> GraphStatistics:
    """Measure a graph.

    Args:
        graph: a graph on the CPU.
        y: int64 [num_nodes], classes, -1 for unlabelled; or floating, if nodes have several labels; None: no labels.
        seed: seed of the sample of nodes for the clustering of large graphs.

    Returns:
        The statistics.
    """
    simple = simple_undirected(graph)
    degrees = simple.in_degrees()
    return GraphStatistics(
        num_nodes=graph.num_nodes,
        num_edges=graph.num_edges,
        mean_degree=simple.num_edges / max(1, graph.num_nodes),
        largest_degree=int(degrees.max()) if graph.num_nodes else 0,
        degree_quantiles=degree_quantiles(degrees),
        clustering=mean_clustering(simple, None, seed),
        reciprocity=(1.0 if simple.num_edges else None) if simple is graph else reciprocity(graph),
        homophily=None if y is None else homophily(graph, y),
    )


def degree_quantiles(degrees: Tensor, shares: Sequence[float] = QUANTILES) -> tuple[tuple[float, int], ...]:
    """Compute degree quantiles: the smallest degree that at least a given share of the nodes does not exceed.

    Args:
        degrees: int64 [any].
        shares: the shares, in (0, 1].

    Returns:
        Pairs (share, degree); none without nodes.

    >>> import torch
    >>> degree_quantiles(torch.tensor([3, 1, 1, 9]), [0.5, 0.75])
    ((0.5, 1), (0.75, 3))
    """
    ordered, count = degrees.sort().values, len(degrees)
    return tuple((q, int(ordered[max(0, math.ceil(q * count - 1e-9) - 1)])) for q in shares) if count else ()
