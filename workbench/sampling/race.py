"""The earliest edges of each row: every edge has an arrival time, the first k are drawn.

The arrival times are keyed by (node, offset of the edge in the node's row): a row does not depend on other rows, nor on
the CSR that contains it, and excluding an edge does not change the times of the others. They come from one stream of
variates, or from the mixture of two: then the drawn edges change little from one batch to the next.
"""

import numpy as np
import torch
from torch import Tensor

from workbench.core.variates import Variates
from workbench.kernels.hash import hash_index, hash_index_torch
from workbench.kernels.jit import compiled
from workbench.kernels.normal import mixed_exponential, mixed_exponential_torch, mixed_normal, mixed_normal_torch
from workbench.kernels.threads import parallel_rows
from workbench.sampling.candidates import Candidates, draws_with_replacement, expand_rows, row_offsets

MIN_ROWS = 256  # per thread: a row costs its in-degree, not its fanout


def draw_earliest(
    rows: Candidates, weights: Tensor | None, fanout: int | Tensor, replace: bool, indptr: Tensor, variates: Variates
) -> Tensor:
    """Draw the earliest edges of each row, in order of arrival.

    Args:
        rows: the candidates.
        weights: float32 or float64 [num_edges], valid: an edge arrives at time Exp(1) / weight, never if that is 0;
            None: at the time of its normal variate. Rows drawn completely then keep the order of the CSR.
        fanout: edges to draw, for all rows or int64 [n]; -1: all.
        replace: every draw of a row is a separate race.
        indptr: int64 [n + 1], offsets of the drawn rows (`candidates.drawn_offsets`).
        variates: the random variates.

    Returns:
        int64 [indptr[-1]], CSR positions.
    """
    replaced = draws_with_replacement(len(rows.nodes), fanout, replace)
    slots = torch.empty(int(indptr[-1]), dtype=torch.int64)
    edges = (*edge_arrays(rows, weights), _offsets(rows).numpy())
    streams = (*variates, rows.nodes.numpy(), replaced.numpy())
    out = (indptr.numpy(), slots.numpy())
    parallel_rows(lambda lo, hi: _race_rows(lo, hi, edges, streams, *out), len(rows.nodes), MIN_ROWS)
    return edge_positions(rows, slots)


def edge_arrays(rows: Candidates, weights: Tensor | None) -> tuple[np.ndarray, ...]:
    """Return starts, ends and degrees of the rows, excluded slots and where each row's begin, and weights by slot."""
    first = rows.first_excluded if len(rows.excluded) else torch.zeros_like(rows.starts)
    if weights is None:
        weights = torch.empty(0)
    elif rows.positions is not None:
        weights = weights[rows.positions]
    tensors = (rows.starts, rows.starts + rows.lengths, rows.degrees, rows.excluded, first, weights)
    return tuple(tensor.numpy() for tensor in tensors)


def edge_positions(rows: Candidates, slots: Tensor) -> Tensor:
    """Convert slots, which count through `rows.positions`, to CSR positions."""
    return slots if rows.positions is None else rows.positions[slots]


def _offsets(rows: Candidates) -> Tensor:
    """Return the offsets of all candidates in the rows of their nodes; empty if a row is consecutive in the CSR."""
    if rows.positions is None or rows.origins is None:
        return torch.empty(0, dtype=torch.int64)
    return rows.positions - rows.origins.repeat_interleave(rows.lengths)


@compiled
def next_drawable(slot, end, skip, excluded, weights):
    """Return the next candidate that is not excluded, nor of weight 0, and the index of the next excluded edge."""
    while slot < end:
        if skip < len(excluded) and excluded[skip] == slot:
            skip += 1
        elif len(weights) == 0 or weights[slot] > 0:
            break
        slot += 1
    return slot, skip


@compiled
def _race_rows(lo, hi, edges, streams, indptr, slots):
    starts, ends, degrees, excluded, first_excluded, weights, _ = edges
    for i in range(lo, hi):
        drawn = slots[indptr[i] : indptr[i + 1]]
        if len(drawn) == 0:
            continue
        slot, skip = next_drawable(starts[i], ends[i], first_excluded[i], excluded, weights)
        if len(weights) > 0 or streams[-1][i] or len(drawn) < degrees[i]:
            _race(i, slot, skip, edges, streams, drawn)
            continue
        for j in range(len(drawn)):
            drawn[j] = slot
            slot, skip = next_drawable(slot + 1, ends[i], skip, excluded, weights)


