"""Weighted draws from each row by an exponential race: an edge arrives at time Exp(1) / weight, the first k are drawn.

Without replacement the law is that of successive draws, each proportional to the remaining weights (Efraimidis,
Spirakis: "Weighted random sampling with a reservoir", IPL 97(5), 2006); with replacement every draw is a separate race.
The variates are keyed by (node, offset of the edge in the node's row): a row does not depend on other rows, nor on the
CSR that contains it, and excluding an edge does not change the variates of the others.
"""

import numpy as np
import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.kernels.hash import exponential, exponential_torch, hash_index, hash_index_torch
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows
from workbench.sampling.candidates import (
    Candidates,
    drawn_offsets,
    draws_with_replacement,
    expand_rows,
    row_offsets,
)
from workbench.sampling.sampler import Drawn

_MIN_ROWS = 256  # per thread: a row costs its in-degree, not its fanout


def draw_weighted(graph: Graph, rows: Candidates, fanout: int | Tensor, *, replace: bool, key: int) -> Drawn:
    """Draw each row's edges with probabilities proportional to `graph.edge_weight`, never edges of weight 0.

    Args:
        graph: a graph with float32 or float64 edge weights.
        rows: the candidates.
        fanout: edges to draw, in order of arrival, for all rows or int64 [n]; -1: all of positive weight.
        replace: draw `fanout` edges independently, with replacement.
        key: key of the random stream.

    Returns:
        The drawn rows, with positions.

    Raises:
        ValueError: weights missing, of another dtype, or, among the rows' edges, negative or not finite.
    """
    weights = _checked_weights(graph)
    if graph.indices.device.type != "cpu":
        return draw_weighted_torch(graph, rows, fanout, replace=replace, key=key)
    count, ends = len(rows.nodes), rows.starts + rows.lengths
    first = rows.first_excluded if len(rows.excluded) else torch.zeros_like(rows.starts)
    slot_weights = weights if rows.positions is None else weights[rows.positions]
    inputs = [t.numpy() for t in (rows.starts, ends, rows.excluded, first, slot_weights)]
    drawable = torch.empty_like(rows.starts)
    parallel_rows(lambda lo, hi: _count_drawable(lo, hi, *inputs, drawable.numpy()), count, _MIN_ROWS)
    if count and int(drawable.min()) < 0:
        _raise_invalid_weight(weights, int(_positions(rows, -1 - drawable.min())))
    indptr = drawn_offsets(drawable, fanout, replace)
    slots = torch.empty(int(indptr[-1]), dtype=torch.int64)
    replaced = draws_with_replacement(count, fanout, replace)
    streams = (key, *(t.numpy() for t in (rows.nodes, _offsets(rows), replaced)))
    out = (indptr.numpy(), slots.numpy())
    parallel_rows(lambda lo, hi: _race_rows(lo, hi, *inputs, streams, *out), count, _MIN_ROWS)
    positions = _positions(rows, slots)
    return Drawn(indptr, graph.indices[positions], positions)


def _positions(rows: Candidates, slots: Tensor) -> Tensor:
    return slots if rows.positions is None else rows.positions[slots]


def _offsets(rows: Candidates) -> Tensor:
    """Return the offsets of all candidates in the rows of their nodes; empty if a row is consecutive in the CSR."""
    if rows.positions is None or rows.origins is None:
        return torch.empty(0, dtype=torch.int64)
    return rows.positions - rows.origins.repeat_interleave(rows.lengths)


