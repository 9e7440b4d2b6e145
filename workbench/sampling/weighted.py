"""Weighted draws from each row by an exponential race: an edge arrives at time Exp(1) / weight, the first k are drawn.

Without replacement the law is that of successive draws, each proportional to the remaining weights (Efraimidis,
Spirakis: "Weighted random sampling with a reservoir", IPL 97(5), 2006); with replacement every draw is a separate race.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.randomness import Variates
from workbench.kernels.buffers import to_device
from workbench.kernels.hash import (
    hash_index,
    hash_index_torch,
    mixed_exponential,
    mixed_exponential_torch,
    mixed_normal,
    mixed_normal_torch,
)
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows
from workbench.sampling.sampler import (
    Candidates,
    Drawn,
    ExpandedRows,
    drawn_offsets,
    draws_with_replacement,
    expand_offsets,
    expanded,
    is_excluded_torch,
)


def draw_weighted(graph: Graph, rows: Candidates, fanout: int | Tensor, *, replace: bool, variates: Variates) -> Drawn:
    """Draw each row's edges with probabilities proportional to `graph.edge_weight`, never edges of weight 0.

    A fanout is for all rows, or int64 [n], in order of arrival; -1: all of positive weight.

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
    """Draw as `draw_weighted` does, in plain torch for any device; the oracle of the compiled kernel.

    The host waits once, for the number of edges drawn and of invalid weights.
    """
    weights = _checked_weights(graph)
    edges = expanded(rows)
    weight = weights[edges.positions]
    valid = (weight >= 0) & (weight < torch.inf)
    drawable, others = weight > 0, _not_excluded(edges, rows)
    drawable = drawable if others is None else drawable & others
    indptr = drawn_offsets(edges.count(drawable), fanout, replace)
    size, num_valid = torch.stack([indptr[-1], valid.sum()]).tolist()
    if num_valid < len(weight):
        _raise_invalid_weight(weights, int(edges.positions[~valid][0]))
    race = _Race(rows, edges, variates, weight.to(torch.float64), drawable)
    positions = draw_earliest_torch(race, fanout, replace, indptr, size)
    return Drawn(indptr, graph.indices[positions], positions)


def _not_excluded(edges: ExpandedRows, rows: Candidates) -> Tensor | None:
    """Return which edges are not excluded; None if none is."""
    return ~is_excluded_torch(edges.positions, rows.excluded) if len(rows.excluded) else None


def _drawable(rows: Candidates, weights: Tensor) -> Tensor:
    """Count each row's candidates of positive weight, int64 [n], after checking the weights."""
    counts, edges = torch.empty_like(rows.starts), edge_arrays(rows, weights)
    parallel_rows(lambda lo, hi: _count_drawable(lo, hi, *edges, counts.numpy()), len(counts), MIN_ROWS)
    if len(counts) and int(counts.min()) < 0:
        _raise_invalid_weight(weights, int(edge_positions(rows, -1 - counts.min())))
    return counts


@compiled
def _count_drawable(lo, hi, starts, ends, excluded, first_excluded, weights, counts):
    for i in range(lo, hi):
        counts[i], skip = 0, first_excluded[i]
        for slot in range(starts[i], ends[i]):
            if not 0 <= weights[slot] < np.inf:
                counts[i] = -1 - slot
                break
            if skip < len(excluded) and excluded[skip] == slot:
                skip += 1
            elif weights[slot] > 0:
                counts[i] += 1


def _checked_weights(graph: Graph) -> Tensor:
    weights = graph.edge_weight
    if weights is None or weights.dtype not in (torch.float32, torch.float64):
        kind = "missing" if weights is None else weights.dtype
        raise ValueError(f"graph.edge_weight is {kind}; weighted sampling requires float32 or float64 weights")
    return weights.detach()


def _raise_invalid_weight(weights: Tensor, position: int) -> None:
    raise ValueError(
        f"edge_weight is {weights[position].item()} at CSR position {position}; "
        "weights of a weighted sampler must be finite and non-negative"
    )


MIN_ROWS = 256  # per thread: a row costs its in-degree, not its fanout


def draw_earliest(
    rows: Candidates, weights: Tensor | None, fanout: int | Tensor, replace: bool, indptr: Tensor, variates: Variates
) -> Tensor:
    """Draw the earliest edges of each row, in order of arrival, as int64 [indptr[-1]] CSR positions.

    An edge arrives at time Exp(1) / weight, never if that is 0. Without `weights` it arrives at the time of its normal
    variate, and rows drawn completely keep the order of the CSR. With `replace`, every draw of a row is a separate
    race.
    """
    replaced = draws_with_replacement(len(rows.nodes), fanout, replace)
    slots = torch.empty(int(indptr[-1]), dtype=torch.int64)
    edges = (*edge_arrays(rows, weights), _offsets(rows).numpy())
    streams = (*variates, rows.nodes.numpy(), replaced.numpy())
    out = (indptr.numpy(), slots.numpy())
    parallel_rows(lambda lo, hi: _race_rows(lo, hi, edges, streams, *out), len(rows.nodes), MIN_ROWS)
    return edge_positions(rows, slots)


