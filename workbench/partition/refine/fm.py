"""Fiduccia–Mattheyses refinement (DAC 1982): a pass over the seeds that makes every move of positive gain.

The gain of moving seed v from part a to part b is the decrease of the objective Σ_p bytes(p)^power, where

    bytes(a) falls by the nodes of v's computation graph whose last pin in a leaves with v, and
    bytes(b) rises by the nodes of v's computation graph that have no pin in b yet.

Both are exact, over all layers. They cost a traversal, so parts are ranked first by an estimate that reads only v's
sources in the contracted graph, each worth its fair share of all bytes. Besides the parts that have some of them, the
lightest part is a candidate.
"""

import numpy as np

from workbench.kernels.jit import compiled
from workbench.partition.refine.pin_counts import PART_BITS, PART_MASK, add_pin, pin_count, remove_pin


@compiled
def fm_pass(graph, pins, state, settings, scratch):
    """Examine every seed and move it to the part of the highest positive gain.

    Parts are ranked by an estimate, and the exact gain is computed for the best `num_candidates` of them. A seed is
    skipped as long as none of its sources has changed since it was last examined.

    Args:
        graph: arrays of a `ContractedGraph`.
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
