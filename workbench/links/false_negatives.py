"""Negatives that are edges: found by searching the rows of the graph."""

import torch
from torch import Tensor

from workbench.core.capacity import check_fits
from workbench.core.errors import check_ids, check_type
from workbench.core.graph import Graph
from workbench.kernels.edge_lookup import count_pairs
from workbench.links.edge_batch import EdgeBatch

_QUERIES_AT_A_TIME = 1 << 20


def have_edges(graph: Graph, src: Tensor, dst: Tensor, relation: Tensor | None) -> Tensor:
    """Tell which pairs of nodes have an edge.

    Args:
        graph: the graph.
        src: int64 [n], nodes of the graph.
        dst: int64 [n], nodes of the graph.
        relation: integer [n], the type of each pair's edge if the graph has edge types; None: any type.

    Returns:
        bool [n].
    """
    types = None if relation is None else graph.edge_type
    found = torch.empty(len(src), dtype=torch.bool, device=src.device)
    for start in range(0, len(src), _QUERIES_AT_A_TIME):
        part = slice(start, start + _QUERIES_AT_A_TIME)
        wanted = None if types is None or relation is None else relation[part]
        found[part] = count_pairs(graph.indptr, graph.indices, dst[part], src[part], types, wanted) > 0
    return found


def false_negatives(batch: EdgeBatch, graph: Graph) -> Tensor:
    """Tell which negatives are edges of the graph, to exclude their scores from a loss or a ranking.

    Args:
        batch: a batch with negatives; its relations are compared if the graph has edge types.
        graph: the graph of all true edges.

    Returns:
        bool [num_pairs, num_negatives], in the order of `batch.per_pair()`.

    Raises:
        IndexError: if a node is not in the graph.
        CapacityError: if the negatives of all pairs exceed the memory.
    """
    check_type("batch", batch, EdgeBatch, "pass an EdgeBatch (EdgeBatch.from_pairs makes one)")
    check_type("graph", graph, Graph, "pass the Graph of the true edges")
    shape = batch.num_pairs, batch.num_negatives
    check_fits(f"a mask of {shape} negatives", 40 * shape[0] * shape[1], "use fewer negatives, or split the batch")
    seeds, pairs = check_ids("seeds", batch.seeds, graph.num_nodes), batch.per_pair()
    if pairs.neg_src is None or pairs.neg_dst is None:
        return torch.zeros(shape, dtype=torch.bool, device=batch.device)
    relation = None if batch.relation is None else batch.relation.repeat_interleave(shape[1])
    return have_edges(graph, seeds[pairs.neg_src], seeds[pairs.neg_dst], relation).view(shape)
