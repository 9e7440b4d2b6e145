"""Fiduccia–Mattheyses refinement (DAC 1982): a pass over the seeds that makes every move of positive gain.

The gain of moving seed v from part a to part b is the decrease of the objective Σ_p bytes(p)^power, where

    bytes(a) falls by the nodes of v's computation graph whose last pin in a leaves with v, and
    bytes(b) rises by the nodes of v's computation graph that have no pin in b yet.

Both are exact, over all layers. They cost a traversal, so parts are ranked first by an estimate that reads only v's
sources one hop on.
"""

import numpy as np

from workbench.kernels.jit import compiled
from workbench.partition.refine.computation_graph import self_source
from workbench.partition.refine.pin_counts import PART_BITS, PART_MASK, add_pin, pin_count, remove_pin


@compiled
def fm_pass(graph, pins, state, settings, scratch):
    """Examine every seed and move it to the part of the highest positive gain.

    Parts are ranked by an estimate, and the exact gain is computed for the best `num_candidates` of them. A seed is
    skipped as long as none of its sources has changed since it was last examined.

    Args:
        graph: arrays of a `ComputationGraph`.
        pins: arrays of `PinCounts`; updated.
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
    moves = 0
    for v in range(len(part)):
        home, best = part[v], -1
        exclusive, stale, num_adjacent = _count_shared(graph, pins, v, home, changed, examined[v], shared, adjacent)
        if exclusive > 0 and stale and part_size[home] > 1:
            clock[0] += 1
            examined[v] = clock[0]
            candidates = adjacent[:num_adjacent]
            best = _best_move(graph, pins, state, settings, scratch, v, exclusive, scale, price, shared, candidates)
        for i in range(num_adjacent):
            shared[adjacent[i]] = 0
        if best >= 0:
            _move(graph, pins, state, v, best, scratch)
            price[home] = (part_bytes[home] / scale) ** (power - 1)
            price[best] = (part_bytes[best] / scale) ** (power - 1)
            moves += 1
    return moves


@compiled
def _best_move(graph, pins, state, settings, scratch, seed, exclusive, scale, price, shared, adjacent):
    """Return the part to which a seed moves with the highest gain; -1 if none is positive."""
    part, part_bytes, weight, part_weight, _ = state
    power, num_candidates, slack, max_part_bytes, max_part_weight = settings
    stack, visited, removed, _, _, clock = scratch
    home, num_sources = part[seed], graph[1][seed + 1] - graph[1][seed] + 1
    best, best_gain, freed, home_gain = -1, 1e-12, -1.0, 0.0
    for _ in range(num_candidates):
        other = _next_candidate(home, exclusive, num_sources, price, shared, adjacent, slack)
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
    hop_starts, indptr, sources, node_bytes = graph
    clock[1] += 1
    stack[0], top, total = seed, 1, 0.0
    while top > 0:
        top -= 1
        node = stack[top]
        if visited[node] != clock[1]:
            visited[node] = clock[1]
            removed[node] = 0
        removed[node] += 1
        if node < hop_starts[1] or removed[node] == pin_count(pins, node, part):
            total += node_bytes[node]
            top = _push_sources(hop_starts, indptr, sources, node, stack, top)
    return total


@compiled
def _bytes_added(graph, pins, seed, part, limit, stack, visited, clock):
    """Sum the bytes of the nodes that a seed adds to a part; exits early beyond `limit` bytes."""
    hop_starts, indptr, sources, node_bytes = graph
    clock[1] += 1
    stack[0], top, total = seed, 1, 0.0
    while top > 0 and total <= limit:
        top -= 1
        node = stack[top]
        if visited[node] != clock[1]:
            visited[node] = clock[1]
            if node < hop_starts[1] or pin_count(pins, node, part) == 0:
                total += node_bytes[node]
                top = _push_sources(hop_starts, indptr, sources, node, stack, top)
    return total


@compiled
def _move(graph, pins, state, seed, other, scratch):
    """Move a seed to another part and update pin counts, bytes, weights and sizes of both parts."""
    hop_starts, indptr, sources, node_bytes = graph
    parts, part_bytes, weight, part_weight, part_size = state
    stack, _, _, changed, _, clock = scratch
    for part, sign in ((parts[seed], -1), (other, 1)):
        part_size[part] += sign
        part_weight[part] += sign * weight[seed]
        stack[0], top = seed, 1
        while top > 0:
            top -= 1
            node = stack[top]
            if node >= hop_starts[1]:
                changed[node] = clock[0]
                crossed = remove_pin(pins, node, part) if sign < 0 else add_pin(pins, node, part)
                if not crossed:
                    continue
            part_bytes[part] += sign * node_bytes[node]
            top = _push_sources(hop_starts, indptr, sources, node, stack, top)
    parts[seed] = other


@compiled
def _push_sources(hop_starts, indptr, sources, node, stack, top):
    if node < len(indptr) - 1:
        stack[top] = self_source(hop_starts, node)
        top += 1
        for e in range(indptr[node], indptr[node + 1]):
            stack[top] = sources[e]
            top += 1
    return top


@compiled
def _count_shared(graph, pins, seed, home, changed, examined, shared, adjacent):
    """Count a seed's sources that no other seed of its part reads, and in `shared` those that every other part has.

    Returns that number, whether a source has changed since the seed was `examined`, and how many parts are in
    `adjacent`.
    """
    _, indptr, sources, _ = graph
    num_seeds, num_parts, row_starts, rows = pins
    exclusive, num_adjacent, stale = 0, 0, False
    for e in range(indptr[seed] - 1, indptr[seed + 1]):
        source = num_seeds + seed if e < indptr[seed] else sources[e]
        stale = stale or changed[source] >= examined
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
                exclusive += (entry if by_part else entry >> PART_BITS) == 1
            else:
                if shared[part] == 0:
                    adjacent[num_adjacent] = part
                    num_adjacent += 1
                shared[part] += 1
    return exclusive, stale, num_adjacent


@compiled
def _next_candidate(home, exclusive, num_sources, price, shared, adjacent, slack):
    """Return the part of the highest estimated gain if that exceeds the slack, else -1.

    The estimate is the price of the sources that leave `home` minus the price of those that the other part lacks.
    """
    best, best_gain = -1, -slack * num_sources * price[home]
    for other in adjacent:
        gain = price[home] * exclusive - price[other] * (num_sources - shared[other])
        better = gain > best_gain or (gain == best_gain and other < best)  # `adjacent` is unordered
        if shared[other] > 0 and better:
            best, best_gain = other, gain
    return best