@compiled
def _race_rows(lo, hi, starts, ends, excluded, first_excluded, weights, streams, indptr, slots):
    key, nodes, offsets, replaced = streams
    for i in range(lo, hi):
        drawn = slots[indptr[i] : indptr[i + 1]]
        if len(drawn) == 0:
            continue
        row_key = np.int64(hash_index(key, nodes[i]))
        times = np.full(len(drawn), np.inf)
        filled = 0
        slot, skip = _next_drawable(starts[i], ends[i], first_excluded[i], excluded, weights)
        drawn[:] = slot  # in case all weights are so small that no time is finite
        while slot < ends[i]:
            bits = hash_index(row_key, offsets[slot] if len(offsets) else slot - starts[i])
            if replaced[i]:
                for j in range(len(drawn)):
                    time = exponential(hash_index(np.int64(bits), j)) / weights[slot]
                    if time < times[j]:
                        times[j] = time
                        drawn[j] = slot
            else:
                filled = insert_arrival(exponential(bits) / weights[slot], slot, times, drawn, filled)
            slot, skip = _next_drawable(slot + 1, ends[i], skip, excluded, weights)


@compiled
def insert_arrival(time, position, times, positions, filled):
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
def _next_drawable(slot, end, skip, excluded, weights):
    """Return the next candidate of positive weight that is not excluded, and the index of the next excluded edge."""
    while slot < end:
        if skip < len(excluded) and excluded[skip] == slot:
            skip += 1
        elif weights[slot] > 0:
            break
        slot += 1
    return slot, skip


@compiled
def _count_drawable(lo, hi, starts, ends, excluded, first_excluded, weights, counts):
    for i in range(lo, hi):
        for slot in range(starts[i], ends[i]):
            if not 0 <= weights[slot] < np.inf:
                counts[i] = -1 - slot
                break
        else:
            slot, skip = _next_drawable(starts[i], ends[i], first_excluded[i], excluded, weights)
            counts[i] = 0
            while slot < ends[i]:
                counts[i] += 1
                slot, skip = _next_drawable(slot + 1, ends[i], skip, excluded, weights)


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


def earliest_torch(times: Tensor, row: Tensor, limit: Tensor) -> Tensor:
    """Return the indices of each row's `limit[row]` smallest times, sorted by row and time."""
    order = torch.argsort(times, stable=True)
    order = order[torch.argsort(row[order], stable=True)]
    starts = row_offsets(torch.bincount(row, minlength=len(limit)))
    rank = torch.arange(len(order), device=row.device) - starts[row[order]]
    return order[rank < limit[row[order]]]


def draw_weighted_torch(graph: Graph, rows: Candidates, fanout: int | Tensor, *, replace: bool, key: int) -> Drawn:
    """Draw as `draw_weighted` does, in plain torch for any device; the oracle of the compiled kernel."""
    weights = _checked_weights(graph)
    origins = rows.starts if rows.origins is None else rows.origins
    row, position = expand_rows(rows)
    weight = weights[position].to(torch.float64)
    invalid = ~((weight >= 0) & torch.isfinite(weight))
    if bool(invalid.any()):
        _raise_invalid_weight(weights, int(position[invalid][0]))
    keep = (weight > 0) & ~torch.isin(position, rows.excluded)
    row, position, weight = row[keep], position[keep], weight[keep]
    drawable = torch.bincount(row, minlength=len(rows.nodes))
    indptr = drawn_offsets(drawable, fanout, replace)
    counts = indptr.diff()
    bits = hash_index_torch(hash_index_torch(key, rows.nodes)[row], position - origins[row])
    drawn = torch.empty(int(indptr[-1]), dtype=torch.int64, device=row.device)
    replaced = draws_with_replacement(len(counts), fanout, replace).to(row.device)
    one_race = (~replaced).repeat_interleave(counts)
    drawn[one_race] = position[earliest_torch(exponential_torch(bits) / weight, row, counts * ~replaced)]
    for j in range(int((counts * replaced).max()) if len(counts) else 0):  # a race per draw
        time = exponential_torch(hash_index_torch(bits, torch.full_like(bits, j))) / weight
        racing = replaced & (counts > j)
        drawn[indptr[:-1][racing] + j] = position[earliest_torch(time, row, racing.to(torch.int64))]
    return Drawn(indptr, graph.indices[drawn], drawn)