@compiled
def _race(i, slot, skip, edges, streams, drawn):
    """Draw row i, whose first drawable edge is `slot`."""
    starts, ends, _, excluded, _, weights, offsets = edges
    key, next_key, cosine, sine, nodes, replaced = streams
    row_key, next_row_key = np.int64(hash_index(key, nodes[i])), np.int64(hash_index(next_key, nodes[i]))
    times = np.full(len(drawn), np.inf)
    drawn[:] = slot  # in case all weights are so small that no time is finite
    filled = 0
    while slot < ends[i]:
        offset = offsets[slot] if len(offsets) else slot - starts[i]
        if replaced[i]:
            edge_key = np.int64(hash_index(row_key, offset))
            next_edge_key = np.int64(hash_index(next_row_key, offset))
            for j in range(len(drawn)):
                time = _arrival(edge_key, next_edge_key, cosine, sine, j, weights, slot)
                if time < times[j]:
                    times[j] = time
                    drawn[j] = slot
        else:
            time = _arrival(row_key, next_row_key, cosine, sine, offset, weights, slot)
            filled = insert_arrival(time, slot, times, drawn, filled)
        slot, skip = next_drawable(slot + 1, ends[i], skip, excluded, weights)


@compiled
def _arrival(key, next_key, cosine, sine, index, weights, slot):
    if len(weights) == 0:
        return mixed_normal(key, next_key, cosine, sine, index)
    return mixed_exponential(key, next_key, cosine, sine, index) / weights[slot]


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


def draw_earliest_torch(
    rows: Candidates, weights: Tensor | None, fanout: int | Tensor, replace: bool, indptr: Tensor, variates: Variates
) -> Tensor:
    """Draw as `draw_earliest` does, in plain torch for any device; the oracle of the compiled kernel."""
    replaced = draws_with_replacement(len(rows.nodes), fanout, replace).to(indptr.device)
    row, position = expand_rows(rows)
    weight = None if weights is None else weights[position].to(torch.float64)
    kept = ~torch.isin(position, rows.excluded)
    kept = kept if weight is None else kept & (weight > 0)
    row, position, weight = row[kept], position[kept], None if weight is None else weight[kept]
    counts = indptr.diff()
    offsets = position - (rows.starts if rows.origins is None else rows.origins)[row]
    key, next_key = (hash_index_torch(key, rows.nodes)[row] for key in variates[:2])
    drawn = torch.empty(int(indptr[-1]), dtype=torch.int64, device=row.device)
    one_race = (~replaced).repeat_interleave(counts)
    times = _arrival_torch(key, next_key, variates, offsets, weight)
    if weight is None:  # a row drawn completely keeps its order
        times = torch.where((counts == rows.degrees)[row], offsets.to(torch.float64), times)
    drawn[one_race] = position[earliest_torch(times, row, counts * ~replaced)]
    key, next_key = hash_index_torch(key, offsets), hash_index_torch(next_key, offsets)
    for j in range(int((counts * replaced).max()) if len(counts) else 0):  # a race per draw
        times = _arrival_torch(key, next_key, variates, torch.full_like(key, j), weight)
        racing = replaced & (counts > j)
        drawn[indptr[:-1][racing] + j] = position[earliest_torch(times, row, racing.to(torch.int64))]
    return drawn


def _arrival_torch(key: Tensor, next_key: Tensor, variates: Variates, index: Tensor, weight: Tensor | None) -> Tensor:
    mixture = (key, next_key, variates.cosine, variates.sine, index)
    return mixed_normal_torch(*mixture) if weight is None else mixed_exponential_torch(*mixture) / weight


def earliest_torch(times: Tensor, row: Tensor, limit: Tensor) -> Tensor:
    """Return the indices of each row's `limit[row]` smallest times, sorted by row and time.

    Args:
        times: floating point [n].
        row: int64 [n], the row of every time.
        limit: int64 [num_rows].

    Returns:
        int64 [sum of the smaller of limit and length of each row].
    """
    order = torch.argsort(times, stable=True)
    order = order[torch.argsort(row[order], stable=True)]
    starts = row_offsets(torch.bincount(row, minlength=len(limit)))
    rank = torch.arange(len(order), device=row.device) - starts[row[order]]
    return order[rank < limit[row[order]]]
