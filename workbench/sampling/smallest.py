"""Uniform draws of dependent batches: the edges of each row with the k smallest normal variates.

Floyd's algorithm would draw other edges as soon as its variates change a little. Here an edge is replaced only when its
variate leaves the k smallest, so that neighbourhoods change as slowly as the variates. Each draw reads a variate per
edge of the row instead of one per drawn edge.

Balin, LaSalle, Çatalyürek: "Cooperative minibatching in graph neural networks", 2023, section A.7.
"""

from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.variates import Variates
from workbench.sampling.candidates import Candidates, drawn_offsets
from workbench.sampling.race import draw_earliest, draw_earliest_torch
from workbench.sampling.sampler import Drawn


def draw_smallest(graph: Graph, rows: Candidates, fanout: int | Tensor, *, replace: bool, variates: Variates) -> Drawn:
    """Draw each row's edges with equal probability.

    Args:
        graph: the graph to sample from.
        rows: the candidates.
        fanout: edges to draw, in order of their variates, for all rows or int64 [n]; a row with no more candidates
            keeps them all, in CSR order; -1: all.
        replace: draw `fanout` edges independently, with replacement: each time the edge of the smallest variate.
        variates: the random variates.

    Returns:
        The drawn rows, with positions.
    """
    if graph.indices.device.type != "cpu":
        return draw_smallest_torch(graph, rows, fanout, replace=replace, variates=variates)
    indptr = drawn_offsets(rows.degrees, fanout, replace)
    positions = draw_earliest(rows, None, fanout, replace, indptr, variates)
    return Drawn(indptr, graph.indices[positions], positions)


def draw_smallest_torch(
    graph: Graph, rows: Candidates, fanout: int | Tensor, *, replace: bool, variates: Variates
) -> Drawn:
    """Draw as `draw_smallest` does, in plain torch for any device; the oracle of the compiled kernel."""
    indptr = drawn_offsets(rows.degrees, fanout, replace)
    positions = draw_earliest_torch(rows, None, fanout, replace, indptr, variates)
    return Drawn(indptr, graph.indices[positions], positions)