def edge_arrays(rows: Candidates, weights: Tensor | None) -> tuple[np.ndarray, ...]:
    """Return starts and ends of the rows, excluded slots and where those of each row begin, and weights by slot."""
    first = rows.first_excluded if len(rows.excluded) else torch.zeros_like(rows.starts)
    if weights is None:
        weights = torch.empty(0)
    elif rows.positions is not None:
        weights = weights[rows.positions]
    tensors = (rows.starts, rows.starts + rows.lengths, rows.excluded, first, weights)
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
def _find_drawable(start, end, skip, excluded, weights, slots):
    """Write the candidates that are neither excluded nor of weight 0 to `slots`, and return their number.

    `skip` is the index of the row's first excluded edge.
    """
    count = 0
    for slot in range(start, end):
        if skip < len(excluded) and excluded[skip] == slot:
            skip += 1
        elif len(weights) == 0 or weights[slot] > 0:
            slots[count] = slot
            count += 1
    return count


@compiled
def _race_rows(lo, hi, edges, streams, indptr, drawn):
    """Draw rows [lo, hi). Arrival times are computed apart from their comparison, so that the loop is vectorized."""
    starts, ends, excluded, first_excluded, weights, offsets = edges
    key, next_key, cosine, sine, nodes, replaced = streams
    longest = 0
    for i in range(lo, hi):
        longest = max(longest, ends[i] - starts[i])
    slots, index = np.empty(longest, np.int64), np.empty(longest, np.int64)
    times, earliest = np.empty(longest), np.empty(longest)
    for i in range(lo, hi):
        first, count = indptr[i], indptr[i + 1] - indptr[i]
        if count == 0:
            continue
        num = _find_drawable(starts[i], ends[i], first_excluded[i], excluded, weights, slots)
        if len(weights) == 0 and count == num and not replaced[i]:
            for j in range(num):
                drawn[first + j] = slots[j]
            continue
        for j in range(num):
            index[j] = offsets[slots[j]] if len(offsets) else slots[j] - starts[i]
        keys = np.int64(hash_index(key, nodes[i])), np.int64(hash_index(next_key, nodes[i]))
        if replaced[i]:
            for j in range(count):
                _race_once(keys, cosine, sine, index, j, slots, weights, num, times)
                drawn[first + j] = slots[_argmin(times, num)]
        else:
            _race(keys, cosine, sine, index, slots, weights, num, times)
            filled = 0
            for j in range(num):
                if filled < count or times[j] < earliest[count - 1]:
                    filled = insert_arrival(times[j], slots[j], earliest[:count], drawn[first : first + count], filled)


@compiled
def _race(keys, cosine, sine, index, slots, weights, num, times):
    """Compute the arrival times of `num` edges of a row."""
    if len(weights) == 0:
        for j in range(num):
            times[j] = mixed_normal(keys[0], keys[1], cosine, sine, index[j])
    else:
        for j in range(num):
            times[j] = mixed_exponential(keys[0], keys[1], cosine, sine, index[j]) / weights[slots[j]]


@compiled
def _race_once(keys, cosine, sine, index, draw, slots, weights, num, times):
    """Compute the arrival times of `num` edges of a row in the race of one draw with replacement."""
    for j in range(num):
        edge_key, next_key = np.int64(hash_index(keys[0], index[j])), np.int64(hash_index(keys[1], index[j]))
        if len(weights) == 0:
            times[j] = mixed_normal(edge_key, next_key, cosine, sine, draw)
        else:
            times[j] = mixed_exponential(edge_key, next_key, cosine, sine, draw) / weights[slots[j]]


@compiled
def _argmin(times, num):
    best = 0
    for j in range(1, num):
        best = j if times[j] < times[best] else best
    return best


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


class _Race(NamedTuple):
    """The edges of some rows, of which the earliest are drawn.

    Args:
        rows: the rows.
        edges: all of their edges.
        variates: the streams of arrival times.
        weight: float64 [num_edges]; None: an edge arrives at the time of its normal variate.
        drawable: bool [num_edges], edges that may be drawn; None: all.
    """

    rows: Candidates
    edges: ExpandedRows
    variates: Variates
    weight: Tensor | None
    drawable: Tensor | None

    def streams(self) -> list[Tensor]:
        """The streams of every edge's row, in this group and, if two are mixed, the next."""
        keys = self.variates[:2] if self.variates.sine else self.variates[:1]
        return [hash_index_torch(key, self.rows.nodes)[self.edges.row] for key in keys]

    def offsets(self) -> Tensor:
        """Every edge's offset in its node's row, which selects its variate."""
        starts = self.rows.starts if self.rows.origins is None else self.rows.origins
        return self.edges.positions - starts[self.edges.row]

    def arrivals(self, keys: list[Tensor], index: Tensor) -> Tensor:
        """Arrival times by the variates `index` of some streams."""
        mixture = (keys[0], keys[-1], self.variates.cosine, self.variates.sine, index)
        if self.weight is None:
            return mixed_normal_torch(*mixture)
        return mixed_exponential_torch(*mixture) / self.weight


