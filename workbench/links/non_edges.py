"""Draws of negative pairs that are repeated until the pair is no edge of the graph, nor pairs a node with itself."""

from collections.abc import Callable

import torch
from torch import Tensor

from workbench.core.errors import ID_DTYPES, check_ids, check_vector
from workbench.core.graph import Graph
from workbench.links.false_negatives import have_edges

_MAX_DRAWS = 100

Draw = Callable[[Tensor, Tensor, int], Tensor]
"""Maps hashes of entries, whether each is uniform over the nodes, and the number of the attempt to nodes."""


def edge_test(
    graph: Graph | int, end: str, kept: Tensor, relation: Tensor | None, rows: int
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function of (nodes, rows): whether a node is the end that the row keeps, or has an edge with it."""
    if not isinstance(graph, Graph):
        raise TypeError(f"kept needs the edges of a Graph, but graph is the number {graph}; pass the Graph")
    ids = check_ids("kept", kept, graph.num_nodes)
    check_vector("kept", ids, rows, (torch.int64,))
    check_vector("relation", relation, rows, ID_DTYPES)

    def is_edge(nodes: Tensor, row: Tensor) -> Tensor:
        ends = (nodes, ids[row]) if end == "src" else (ids[row], nodes)
        return (nodes == ids[row]) | have_edges(graph, *ends, None if relation is None else relation[row])

    return is_edge


def without_edges(
    is_edge: Callable[[Tensor, Tensor], Tensor], draw: Draw, nodes: Tensor, entry: Tensor, uniform: Tensor, row: Tensor
) -> Tensor:
    """Draw the nodes again that have an edge, until none has."""
    again = is_edge(nodes, row).nonzero()[:, 0]
    for attempt in range(1, _MAX_DRAWS):
        if not len(again):
            return nodes
        nodes[again] = draw(entry[again], uniform[again], attempt)
        again = again[is_edge(nodes[again], row[again])]
    if len(again):
        raise ValueError(
            f"{_MAX_DRAWS} draws for pair {int(row[again[0]])} all gave edges: its end has an edge with nearly all "
            "nodes; omit kept, and mask false_negatives(batch, graph) in the loss"
        )
    return nodes
