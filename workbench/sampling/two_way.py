"""A graph with its reverse edges, each direction in rows of its own, so that a sampler draws from both at once."""

from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from workbench.core.capacity import check_fits
from workbench.core.graph import Graph
from workbench.core.graph_build import types_of_both
from workbench.kernels.csr import group_rows

_graphs: WeakKeyDictionary[Graph, dict[tuple[int | None, bool], Graph]] = WeakKeyDictionary()


def two_way(graph: Graph, *, num_edge_types: int | None = None, edge_ids: bool = False) -> Graph:
    """Return the graph whose rows v and `num_nodes` + v are the in-edges and the out-edges of node v.

    It is built once per graph, in time and memory proportional to its edges. The reverse of an edge of type r has type
    r + n, and that of edge e has edge id e + E, as in `Graph.from_edges(undirected="multi")`; its source is the
    destination of the edge.

    Args:
        graph: a directed graph of n edge types and E edges (the largest edge id + 1).
        num_edge_types: n; None: the largest type + 1.
        edge_ids: whether edge ids are needed, 16 bytes per edge.

    Raises:
        CapacityError: the edges of both directions do not fit into memory.
        IndexError: a type is not below `num_edge_types`.
    """
    known = _graphs.setdefault(graph, {})
    key = num_edge_types, edge_ids
    if key not in known:
        known[key] = _build(graph, num_edge_types, edge_ids)
    return known[key]


def _build(graph: Graph, num_edge_types: int | None, edge_ids: bool) -> Graph:
    num_nodes, num_edges, indices = graph.num_nodes, graph.num_edges, graph.indices
    remedy = "draw in-neighbours alone (out_fanouts=None)"
    check_fits("a graph with its reverse edges", (3 * indices.element_size() + 24) * num_edges, remedy)
    nodes = torch.arange(num_nodes, dtype=indices.dtype, device=graph.device)
    destinations = nodes.repeat_interleave(graph.in_degrees(), output_size=num_edges)
    reverse = group_rows(indices, destinations, num_nodes, num_nodes)
    order = torch.arange(num_edges, device=graph.device) if reverse.order is None else reverse.order
    types = None if graph.edge_type is None else types_of_both(graph.edge_type, num_edge_types)
    return Graph(
        torch.cat([graph.indptr, reverse.indptr[1:] + num_edges]),
        torch.cat([indices, reverse.indices.to(indices.dtype)]),
        edge_ids=_ids_of_both(graph, order) if edge_ids else None,
        edge_weight=None if graph.edge_weight is None else torch.cat([graph.edge_weight, graph.edge_weight[order]]),
        edge_type=None if types is None else torch.cat([types[:num_edges], types[num_edges:][order]]),
    )


def _ids_of_both(graph: Graph, order: Tensor) -> Tensor:
    ids = torch.arange(graph.num_edges, device=graph.device) if graph.edge_ids is None else graph.edge_ids
    return torch.cat([ids, ids[order] + first_reverse_id(graph)])


def first_reverse_id(graph: Graph) -> int:
    """Return the edge id of the reverse of edge 0: the number of edges, or of those of the graph that ids refer to."""
    return graph.num_edges if graph.edge_ids is None else int(graph.edge_ids.max()) + 1 if graph.num_edges else 0
