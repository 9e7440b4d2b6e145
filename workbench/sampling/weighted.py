"""Weighted draws from each row by an exponential race: an edge arrives at time Exp(1) / weight, the first k are drawn.

Without replacement the law is that of successive draws, each proportional to the remaining weights (Efraimidis,
Spirakis: "Weighted random sampling with a reservoir", IPL 97(5), 2006); with replacement every draw is a separate race.
The variates are keyed by CSR position, so a row does not depend on other rows.
"""

import numpy as np
import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.kernels.hash import exponential, exponential_torch, hash_index, hash_index_torch
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows
from workbench.sampling.multilayer import Candidates, Drawn, row_offsets

_MIN_ROWS = 256  # per thread: a row costs its in-degree, not its fanout


def draw_weighted(graph: Graph, rows: Candidates, fanout: int, *, replace: bool, key: int) -> Drawn:
    """Draw each row's edges with probabilities proportional to `graph.edge_weight`, never edges of weight 0.

    Args:
        graph: a graph with float32 or float64 edge weights.
        rows: the candidates.
        fanout: edges to draw per row, in order of arrival; -1: all of positive weight.
        replace: draw `fanout` edges independently, with replacement.
        key: key of the random stream.

    Returns:
        The drawn rows, with positions.

    Raises:
        ValueError: weights missing, of another dtype, or, among the rows' edges, negative or not finite.
    """
    weights = _checked_weights(graph)
    replace = replace and fanout >= 0
    if graph.indices.device.type != "cpu":
        return draw_weighted_torch(graph, rows, fanout, replace=replace, key=key)
    ends = graph.indptr[rows.nodes + 1]
    first = rows.first_excluded if len(rows.excluded) else torch.zeros_like(rows.starts)
    inputs = (rows.starts.numpy(), ends.numpy(), rows.excluded.numpy(), first.numpy(), weights.numpy())
    drawable = torch.empty_like(rows.starts)
    parallel_rows(lambda lo, hi: _count_drawable(lo, hi, *inputs, drawable.numpy()), len(ends), _MIN_ROWS)
    if len(drawable) and int(drawable.min()) < 0:
        _raise_invalid_weight(weights, -1 - int(drawable.min()))
    indptr = row_offsets(_fanout_counts(drawable, fanout, replace))
    positions = torch.empty(int(indptr[-1]), dtype=torch.int64)
    out = (indptr.numpy(), positions.numpy())
    parallel_rows(lambda lo, hi: _race_rows(lo, hi, *inputs, replace, key, *out), len(ends), _MIN_ROWS)
    return Drawn(indptr, graph.indices[positions], positions)


@compiled
def _race_rows(lo, hi, starts, ends, excluded, first_excluded, weights, replace, key, indptr, positions):
    for i in range(lo, hi):
        drawn = positions[indptr[i] : indptr[i + 1]]
        if len(drawn) == 0:
            continue
        times = np.full(len(drawn), np.inf)
        filled = 0
        position, skip = _next_drawable(starts[i], ends[i], first_excluded[i], excluded, weights)
        drawn[:] = position  # in case all weights are so small that no time is finite
        while position < ends[i]:
            bits = hash_index(key, position)
            if replace:
                for j in range(len(drawn)):
                    time = exponential(hash_index(np.int64(bits), j)) / weights[position]
                    if time < times[j]:
                        times[j] = time
                        drawn[j] = position
            else:
                filled = _insert_arrival(exponential(bits) / weights[position], position, times, drawn, filled)
            position, skip = _next_drawable(position + 1, ends[i], skip, excluded, weights)


@compiled
def _insert_arrival(time, position, times, positions, filled):
    """Insert an arrival into the sorted list of the earliest ones; ties are broken by position."""
    slot = min(filled, len(times) - 1)
    if filled == len(times) and times[slot] <= time:
        return filled
    while slot > 0 and times[slot - 1] > time:
        times[slot] = times[slot - 1]
        positions[slot] = positions[slot - 1]
        slot -= 1
    times[slot] = time
    positions[slot] = position
    return min(filled + 1, len(times))


@compiled
def _next_drawable(position, end, skip, excluded, weights):
    """Return the next position of positive weight that is not excluded, and the index of the next excluded edge."""
    while position < end:
        if skip < len(excluded) and excluded[skip] == position:
            skip += 1
        elif weights[position] > 0:
            break
        position += 1
    return position, skip


@compiled
def _count_drawable(lo, hi, starts, ends, excluded, first_excluded, weights, counts):
    for i in range(lo, hi):
        for position in range(starts[i], ends[i]):
            if not 0 <= weights[position] < np.inf:
                counts[i] = -1 - position
                break
        else:
            position, skip = _next_drawable(starts[i], ends[i], first_excluded[i], excluded, weights)
            counts[i] = 0
            while position < ends[i]:
                counts[i] += 1
                position, skip = _next_drawable(position + 1, ends[i], skip, excluded, weights)


def _fanout_counts(drawable: Tensor, fanout: int, replace: bool) -> Tensor:
    if fanout < 0:
        return drawable
    return torch.where(drawable > 0, fanout, 0) if replace else drawable.clamp(max=fanout)


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


def _earliest_torch(times: Tensor, row: Tensor, limit: Tensor) -> Tensor:
    """Return the indices of each row's `limit[row]` smallest times, sorted by row and time."""
    order = torch.argsort(times, stable=True)
    order = order[torch.argsort(row[order], stable=True)]
    starts = row_offsets(torch.bincount(row, minlength=len(limit)))
    rank = torch.arange(len(order), device=row.device) - starts[row[order]]
    return order[rank < limit[row[order]]]


def draw_weighted_torch(graph: Graph, rows: Candidates, fanout: int, *, replace: bool, key: int) -> Drawn:
    """Draw as `draw_weighted` does, in plain torch for any device; the oracle of the compiled kernel."""
    weights = _checked_weights(graph)
    counts = graph.indptr[rows.nodes + 1] - rows.starts
    row = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    position = rows.starts[row] + torch.arange(len(row), device=counts.device) - row_offsets(counts)[row]
    weight = weights[position].to(torch.float64)
    invalid = ~((weight >= 0) & torch.isfinite(weight))
    if bool(invalid.any()):
        _raise_invalid_weight(weights, int(position[invalid][0]))
    keep = (weight > 0) & ~torch.isin(position, rows.excluded)
    row, position, weight = row[keep], position[keep], weight[keep]
    drawable = torch.bincount(row, minlength=len(counts))
    counts = _fanout_counts(drawable, fanout, replace)
    bits = hash_index_torch(key, position)
    if not replace or fanout < 0:
        drawn = position[_earliest_torch(exponential_torch(bits) / weight, row, counts)]
        return Drawn(row_offsets(counts), graph.indices[drawn], drawn)
    one = (drawable > 0).to(torch.int64)
    times = (exponential_torch(hash_index_torch(bits, torch.full_like(bits, j))) / weight for j in range(fanout))
    drawn = torch.stack([position[_earliest_torch(time, row, one)] for time in times], 1).flatten()
    return Drawn(row_offsets(counts), graph.indices[drawn], drawn)
