"""Refinement of a batch partition: Fiduccia–Mattheyses passes that move seeds between parts at positive gain.

Bytes of all layers are counted exactly, on a contracted graph of the batch; it takes any partition, and returns one
whose largest part, or whose total, is smaller or equal.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import (
    ID_DTYPES,
    CapacityError,
    available_bytes,
    check_bytes,
    check_choice,
    check_tensors,
    check_type,
    check_vector,
)
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.core.units import format_bytes
from workbench.kernels.csr import offsets
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows
from workbench.partition.balance import ByteCosts, check_weights
from workbench.partition.computation_graph import ContractedGraph, computation_graph, contract

OBJECTIVES = ("largest", "total")

_MAX_GROWTH = {"largest": 1.0, "total": 1.05}  # bound of every part's bytes, relative to the largest part at the start

_MIN_MOVED = 1000  # a pass that moves fewer than one seed in this many is the last

_IMBALANCE = 1.03  # bound of a part's weight, relative to the mean; METIS's default


class _Schedule(NamedTuple):
    """Passes of the refinement.

    Args:
        powers: exponent of a part's bytes in the objective, per pass: more weight for larger parts.
        num_candidates: parts per seed whose gain is computed exactly.
        slack: fraction of a seed's share of bytes by which a candidate's estimated gain may be negative.
    """

    powers: tuple[float, ...]
    num_candidates: int
    slack: float


_SCHEDULES = {"largest": _Schedule((4.0,) * 2, 1, 0.05), "total": _Schedule((1.0,), 2, 0.1)}

_ANNEALED = _Schedule((2.0, 16.0, 64.0), 1, 0.03)
"""Of "largest" with a model's costs: removes redundancy first, then makes the largest part as small as the others. A
fourth pass and more candidates lower the largest part by another 0.6 %, in 1.4 times the time."""


def refine_parts(
    mb: MiniBatch,
    part: Tensor,
    *,
    objective: str = "largest",
    weights: Tensor | None = None,
    costs: ByteCosts | None = None,
    max_bytes: int | None = None,
) -> Tensor:
    """Move seeds between micro-batches, one at a time, to shrink the largest micro-batch or the sum of all.

    The gain of a move is exact over all layers: the bytes of input nodes and edges that no other seed of the old part
    needs, minus those that the new part doesn't have yet. "largest" lowers the sum over parts of the 4th power of
    their bytes, and no part grows beyond the initially largest; "total" lowers the sum of bytes, and no part grows
    more than 5 % beyond it. No part loses its last seed. "largest" makes two passes over the seeds, with `costs`
    three of rising power (2, 16, 64); "total" makes one.

    Args:
        mb: the batch.
        part: int64 or int32 [num_seeds], any partition of its seeds, such as `partition_batch` returns.
        objective: "largest" or "total".
        weights: [num_seeds], non-negative weight of every seed: no part grows beyond 1.03 times the mean weight or
            the initially heaviest part, whichever is more. None: no such bound.
        costs: bytes per node and edge of each layer; None: 512 per input node (128 features in float32), 16 per edge.
        max_bytes: memory that the refinement may allocate; None: the memory that the machine has available.

    Returns:
        int64 [num_seeds], on the batch's device.

    Raises:
        ValueError: an unknown objective, wrong length, a negative label, weights that can't be balanced, or the batch
            has exchanges.
        TypeError: tensors of another dtype.
        CapacityError: it would need more than `max_bytes`.

    Source: the objective, the largest micro-batch, is Betty's (ASPLOS 2023, section 4.4); the moves are those of
    Fiduccia and Mattheyses (DAC 1982), without moves of negative gain.
    """
    check_choice("objective", objective, OBJECTIVES)
    check_type("mb", mb, MiniBatch, "pass the MiniBatch, then its partition")
    refuse_halo(mb.exchanges, "refined")
    check_tensors(part=part)
    check_vector("part", part, mb.num_seeds, ID_DTYPES)
    weights = check_weights(weights, mb.num_seeds)
    if not mb.num_seeds or not mb.blocks:
        return part.to(mb.device, torch.int64, copy=True)
    if int(part.min()) < 0:
        raise ValueError(f"part contains {int(part.min())}; labels must be non-negative")
    labels, compact = torch.unique(part.cpu(), return_inverse=True)  # labels without seeds are no parts
    if max_bytes is not None:
        max_bytes = check_bytes("max_bytes", max_bytes, 0)
    graph, options = contract(computation_graph(mb, costs)), {"objective": objective, "weights": weights}
    refined = refine(graph, compact, len(labels), max_bytes=max_bytes, anneal=costs is not None, **options)
    return labels[refined].to(mb.device, torch.int64)


def refine(
    graph: ContractedGraph,
    part: Tensor,
    num_parts: int,
    *,
    objective: str = "largest",
    weights: Tensor | None = None,
    max_bytes: int | None = None,
    anneal: bool = False,
) -> Tensor:
    """Refine a partition, int64 [num_seeds] on the CPU, of a batch whose contracted graph exists; see `refine_parts`.

    With `anneal`, for the objective "largest", the power rises from pass to pass.

    Raises:
        CapacityError: it would need more than `max_bytes`.
    """
    limit = available_bytes() if max_bytes is None else max_bytes
    pins = count_pins(graph, part, num_parts, limit)
    state = _state(part, pins, weights)
    schedule = _ANNEALED if anneal and objective == "largest" else _SCHEDULES[objective]
    bounds = _bounds(pins, state, objective, weights)
    scratch, previous = _scratch(graph), 0.0
    for power in schedule.powers:
        if power != previous:
            scratch.examined[:] = 0  # gains have changed for all seeds
        settings = (power, schedule.num_candidates, schedule.slack, *bounds)
        moves = fm_pass(graph.arrays(), pins.arrays(), state, settings, tuple(scratch))
        if power == schedule.powers[-1] and moves * _MIN_MOVED < len(part):
            break
        previous = power
    return torch.from_numpy(state[0])


@dataclass(frozen=True, eq=False)
class PinCounts:
    """Pin counts by node and part; the kernels of this module update the rows in place.

    Args:
        num_seeds: the number of the first node that has a row.
        num_parts: number of parts.
        row_starts: int64 [nodes beyond the seeds + 1], where the rows of `rows` begin.
        rows: uint32, rows of `num_parts` counts, and shorter ones of entries.
        part_bytes: float64 [num_parts], bytes of every part.
    """

    num_seeds: int
    num_parts: int
    row_starts: Any
    rows: Any
    part_bytes: Any

    def arrays(self) -> tuple[Any, ...]:
        """Return the fields that kernels read and update."""
        return self.num_seeds, self.num_parts, self.row_starts, self.rows


def _state(part: Tensor, pins: PinCounts, weights: Tensor | None) -> tuple[Any, ...]:
    """The arrays that moves update: parts of seeds, bytes of parts, weights of seeds, weights and sizes of parts."""
    weight = torch.zeros(len(part), dtype=torch.float64) if weights is None else weights.to("cpu", torch.float64)
    count = pins.num_parts
    part_weight = torch.bincount(part, weights=weight, minlength=count)
    part_size = torch.bincount(part, minlength=count)
    return (part.clone().numpy(), pins.part_bytes, weight.numpy(), part_weight.numpy(), part_size.numpy())


def _bounds(pins: PinCounts, state: tuple[Any, ...], objective: str, weights: Tensor | None) -> tuple[float, float]:
    """The bounds of a part's bytes and weight."""
    part_weight = state[3]
    max_weight = np.inf if weights is None else max(float(part_weight.max()), _IMBALANCE * float(part_weight.mean()))
    max_part_bytes = _MAX_GROWTH[objective] * float(pins.part_bytes.max())
    return max_part_bytes, max_weight