_TIMES_AT_A_TIME = 1 << 24  # which bounds the memory for races that are run together


def draw_earliest_torch(race: _Race, fanout: int | Tensor, replace: bool, indptr: Tensor, size: int) -> Tensor:
    """Draw as `draw_earliest` does, `size` edges in plain torch for any device; the oracle of the compiled kernel."""
    counts, edges = indptr.diff(), race.edges
    replace = replace and not (isinstance(fanout, int) and fanout < 0)  # all edges are drawn once
    replaced = to_device(draws_with_replacement(len(counts), fanout, replace), indptr.device) if replace else None
    row = expand_offsets(indptr, size)
    slot = torch.arange(size, device=row.device) - indptr[row]
    drawn = None
    if replaced is None or not isinstance(fanout, int):
        times = race.arrivals(race.streams(), race.offsets())
        if race.weight is None:  # a row drawn completely keeps its order
            whole = (counts == race.rows.degrees)[edges.row]
            times = torch.where(whole, edges.positions.to(torch.float64), times)
        at = edges.offsets[row] + slot
        at = at if replaced is None else at.clamp(max=len(edges.row) - 1)  # draws with replacement may be more
        drawn = sort_rows(times, edges, race.drawable)[at]
    if replaced is not None:
        rounds = fanout if isinstance(fanout, int) else int((counts * replaced).max()) if len(counts) else 0
        if rounds > 0 and size:
            first = _first_arrivals(race, rounds).flatten()[slot.clamp(max=rounds - 1) * len(counts) + row]
            drawn = first if drawn is None else torch.where(replaced[row], first, drawn)
    return edges.positions[row if drawn is None else drawn]


def _first_arrivals(race: _Race, rounds: int) -> Tensor:
    """Return the first edge of every row in each of several races, int64 [rounds, num_rows]; any if it has none."""
    edges, offsets = race.edges, race.offsets()
    num_edges, num_rows = len(edges.row), len(race.rows.nodes)
    keys = [hash_index_torch(key, offsets) for key in race.streams()]
    place, last = torch.arange(num_edges, device=offsets.device), num_edges - 1
    found = []
    for index in torch.arange(rounds, device=offsets.device).split(max(1, _TIMES_AT_A_TIME // max(1, num_edges))):
        times = race.arrivals(keys, index[:, None])
        times = times if race.drawable is None else torch.where(race.drawable, times, torch.inf)
        row = edges.row.expand_as(times)
        least = times.new_full((len(index), num_rows), torch.inf).scatter_reduce_(1, row, times, "amin")
        is_first = times == least.gather(1, row)
        is_first = is_first if race.drawable is None else is_first & race.drawable
        at = torch.where(is_first, place, last)
        found.append(at.new_full(least.shape, last).scatter_reduce_(1, row, at, "amin"))
    return torch.cat(found)


def sort_rows(times: Tensor, edges: ExpandedRows, drawable: Tensor | None = None) -> Tensor:
    """Return the indices of all edges, row by row, by time; equal times keep their order.

    Args:
        times: floating point [num_edges].
        drawable: bool [num_edges], edges that come before the others of their row; None: all.
    """
    order = torch.argsort(times, stable=True)
    key = edges.row if drawable is None else 2 * edges.row + ~drawable
    return order[torch.argsort(key[order], stable=True)]


def smallest_in_order(keys: Tensor, edges: ExpandedRows, indptr: Tensor, drawable: Tensor | None = None) -> Tensor:
    """Return the indices of the smallest keys of every row, as many as the rows of `indptr` have, ascending."""
    order = sort_rows(keys, edges, drawable)
    rank = torch.arange(len(order), device=order.device) - edges.offsets[edges.row]
    kept = torch.empty_like(order, dtype=torch.bool).index_put_((order,), rank < indptr.diff()[edges.row])
    return kept.nonzero()[:, 0]


def draw_smallest(graph: Graph, rows: Candidates, fanout: int | Tensor, *, replace: bool, variates: Variates) -> Drawn:
    """Draw each row's edges with equal probability, in order of their variates.

    A fanout is for all rows, or int64 [n]; a row with no more candidates keeps them all, in CSR order; -1: all.
    """
    if graph.indices.device.type != "cpu":
        return draw_smallest_torch(graph, rows, fanout, replace=replace, variates=variates)
    indptr = drawn_offsets(rows.degrees, fanout, replace)
    positions = draw_earliest(rows, None, fanout, replace, indptr, variates)
    return Drawn(indptr, graph.indices[positions], positions)


def draw_smallest_torch(
    graph: Graph, rows: Candidates, fanout: int | Tensor, *, replace: bool, variates: Variates
) -> Drawn:
    """Draw as `draw_smallest` does, in plain torch for any device; the oracle of the compiled kernel.

    The host waits once, for the number of edges drawn.
    """
    indptr = drawn_offsets(rows.degrees, fanout, replace)
    edges = expanded(rows)
    race = _Race(rows, edges, variates, None, _not_excluded(edges, rows))
    positions = draw_earliest_torch(race, fanout, replace, indptr, int(indptr[-1]))
    return Drawn(indptr, graph.indices[positions], positions)
