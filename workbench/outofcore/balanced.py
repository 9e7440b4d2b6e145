"""Orders of least I/O in which all groups are trained at the same pace.

With two groups in the buffer, every order of all pairs in which neighbours share a group loads least: one group per
pair. BETA trains the first group with all others before the rest begins, so an epoch starts with the edges of a few
nodes. These orders visit the groups in turn, and spread the buckets within a group over its visits.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from workbench.core.errors import check_at_least
from workbench.core.randomness import Purpose, stream, uniform
from workbench.outofcore.bucket_order import BucketOrder
from workbench.outofcore.comet import group_members, group_size, grouped_order

_MOST_SEARCHED = 8  # groups: beyond, a search for counts at most 2 apart takes long
_MAX_STEPS = 100_000
_ROTATIONS = 5  # stream of an epoch

Pair = tuple[int, ...]


def balanced_order(
    num_partitions: int, capacity: int, num_groups: int | None = None, *, seed: int = 0, epoch: int = 0
) -> BucketOrder:
    """An epoch as COMET's, with as many loads, whose states train all groups at the same pace.

    Args:
        num_partitions: number p of physical partitions.
        capacity: number c of partitions that the buffer has room for.
        num_groups: number l of logical groups, a divisor of p, such that two fit into the buffer. None: 2p/c.
        seed: of the groups and of the buckets' states.
        epoch: number of the epoch, each of which has other groups.

    Raises:
        ValueError: numbers as for `comet_order`, or more than two groups in the buffer.
    """
    size, in_buffer = group_size(num_partitions, capacity, num_groups)
    groups = num_partitions // size
    if in_buffer > 2:
        raise ValueError(
            f"{in_buffer} of {groups} groups are in the buffer at a time; balanced_order takes two: set num_groups to "
            f"{-(-2 * num_partitions // capacity)}, or use comet_order"
        )
    pairs = balanced_pairs(groups)
    order = grouped_order("balanced", num_partitions, pairs, seed=seed, epoch=epoch)
    return _spread_within_groups(
        order, torch.tensor(pairs), group_members(num_partitions, groups, seed, epoch), seed, epoch
    )


def _spread_within_groups(order: BucketOrder, pairs: Tensor, members: Tensor, seed: int, epoch: int) -> BucketOrder:
    """Spread the buckets within each group over its states: those of a partition, as a row or column, evenly."""
    groups, size = members.shape
    visits = torch.stack([(pairs == group).any(1).nonzero()[:, 0] for group in range(groups)])
    count = visits.shape[1]
    turn = (torch.arange(size)[:, None] + torch.arange(size)[None, :]) % size * count // size
    rotation = (uniform(stream(seed, Purpose.ORDER, epoch, _ROTATIONS), torch.arange(groups)) * count).long()
    chosen = (turn + rotation[:, None, None]) % count
    state_of_bucket = order.state_of_bucket.clone()
    state_of_bucket[members[:, :, None], members[:, None, :]] = visits[torch.arange(groups)[:, None, None], chosen].to(
        torch.int32
    )
    return replace(order, state_of_bucket=state_of_bucket)


def balanced_pairs(num_groups: int) -> list[Pair]:
    """All pairs of groups, each once; neighbours share a group, and groups occur at the same pace.

    At any time the numbers of pairs that two groups have been in differ by at most 2, or by 3 for an even number of
    more than 8 groups.

    Args:
        num_groups: number l of groups, at least 1.

    Raises:
        ValueError: no group.

    Source: for an odd number, Walecki's decomposition of the complete graph into Hamiltonian cycles, one after the
    other (an Eulerian trail); for an even number, a search or the decomposition that leaves a perfect matching, whose
    pairs are inserted one per cycle.

    >>> balanced_pairs(3)
    [(0, 2), (0, 1), (1, 2)]
    """
    check_at_least("num_groups", num_groups, 1)
    if num_groups == 1:
        return [(0,)]
    if num_groups % 2:
        return _pairs_along(list(_trail(num_groups)))
    if num_groups <= _MOST_SEARCHED and (found := _search(num_groups, spread=2)):
        return found
    return _with_matching(num_groups)


def _pair(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)


def _pairs_along(trail: list[int]) -> list[Pair]:
    return [_pair(a, b) for a, b in pairwise(trail)]


def _trail(num_groups: int) -> Iterator[int]:
    """The cycles of Walecki's decomposition, each from the apex; of an even number of groups, all but a matching."""
    apex, n = num_groups - 1, num_groups - 1
    for r in range(n // 2):
        yield apex
        for k in range(n):  # r, r + 1, r − 1, r + 2, r − 2, …
            yield (r + (k + 1) // 2 * (1 if k % 2 else -1)) % n
    yield apex


def _with_matching(num_groups: int) -> list[Pair]:
    """The cycles of an even number of groups, and one pair of the matching in each: between two pairs that share it."""
    trail = list(_trail(num_groups))
    pairs = set(_pairs_along(trail))
    matching = [(a, b) for b in range(num_groups) for a in range(b) if (a, b) not in pairs]
    a, b = matching[0]
    start = next(i for i, node in enumerate(trail) if node in (a, b))
    insertions = {start: matching[0]}  # by visit of the trail
    for cycle, (a, b) in enumerate(matching[1:]):
        first = cycle * num_groups + num_groups // 2
        places = (i for i in range(first, len(trail)) if trail[i] in (a, b) and i not in insertions)
        insertions[next(places)] = (a, b)
    order: list[Pair] = []
    for i, node in enumerate(trail):
        if i in insertions:
            order.append(insertions[i])
        if i + 1 < len(trail):
            order.append(_pair(node, trail[i + 1]))
    return order


def _search(num_groups: int, spread: int) -> list[Pair] | None:
    """Depth-first search for an order whose counts never differ by more than `spread`; None if none is found soon."""
    total = num_groups * (num_groups - 1) // 2
    counts = [0] * num_groups
    used: set[Pair] = {(0, 1)}
    counts[0] = counts[1] = 1
    order: list[Pair] = [(0, 1)]
    steps = 0
    choices = [_next_pairs(order[-1], used, counts, spread)]
    while len(order) < total:
        if (steps := steps + 1) > _MAX_STEPS or not choices:
            return None
        if choices[-1]:
            pair = choices[-1].pop()
            _count(pair, counts, 1)
            used.add(pair)
            order.append(pair)
            choices.append(_next_pairs(pair, used, counts, spread))
        else:
            choices.pop()
            pair = order.pop()
            _count(pair, counts, -1)
            used.remove(pair)
    return order


def _next_pairs(last: Pair, used: set[Pair], counts: list[int], spread: int) -> list[Pair]:
    """Unused pairs that share a group with the last one and keep the counts together, the best at the end."""
    found = []
    for shared in last:
        for other in range(len(counts)):
            pair = _pair(shared, other)
            if other != shared and pair not in used:
                _count(pair, counts, 1)
                if max(counts) - min(counts) <= spread:
                    found.append((sum(count * count for count in counts), pair))
                _count(pair, counts, -1)
    return [pair for _, pair in sorted(found, reverse=True)]


def _count(pair: Pair, counts: list[int], by: int) -> None:
    for group in pair:
        counts[group] += by