class _Scratch(NamedTuple):
    """Arrays of a pass: stack; visited, removed and changed per node; examined per seed; clock."""

    stack: Any
    visited: Any
    removed: Any
    changed: Any
    examined: Any
    clock: Any


def _scratch(graph: ContractedGraph) -> _Scratch:
    nodes, seeds = len(graph.node_bytes), graph.num_seeds
    return _Scratch(
        np.empty(len(graph.sources) + nodes, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(seeds, np.int32),
        np.zeros(2, np.int64),
    )


@compiled
def fm_pass(graph, pins, state, settings, scratch):
    """Examine every seed and move it to the part of the highest positive gain.

    Parts are ranked by an estimate, and the exact gain is computed for the best `num_candidates` of them. A seed is
    skipped as long as none of its sources has changed since it was last examined.

    Args:
        state: part [seeds], part_bytes [parts], weight [seeds], part_weight and part_size [parts]; updated.
        settings: power, num_candidates, slack, max_part_bytes, max_part_weight.
        scratch: stack, visited, removed and changed [nodes], examined [seeds], clock [2].

    Returns:
        The number of moves.
    """
    part, part_bytes, _, _, part_size = state
    changed, examined, clock = scratch[3:]
    num_parts, scale, power = pins[1], part_bytes.max(), settings[0]
    price = (part_bytes / scale) ** (power - 1)  # derivative of the objective: the cost of one more byte, per part
    shared, adjacent = np.zeros(num_parts), np.empty(num_parts, np.int64)
    moves, lightest = 0, part_bytes.argmin() if power > 1 else -1
    for v in range(len(part)):
        home, best = part[v], -1
        if part_size[home] == 1 or not _changed_since(graph, v, changed, examined[v]):
            continue
        clock[0] += 1
        examined[v] = clock[0]
        needed, exclusive, num_adjacent = _sum_shared(graph, pins, v, home, shared, adjacent)
        if lightest >= 0 and lightest != home and shared[lightest] == 0:  # balances seeds that share nothing
            adjacent[num_adjacent] = lightest
            num_adjacent += 1
        if num_adjacent > 0:
            estimate = needed, exclusive, shared, adjacent[:num_adjacent]
            best = _best_move(graph, pins, state, settings, scratch, v, estimate, scale, price)
            for i in range(num_adjacent):
                shared[adjacent[i]] = 0
        if best >= 0:
            _move(graph, pins, state, v, best, scratch)
            price[home] = (part_bytes[home] / scale) ** (power - 1)
            price[best] = (part_bytes[best] / scale) ** (power - 1)
            lightest = part_bytes.argmin() if power > 1 else -1
            moves += 1
    return moves


@compiled
def _best_move(graph, pins, state, settings, scratch, seed, estimate, scale, price):
    """Return the part to which a seed moves with the highest gain; -1 if none is positive."""
    part, part_bytes, weight, part_weight, _ = state
    power, num_candidates, slack, max_part_bytes, max_part_weight = settings
    stack, visited, removed, _, _, clock = scratch
    home, (needed, exclusive, shared, adjacent) = part[seed], estimate
    best, best_gain, freed, home_gain = -1, 1e-12, -1.0, 0.0
    for _ in range(num_candidates):
        other = _next_candidate(home, needed, exclusive, price, shared, adjacent, slack)
        if other < 0:
            break
        if freed < 0:
            freed = _bytes_freed(graph, pins, seed, home, stack, visited, removed, clock)
            now = part_bytes[home] / scale
            home_gain = now**power - (now - freed / scale) ** power
            if freed == 0:
                break
        shared[other] = -1  # not a candidate again
        if part_weight[other] + weight[seed] > max_part_weight:
            continue
        there = part_bytes[other] / scale
        limit = (there**power + home_gain - best_gain) ** (1 / power) * scale - part_bytes[other]
        limit = min(limit, max_part_bytes - part_bytes[other])
        added = _bytes_added(graph, pins, seed, other, limit, stack, visited, clock)
        gain = home_gain + there**power - (there + added / scale) ** power
        if added <= limit and gain > best_gain:
            best, best_gain = other, gain
    return best


@compiled
def _bytes_freed(graph, pins, seed, part, stack, visited, removed, clock):
    """Sum the bytes of the nodes that leave a part with a seed: those all of whose pins in the part leave."""
    num_seeds, indptr, sources, node_bytes, _ = graph
    clock[1] += 1
    stack[0], top, total = seed, 1, 0.0
    while top > 0:
        top -= 1
        node = stack[top]
        if visited[node] != clock[1]:
            visited[node] = clock[1]
            removed[node] = 0
        removed[node] += 1
        if node < num_seeds or removed[node] == pin_count(pins, node, part):
            total += node_bytes[node]
            top = _push_sources(indptr, sources, node, stack, top)
    return total


@compiled
def _bytes_added(graph, pins, seed, part, limit, stack, visited, clock):
    """Sum the bytes of the nodes that a seed adds to a part; exits early beyond `limit` bytes."""
    num_seeds, indptr, sources, node_bytes, _ = graph
    clock[1] += 1
    stack[0], top, total = seed, 1, 0.0
    while top > 0 and total <= limit:
        top -= 1
        node = stack[top]
        if visited[node] != clock[1]:
            visited[node] = clock[1]
            if node < num_seeds or pin_count(pins, node, part) == 0:
                total += node_bytes[node]
                top = _push_sources(indptr, sources, node, stack, top)
    return total


@compiled
def _move(graph, pins, state, seed, other, scratch):
    """Move a seed to another part and update pin counts, bytes, weights and sizes of both parts."""
    num_seeds, indptr, sources, node_bytes, _ = graph
    parts, part_bytes, weight, part_weight, part_size = state
    stack, _, _, changed, _, clock = scratch
    for part, sign in ((parts[seed], -1), (other, 1)):
        part_size[part] += sign
        part_weight[part] += sign * weight[seed]
        stack[0], top = seed, 1
        while top > 0:
            top -= 1
            node = stack[top]
            if node >= num_seeds:
                count = remove_pin(pins, node, part) if sign < 0 else add_pin(pins, node, part)
                first = count + (sign < 0)  # pins before the removal or after the addition
                if first <= 2:  # gains of other seeds that need the node change only here
                    changed[node] = clock[0]
                if first > 1:
                    continue
            part_bytes[part] += sign * node_bytes[node]
            top = _push_sources(indptr, sources, node, stack, top)
    parts[seed] = other


@compiled
def _push_sources(indptr, sources, node, stack, top):
    for e in range(indptr[node], indptr[node + 1]):
        stack[top] = sources[e]
        top += 1
    return top


@compiled
def _changed_since(graph, seed, changed, examined):
    """Return whether the parts of a seed's sources have changed since the seed was `examined`, or it never was."""
    _, indptr, sources, _, _ = graph
    stale = examined == 0
    for e in range(indptr[seed], indptr[seed + 1]):
        if changed[sources[e]] >= examined:
            stale = True
            break
    return stale


@compiled
def _sum_shared(graph, pins, seed, home, shared, adjacent):
    """Sum the shares of a seed's sources: of all, of those that no other seed of its part reads, and by other part.

    Returns the first two sums, which include the bytes that the seed alone needs, and how many parts are in `adjacent`;
    `shared` receives the sum of the sources that every other part has.
    """
    _, indptr, sources, node_bytes, shares = graph
    num_seeds, num_parts, row_starts, rows = pins
    needed = exclusive = float(node_bytes[seed])
    num_adjacent = 0
    for e in range(indptr[seed], indptr[seed + 1]):
        source = sources[e]
        share = shares[source]
        needed += share
        begin, end = row_starts[source - num_seeds], row_starts[source - num_seeds + 1]
        by_part = end - begin == num_parts
        for i in range(begin, end):
            entry = np.int64(rows[i])
            if entry == 0:
                if by_part:
                    continue
                break
            part = i - begin if by_part else entry & PART_MASK
            if part == home:
                exclusive += share * ((entry if by_part else entry >> PART_BITS) == 1)
            else:
                if shared[part] == 0:
                    adjacent[num_adjacent] = part
                    num_adjacent += 1
                shared[part] += share
    return needed, exclusive, num_adjacent


@compiled
def _next_candidate(home, needed, exclusive, price, shared, adjacent, slack):
    """Return the part of the highest estimated gain if that exceeds the slack, else -1.

    The estimate is the price of the shares that leave `home` minus the price of those that the other part lacks.
    """
    best, best_gain = -1, -slack * needed * price[home]
    for other in adjacent:
        gain = price[home] * exclusive - price[other] * (needed - shared[other])
        better = gain > best_gain or (gain == best_gain and other < best)  # `adjacent` is unordered
        if shared[other] >= 0 and better:
            best, best_gain = other, gain
    return best


MAX_PARTS = 1 << 16

PART_BITS = 16  # of an entry: count in the high bits, part in the low ones; nets with entries have fewer pins than 2¹⁶

PART_MASK = (1 << PART_BITS) - 1

_DENSE = 4  # a row has a count per part if at least one part in this many may contain its node


def count_pins(graph: ContractedGraph, part: Tensor, num_parts: int, max_bytes: int) -> PinCounts:
    """Count the pins of every node in every part, and the bytes of the parts.

    Raises:
        CapacityError: they would use more than `max_bytes`, or there are more parts than an entry can represent.
    """
    bounds = _bound_parts(graph, num_parts)
    row_starts = offsets(torch.where(bounds * _DENSE >= num_parts, num_parts, bounds))
    most_entries = int(bounds.sum())  # of the parts' nodes, which exist until they are in rows
    _check(num_parts, 8 * (len(row_starts) + most_entries) + 4 * int(row_starts[-1]), max_bytes)
    members, part_bytes = nodes_by_part(graph, part, num_parts)
    rows = np.zeros(int(row_starts[-1]), np.uint32)
    pins = PinCounts(graph.num_seeds, num_parts, row_starts.numpy(), rows, part_bytes)
    for label, packed in enumerate(members):
        _insert(pins.arrays(), packed, label)
    return pins


def _check(num_parts: int, required: int, limit: int) -> None:
    if required > limit:
        raise CapacityError(
            f"the refinement requires {format_bytes(required)}, more than the limit of {format_bytes(limit)}: use "
            "fewer parts, a method without refinement (star), or raise max_bytes"
        )
    if num_parts > MAX_PARTS:
        raise CapacityError(
            f"the refinement supports up to {MAX_PARTS:,} parts, not {num_parts:,}: use a method without refinement "
            "(star), or fewer parts"
        )


def _bound_parts(graph: ContractedGraph, num_parts: int) -> Tensor:
    """Bound how many parts may contain each node beyond the seeds: no more than seeds reach it."""
    bounds = torch.zeros(len(graph.node_bytes), dtype=torch.int64)
    _add_bounds(graph.num_seeds, *(t.numpy() for t in (graph.indptr, graph.sources, bounds)), num_parts)
    return bounds[graph.num_seeds :]


@compiled
def _add_bounds(num_seeds, indptr, sources, bounds, num_parts):
    """Add every node's bound, 1 for a seed, to those of its sources: they have higher numbers."""
    for node in range(len(bounds)):
        bounds[node] = min(num_parts, max(bounds[node], node < num_seeds))
        for e in range(indptr[node], indptr[node + 1]):
            bounds[sources[e]] += bounds[node]


@compiled
def _insert(pins, packed_nodes, part):
    """Insert the nodes of a part, none of which has an entry for it yet."""
    num_seeds, num_parts, row_starts, rows = pins
    for packed in packed_nodes:
        node, count = packed & 0xFFFFFFFF, packed >> 32
        begin, end = row_starts[node - num_seeds], row_starts[node - num_seeds + 1]
        if end - begin == num_parts:
            rows[begin + part] = count
        else:
            while rows[begin] != 0:
                begin += 1
            rows[begin] = (count << PART_BITS) | part


@compiled
def pin_count(pins, node, part):
    """Return how many pins the net of a node beyond the seeds has in a part."""
    num_seeds, num_parts, row_starts, rows = pins
    begin, end = row_starts[node - num_seeds], row_starts[node - num_seeds + 1]
    if end - begin == num_parts:
        return np.int64(rows[begin + part])
    for i in range(begin, end):
        entry = np.int64(rows[i])
        if entry == 0:
            return 0
        if entry & PART_MASK == part:
            return entry >> PART_BITS
    return 0


@compiled
def add_pin(pins, node, part):
    """Add a pin to a node's net in a part; return how many it has now: 1 if the node is new in the part."""
    num_seeds, num_parts, row_starts, rows = pins
    begin, end = row_starts[node - num_seeds], row_starts[node - num_seeds + 1]
    if end - begin == num_parts:
        rows[begin + part] += 1
        return np.int64(rows[begin + part])
    while rows[begin] != 0 and np.int64(rows[begin]) & PART_MASK != part:
        begin += 1
    entry = part if rows[begin] == 0 else np.int64(rows[begin])
    rows[begin] = entry + (1 << PART_BITS)
    return (entry >> PART_BITS) + 1


@compiled
def remove_pin(pins, node, part):
    """Remove a pin from a node's net in a part; return how many are left: 0 if the node has left the part."""
    num_seeds, num_parts, row_starts, rows = pins
    begin, end = row_starts[node - num_seeds], row_starts[node - num_seeds + 1]
    if end - begin == num_parts:
        rows[begin + part] -= 1
        return np.int64(rows[begin + part])
    while np.int64(rows[begin]) & PART_MASK != part:
        begin += 1
    rows[begin] = np.int64(rows[begin]) - (1 << PART_BITS)
    left = np.int64(rows[begin]) >> PART_BITS
    if left == 0:
        last = begin
        while last + 1 < end and rows[last + 1] != 0:
            last += 1
        rows[begin] = rows[last]
        rows[last] = 0
    return left


def count_bytes(graph: ContractedGraph, part: Tensor) -> Tensor:
    """Sum the bytes of the nodes of every part of the seeds, float64 [largest label + 1]."""
    num_parts = int(part.max()) + 1 if len(part) else 0
    return torch.from_numpy(nodes_by_part(graph, part, num_parts)[1])


def nodes_by_part(graph: ContractedGraph, part: Tensor, num_parts: int) -> tuple[list[Any], Any]:
    """Traverse every part from its seeds.

    Returns for every part its nodes beyond the seeds, int64, packed as (pin count, node); and the bytes of every part.
    """
    seeds = torch.argsort(part, stable=True).numpy()
    bounds = torch.zeros(num_parts + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(part, minlength=num_parts), 0, out=bounds[1:])
    arrays, num_nodes = graph.arrays(), len(graph.node_bytes)
    members: list[Any] = [None] * num_parts
    part_bytes = np.zeros(num_parts)

    def traverse(lo: int, hi: int) -> None:
        counts, visited = np.zeros(num_nodes, np.int32), np.empty(num_nodes, np.int64)
        for label in range(lo, hi):
            of_part = seeds[bounds[label] : bounds[label + 1]]
            end, part_bytes[label] = _traverse(arrays, of_part, counts, visited)
            members[label] = visited[len(of_part) : end].copy()

    parallel_rows(traverse, num_parts, min_rows=1)
    return members, part_bytes


@compiled
def _traverse(graph, seeds, counts, visited):
    """Traverse a part breadth-first from its seeds, counting pins in `counts`, which is zero before and after.

    Returns the end of `visited` and the part's bytes; entries beyond the seeds are packed as (pin count, node).
    """
    _, indptr, sources, node_bytes, _ = graph
    end, total = len(seeds), 0.0
    visited[:end] = seeds
    head = 0
    while head < end:
        node = visited[head]
        head += 1
        total += node_bytes[node]
        for e in range(indptr[node], indptr[node + 1]):
            source = sources[e]
            if counts[source] == 0:
                visited[end] = source
                end += 1
            counts[source] += 1
    for i in range(len(seeds), end):
        node = visited[i]
        visited[i] = (np.int64(counts[node]) << 32) | node
        counts[node] = 0
    return end, total
