"""Moves of outputs between parts: what one would save and cost, exactly, and a sweep that takes those that pay."""

import numpy as np

from workbench.kernels.jit import compiled
from workbench.partition.refine.presence import PART_BITS, PART_MASK, add_parent, count_in, drop_parent
from workbench.partition.refine.trees import self_child

_TABLE_LOAD = 0.85


@compiled
def sweep(trees, presence, state, rule, scratch, begin):
    """Look at outputs from `begin` on; move each to the part that lowers Σ over parts of cost^power most.

    Parts are ranked by how many of the output's sources they have; the exact gain is worked out for the best
    `candidates` of those whose rank promises enough. An output is passed over while nothing about its sources has
    changed since it was looked at.

    Args:
        trees: arrays of `Trees`.
        presence: arrays of `Presence`.
        state: part [outputs], part_bytes [parts], weight [outputs], load and members [parts].
        rule: power, candidates, promise, most_bytes and most_load of a part that takes an output.
        scratch: stack, stamp, drops and changed [nodes], seen [outputs], clock [2].
        begin: the first output.

    Returns:
        moves, and where it stopped: the number of outputs, or before, because the table of presence is full.
    """
    num_parts, table, filled = presence[1], presence[4], presence[5]
    part, part_bytes, _, _, members = state
    changed, seen, clock = scratch[3:]
    outputs, scale, power = len(part), part_bytes.max(), rule[0]
    price = (part_bytes / scale) ** (power - 1)  # what a byte more costs, by part
    shared, touched = np.zeros(num_parts), np.empty(num_parts, np.int64)
    moves = 0
    for v in range(begin, outputs):
        if filled[0] > _TABLE_LOAD * len(table):
            return moves, v
        home, best, new = part[v], -1, 0
        alone, fresh, num_touched = _rank(trees, presence, v, home, changed, seen[v], shared, touched)
        if alone > 0 and fresh and members[home] > 1:
            clock[0] += 1
            seen[v] = clock[0]
            found = touched[:num_touched]
            best, new = _best(trees, presence, state, rule, scratch, v, alone, scale, price, shared, found)
        for i in range(num_touched):
            shared[touched[i]] = 0
        if best >= 0:
            if filled[0] + new >= len(table):
                seen[v] = 0  # it is looked at again
                return moves, v
            _move(trees, presence, state, v, best, scratch)
            price[home] = (part_bytes[home] / scale) ** (power - 1)
            price[best] = (part_bytes[best] / scale) ** (power - 1)
            moves += 1
    return moves, outputs


@compiled
def _rank(trees, presence, output, home, changed, seen, shared, touched):
    """Count an output's sources that only it needs at home, and in `shared` those that other parts have, too.

    Returns the first, whether a source has changed since `seen`, and how many parts are listed in `touched`.
    """
    _, indptr, children, _ = trees
    _, _, start, slots, _, _ = presence
    first = presence[0][0]
    alone, num_touched, fresh = 0, 0, False
    for e in range(indptr[output] - 1, indptr[output + 1]):
        source = first + output if e < indptr[output] else children[e]
        fresh = fresh or changed[source] >= seen
        for i in range(start[source - first], start[source - first + 1]):
            if slots[i] == 0:
                break
            part = slots[i] & PART_MASK
            if part == home:
                alone += slots[i] >> PART_BITS == 1
            else:
                if shared[part] == 0:
                    touched[num_touched] = part
                    num_touched += 1
                shared[part] += 1
    return alone, fresh, num_touched


