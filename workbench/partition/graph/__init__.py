"""Partitions of a whole graph's nodes: METIS, streaming rules (LDG, Fennel) and PaGraph's training nodes.

`split_graph` writes the parts to folders of their own, which ranks open without reading anything else.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from workbench.core.errors import check_choice, check_seed, check_type
from workbench.core.graph import Graph
from workbench.partition.graph.streaming import STREAMING_METHODS, check_num_parts, metis_nodes, partition_stream


def _streamed(method: str) -> Callable[[Graph, int, int], Tensor]:
    return lambda g, num_parts, seed: partition_stream(g, num_parts, method=method, seed=seed).to(torch.int64)


GRAPH_PARTITION_METHODS: Mapping[str, Callable[[Graph, int, int], Tensor]] = MappingProxyType(
    {"metis": metis_nodes, **{method: _streamed(method) for method in STREAMING_METHODS}}
)


def partition_graph(g: Graph, num_parts: int, *, method: str = "metis", seed: int = 0) -> Tensor:
    """Assign every node of a graph to one of `num_parts` parts.

    Args:
        g: the graph.
        num_parts: number of parts, 1 to the number of nodes.
        method: a name of `GRAPH_PARTITION_METHODS`: "metis" (minimum edge cut of the undirected graph), "ldg" or
            "fennel" (greedy, in one pass over the edges as they are stored; `partition_stream` has their options),
            "random" or "range" (runs of node ids of equal length).
        seed: the same seed gives the same parts; "ldg", "fennel" and "range" do not depend on it.

    Returns:
        int64 [num_nodes] in [0, num_parts), on the CPU.

    Raises:
        ValueError: an unknown method or an impossible number of parts.
        ImportError: "metis" without pymetis.
    """
    check_choice("method", method, GRAPH_PARTITION_METHODS)
    check_type("g", g, Graph, "pass a Graph (Graph.from_dgl, from_pyg, … convert others)")
    check_seed(seed)
    check_num_parts(num_parts, g.num_nodes)
    if num_parts == 1:
        return torch.zeros(g.num_nodes, dtype=torch.int64)
    return GRAPH_PARTITION_METHODS[method](g, num_parts, seed)
