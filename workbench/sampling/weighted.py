"""Weighted draws from each row by an exponential race: an edge arrives at time Exp(1) / weight, the first k are drawn.

Without replacement the law is that of successive draws, each proportional to the remaining weights (Efraimidis,
Spirakis: "Weighted random sampling with a reservoir", IPL 97(5), 2006); with replacement every draw is a separate race.
"""

import numpy as np
import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.variates import Variates
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows
from workbench.sampling.candidates import Candidates, drawn_offsets, expand_rows
from workbench.sampling.race import (
    MIN_ROWS,
    draw_earliest,
    draw_earliest_torch,
    edge_arrays,
    edge_positions,
    next_drawable,
)
from workbench.sampling.sampler import Drawn


def draw_weighted(graph: Graph, rows: Candidates, fanout: int | Tensor, *, replace: bool, variates: Variates) -> Drawn:
    """Draw each row's edges with probabilities proportional to `graph.edge_weight`, never edges of weight 0.

    Args:
        graph: a graph with float32 or float64 edge weights.
        rows: the candidates.
        fanout: edges to draw, in order of arrival, for all rows or int64 [n]; -1: all of positive weight.
        replace: draw `fanout` edges independently, with replacement.
        variates: the random variates.

    Returns:
        The drawn rows, with positions.

    Raises:
        ValueError: weights missing, of another dtype, or, among the rows' edges, negative or not finite.
    """
    weights = _checked_weights(graph)
    if weights.device.type != "cpu":
        return draw_weighted_torch(graph, rows, fanout, replace=replace, variates=variates)
    indptr = drawn_offsets(_drawable(rows, weights), fanout, replace)
    positions = draw_earliest(rows, weights, fanout, replace, indptr, variates)
    return Drawn(indptr, graph.indices[positions], positions)


def draw_weighted_torch(
    graph: Graph, rows: Candidates, fanout: int | Tensor, *, replace: bool, variates: Variates
) -> Drawn:
    """Draw as `draw_weighted` does, in plain torch for any device; the oracle of the compiled kernel."""
    weights = _checked_weights(graph)
    indptr = drawn_offsets(_drawable_torch(rows, weights), fanout, replace)
    positions = draw_earliest_torch(rows, weights, fanout, replace, indptr, variates)
    return Drawn(indptr, graph.indices[positions], positions)


def _drawable(rows: Candidates, weights: Tensor) -> Tensor:
    """Count each row's candidates of positive weight, int64 [n], after checking the weights."""
    counts, edges = torch.empty_like(rows.starts), edge_arrays(rows, weights)
    parallel_rows(lambda lo, hi: _count_drawable(lo, hi, *edges, counts.numpy()), len(counts), MIN_ROWS)
    if len(counts) and int(counts.min()) < 0:
        _raise_invalid_weight(weights, int(edge_positions(rows, -1 - counts.min())))
    return counts


@compiled
def _count_drawable(lo, hi, starts, ends, degrees, excluded, first_excluded, weights, counts):
    for i in range(lo, hi):
        for slot in range(starts[i], ends[i]):
            if not 0 <= weights[slot] < np.inf:
                counts[i] = -1 - slot
                break
        else:
            slot, skip = next_drawable(starts[i], ends[i], first_excluded[i], excluded, weights)
            counts[i] = 0
            while slot < ends[i]:
                counts[i] += 1
                slot, skip = next_drawable(slot + 1, ends[i], skip, excluded, weights)


def _drawable_torch(rows: Candidates, weights: Tensor) -> Tensor:
    """Count as `_drawable` does, in plain torch."""
    row, position = expand_rows(rows)
    weight = weights[position]
    invalid = ~((weight >= 0) & torch.isfinite(weight))
    if bool(invalid.any()):
        _raise_invalid_weight(weights, int(position[invalid][0]))
    drawable = (weight > 0) & ~torch.isin(position, rows.excluded)
    return torch.bincount(row[drawable], minlength=len(rows.nodes))


def _checked_weights(graph: Graph) -> Tensor:
    weights = graph.edge_weight
    if weights is None or weights.dtype not in (torch.float32, torch.float64):
        kind = "missing" if weights is None else weights.dtype
        raise ValueError(f"graph.edge_weight is {kind}; weighted sampling requires float32 or float64 weights")
    return weights


def _raise_invalid_weight(weights: Tensor, position: int) -> None:
    raise ValueError(
        f"edge_weight is {weights[position].item()} at CSR position {position}; "
        "weights of a weighted sampler must be finite and non-negative"
    )