@compiled
def _best(trees, presence, state, rule, scratch, output, alone, scale, price, shared, touched):
    """The part to which an output moves with the most gain, -1 if with none, and how many nodes are new there."""
    part, part_bytes, weight, load, _ = state
    power, candidates, promise, most_bytes, most_load = rule
    stack, stamp, drops, _, _, clock = scratch
    home, sources = part[output], trees[1][output + 1] - trees[1][output] + 1
    best, best_gain, best_new, saved, drop_gain = -1, 1e-12, 0, -1.0, 0.0
    for _ in range(candidates):
        other = _most_promising(home, alone, sources, price, shared, touched, promise)
        if other < 0:
            break
        if saved < 0:
            saved = _saved(trees, presence, output, home, stack, stamp, drops, clock)
            now = part_bytes[home] / scale
            drop_gain = now**power - (now - saved / scale) ** power
            if saved == 0:
                break
        shared[other] = -1  # not a candidate again
        if load[other] + weight[output] > most_load:
            continue
        there = part_bytes[other] / scale
        limit = (there**power + drop_gain - best_gain) ** (1 / power) * scale - part_bytes[other]
        limit = min(limit, most_bytes - part_bytes[other])
        added, new = _added(trees, presence, output, other, limit, stack, stamp, clock)
        gain = drop_gain + there**power - (there + added / scale) ** power
        if added <= limit and gain > best_gain:
            best, best_gain, best_new = other, gain, new
    return best, best_new


@compiled
def _most_promising(home, alone, sources, price, shared, touched, promise):
    """The part with the least price of sources that it lacks, if that is not far above the price of those freed."""
    best, best_gain = -1, -promise * sources * price[home]
    for other in touched:
        gain = price[home] * alone - price[other] * (sources - shared[other])
        better = gain > best_gain or (gain == best_gain and other < best)  # `touched` is in no order
        if shared[other] > 0 and better:
            best, best_gain = other, gain
    return best


@compiled
def _saved(trees, presence, output, part, stack, stamp, drops, clock):
    """Bytes of what leaves a part with an output: nodes all of whose parents there leave."""
    first, indptr, children, cost = trees
    clock[1] += 1
    stack[0], top, total = output, 1, 0.0
    while top > 0:
        top -= 1
        node = stack[top]
        if stamp[node] != clock[1]:
            stamp[node] = clock[1]
            drops[node] = 0
        drops[node] += 1
        if node < first[1] or drops[node] == count_in(presence, node, part):
            total += cost[node]
            top = _push_children(first, indptr, children, node, stack, top)
    return total


@compiled
def _added(trees, presence, output, part, limit, stack, stamp, clock):
    """Bytes and nodes that an output adds to a part; counting ends beyond `limit`."""
    first, indptr, children, cost = trees
    clock[1] += 1
    stack[0], top, total, new = output, 1, 0.0, 0
    while top > 0 and total <= limit:
        top -= 1
        node = stack[top]
        if stamp[node] != clock[1]:
            stamp[node] = clock[1]
            if node < first[1] or count_in(presence, node, part) == 0:
                total += cost[node]
                new += 1
                top = _push_children(first, indptr, children, node, stack, top)
    return total, new


@compiled
def _move(trees, presence, state, output, other, scratch):
    """Take an output to another part, with all that its leaving and coming changes."""
    first, indptr, children, cost = trees
    parts, part_bytes, weight, load, members = state
    stack, _, _, changed, _, clock = scratch
    for part, sign in ((parts[output], -1), (other, 1)):
        members[part] += sign
        load[part] += sign * weight[output]
        stack[0], top = output, 1
        while top > 0:
            top -= 1
            node = stack[top]
            if node >= first[1]:
                changed[node] = clock[0]
                turned = drop_parent(presence, node, part) if sign < 0 else add_parent(presence, node, part)
                if not turned:
                    continue
            part_bytes[part] += sign * cost[node]
            top = _push_children(first, indptr, children, node, stack, top)
    parts[output] = other


@compiled
def _push_children(first, indptr, children, node, stack, top):
    if node < len(indptr) - 1:
        stack[top] = self_child(first, node)
        top += 1
        for e in range(indptr[node], indptr[node + 1]):
            stack[top] = children[e]
            top += 1
    return top
