"""`BucketOrder` and `NodeOrder`: which partitions are in the buffer, state after state, and what each state trains.

Nodes are in p partitions on disk, edges in p² buckets by the partitions of their ends. A bucket can be trained only
while both are in the buffer, so link prediction needs every pair of partitions in some state. What an order costs is
the partitions it loads; what it is worth is how random the order of the edges remains (`partition_bias`, `node_bias`).
Throughout, there are p partitions, c of them in the buffer (from 2 to p; if p is 1, 1), and l logical groups of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, pairwise

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_ids, check_vector
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, permutation, stream, uniform
from workbench.kernels.csr import offsets


@dataclass(frozen=True, eq=False, repr=False)
class BucketOrder:
    """An epoch over the edge buckets of a partitioned graph.

    Args:
        method: that chose the order.
        num_partitions: number p of partitions.
        states: int64 [num_states, capacity], the partitions in the buffer in each state, ascending.
        state_of_bucket: int32 [p, p], the state in which the bucket of edges from partition i to partition j is
            trained; both are in the buffer then.
    """

    method: str
    num_partitions: int
    states: Tensor
    state_of_bucket: Tensor

    @property
    def num_states(self) -> int:
        """Number of states of the buffer."""
        return self.states.shape[0]

    @property
    def capacity(self) -> int:
        """Number c of partitions in the buffer."""
        return self.states.shape[1]

    @cached_property
    def num_swaps(self) -> int:
        """Number of partitions that are loaded after the first state, each in place of another."""
        present = torch.zeros(self.num_states, self.num_partitions, dtype=torch.bool)
        present.scatter_(1, self.states, True)
        return int((present[1:] & ~present[:-1]).sum())

    @property
    def num_loads(self) -> int:
        """Number of partitions that an epoch reads from disk, those of the first state included."""
        return self.capacity + self.num_swaps

    @property
    def num_bucket_loads(self) -> int:
        """Number of buckets that an epoch reads: a partition brings those with all others in the buffer, both ways."""
        kept = [self.capacity - len(self.loaded(state)) for state in range(self.num_states)]
        return sum(self.capacity**2 - count**2 for count in kept)

    def loaded(self, state: int) -> Tensor:
        """Partitions that a state adds to those of the state before, int64, ascending; all of the first state's."""
        new = self.states[state]
        return new if state == 0 else new[~torch.isin(new, self.states[state - 1])]

    def buckets(self, state: int) -> Tensor:
        """Buckets that a state trains, int64 [n, 2]: the partitions of their edges' sources and destinations."""
        lo, hi = self._offsets[state : state + 2].tolist()
        flat = self._by_state[lo:hi]
        return torch.stack([flat // self.num_partitions, flat % self.num_partitions], dim=1)

    @cached_property
    def _by_state(self) -> Tensor:
        return self.state_of_bucket.flatten().argsort(stable=True)

    @cached_property
    def _offsets(self) -> Tensor:
        return offsets(self.state_of_bucket.flatten().bincount(minlength=self.num_states))

    def __repr__(self) -> str:
        return (
            f"BucketOrder({self.method}: {self.num_partitions} partitions, {self.capacity} in the buffer, "
            f"{self.num_states} states, {self.num_swaps} swaps)"
        )


_GROUPS, _BUCKETS, _LOADS, _EVICTIONS, _NODES, _ROTATIONS, _PARTITIONS, _CYCLES = range(
    8
)  # streams of an epoch, and from the last one on those of cycles

Shuffle = Callable[[list[int]], list[int]]


def beta_states(num_partitions: int, capacity: int, shuffle: Shuffle = list) -> list[list[int]]:
    """The states of BETA: every pair of partitions is in one of them, and consecutive states differ by one partition.

    The last slot cycles through all partitions on disk; then the other slots are replaced one by one, and what was in
    them has met every partition.

    Args:
        capacity: number c of partitions in the buffer, from 2 to p; if p is 1, 1.
        shuffle: permutes the slots and the partitions on disk before every cycle, and these again before they replace
            the slots.

    Returns:
        The content of the buffer's slots in each state.

    Source: Waleffe et al., "MariusGNN", and Mohoney et al., "Marius: Learning massive graph embeddings on a single
    machine", algorithm 3.

    >>> beta_states(4, 2)
    [[0, 1], [0, 2], [0, 3], [1, 3], [1, 2], [3, 2]]
    """
    check_capacity(num_partitions, capacity)
    slots, on_disk = list(range(capacity)), list(range(capacity, num_partitions))
    states = [slots.copy()]

    def swap(slot: int, partition: int) -> int:
        evicted, slots[slot] = slots[slot], partition
        states.append(slots.copy())
        return evicted

    while on_disk:
        slots[:] = shuffle(slots)
        on_disk = shuffle([swap(-1, partition) for partition in shuffle(on_disk)])
        retired = min(capacity - 1, len(on_disk))
        for slot in range(retired):
            swap(slot, on_disk[slot])
        on_disk = on_disk[retired:]
    return states


def _shuffle_of(seed: int, epoch: int) -> Shuffle:
    """A shuffle whose calls in an epoch have a stream each."""
    calls = count()

    def shuffle(items: list[int]) -> list[int]:
        key = stream(seed, Purpose.ORDER, epoch, _CYCLES + next(calls))
        return [items[place] for place in permutation(key, len(items)).tolist()]

    return shuffle


def beta_order(
    num_partitions: int, capacity: int, *, seed: int | None = None, epoch: int = 0, reshuffle: bool = False
) -> BucketOrder:
    """BETA's epoch: every bucket is trained in the first state that holds both of its partitions.

    Args:
        num_partitions: number p of partitions.
        capacity: number c of partitions in the buffer, from 2 to p; if p is 1, 1.
        seed: of a permutation of the partitions in each epoch, so that no partition is always trained last; None: they
            come in the order of their numbers.
        epoch: number of the epoch.
        reshuffle: before every cycle, permute the buffer and the partitions on disk, as the published code does.

    Raises:
        ValueError: a number out of range, or `reshuffle` without a seed.

    Source: Mohoney et al., "Marius" (OSDI 2021), section 4.

    >>> beta_order(16, 4).num_swaps
    42
    """
    if reshuffle and seed is None:
        raise ValueError("reshuffle is True, but seed is None; pass a seed of the permutations, such as seed=0")
    shuffle = _shuffle_of(seed, epoch) if reshuffle and seed is not None else list
    states = beta_states(num_partitions, capacity, shuffle)
    if seed is not None:
        name = permutation(stream(seed, Purpose.ORDER, epoch, _PARTITIONS), num_partitions).tolist()
        states = [[name[partition] for partition in slots] for slots in states]
    first = torch.full((num_partitions, num_partitions), -1, dtype=torch.int32)
    held = torch.tensor(states[0])
    first[held[:, None], held[None, :]] = 0
    for number, (before, slots) in enumerate(pairwise(states), 1):
        [new] = set(slots) - set(before)
        held = torch.tensor(slots)
        first[new, held[first[new, held] < 0]] = number
        first[held[first[held, new] < 0], new] = number
    return BucketOrder("BETA", num_partitions, torch.tensor(states).sort(dim=1).values, first)


def num_beta_swaps(num_partitions: int, capacity: int) -> int:
    """Number of BETA's swaps in closed form: Σ d + min(c − 1, d) over d = p − c, p − 2c + 1, … above 0.

    >>> num_beta_swaps(16, 4), num_beta_swaps(32, 8)
    (42, 78)
    """
    check_capacity(num_partitions, capacity)
    step = max(1, capacity - 1)
    return sum(left + min(step, left) for left in range(num_partitions - capacity, 0, -step))


def fewest_swaps(num_partitions: int, capacity: int) -> int:
    """A lower bound of the swaps of any order: each brings at most c − 1 new pairs together.

    Source: Mohoney et al., "Marius" (OSDI 2021), section 4: ⌈(p (p − 1) − c (c − 1)) / (2 (c − 1))⌉.

    >>> fewest_swaps(16, 4), fewest_swaps(32, 8)
    (38, 67)
    """
    check_capacity(num_partitions, capacity)
    p, c = num_partitions, capacity
    return 0 if p == c else -((c * (c - 1) - p * (p - 1)) // (2 * (c - 1)))


def check_capacity(num_partitions: int, capacity: int) -> None:
    """Check that a buffer holds two partitions at least, and no more than there are."""
    check_at_least("num_partitions", num_partitions, 1)
    check_at_least("capacity", capacity, min(2, num_partitions), most=num_partitions)


def comet_order(
    num_partitions: int,
    capacity: int,
    num_groups: int | None = None,
    *,
    seed: int = 0,
    epoch: int = 0,
    reshuffle: bool = False,
) -> BucketOrder:
    """COMET's epoch: physical partitions in random logical groups, whose states are BETA's.

    Args:
        num_partitions: number p of physical partitions.
        capacity: number c of partitions that the buffer has room for.
        num_groups: number l of logical groups, a divisor of p; a buffer holds c_l = ⌊c·l/p⌋ of them, at least 2. None:
            2p/c, which costs least (section 6).
        seed: of the groups and of the buckets' states.
        epoch: number of the epoch, each of which has other groups.
        reshuffle: before every cycle of BETA's, permute the groups in the buffer and on disk, as the published code
            does. The number of loads is the same.

    Raises:
        ValueError: a number out of range, or one that does not divide the partitions; the message names the remedy.

    Source: Waleffe et al., "MariusGNN" (EuroSys 2023), section 5.1.

    >>> comet_order(32, 8, seed=1)
    BucketOrder(COMET: 32 partitions, 8 in the buffer, 28 states, 108 swaps)
    """
    size, in_buffer = group_size(num_partitions, capacity, num_groups)
    shuffle = _shuffle_of(seed, epoch) if reshuffle else list
    states = beta_states(num_partitions // size, in_buffer, shuffle)
    return grouped_order("COMET", num_partitions, states, seed=seed, epoch=epoch)


def group_size(num_partitions: int, capacity: int, num_groups: int | None) -> tuple[int, int]:
    """Partitions per logical group, and groups in the buffer, after checking all numbers.

    Args:
        capacity: number c of partitions that the buffer has room for.
        num_groups: number l of logical groups; None: the fewest of which two fit.
    """
    check_capacity(num_partitions, capacity)
    if capacity == num_partitions and num_groups is None:
        return num_partitions, 1
    groups = -(-num_partitions // (capacity // 2)) if num_groups is None else num_groups
    check_at_least("num_groups", groups, 1, most=num_partitions)
    if num_partitions % groups:
        fewer, more = (num_partitions // groups) * groups, -(-num_partitions // groups) * groups
        raise ValueError(
            f"{num_partitions} partitions can't be divided into {groups} groups of equal size; take {fewer} or {more} "
            "partitions, or set num_groups to a divisor"
        )
    size = num_partitions // groups
    in_buffer = min(groups, capacity // size)
    if in_buffer < min(2, groups):
        raise ValueError(
            f"a buffer of {capacity} partitions holds {in_buffer} of {groups} groups of {size}; two must be in it at a "
            f"time: set capacity to {min(2, groups) * size}, or num_groups to "
            f"{num_partitions // _largest_group(num_partitions, capacity)}"
        )
    return size, in_buffer


def _largest_group(num_partitions: int, capacity: int) -> int:
    """Partitions per group in the fewest groups of which two fit into a buffer."""
    return next(size for size in range(capacity // 2, 0, -1) if num_partitions % size == 0)


def grouped_order(
    method: str, num_partitions: int, states: Sequence[Sequence[int]], *, seed: int, epoch: int
) -> BucketOrder:
    """An epoch whose states hold groups of partitions; groups are random, and so is each bucket's state.

    Args:
        method: name of the order.
        num_partitions: number p of partitions, a multiple of the number of groups.
        states: the groups in each state; every pair of groups is in one.
    """
    groups = torch.tensor([sorted(state) for state in states])
    num_groups = int(groups.max()) + 1
    members = group_members(num_partitions, num_groups, seed, epoch)
    group = torch.empty(num_partitions, dtype=torch.int64)
    group[members] = torch.arange(num_groups)[:, None]
    held = members[groups].flatten(1).sort(dim=1).values
    key = stream(seed, Purpose.ORDER, epoch, _BUCKETS)
    return BucketOrder(method, num_partitions, held, _random_states(groups, group, num_groups, key))


def group_members(num_partitions: int, num_groups: int, seed: int, epoch: int) -> Tensor:
    """The partitions of each group in an epoch: int64 [num_groups, p / num_groups]."""
    return permutation(stream(seed, Purpose.ORDER, epoch, _GROUPS), num_partitions).view(num_groups, -1)


def _random_states(groups: Tensor, group: Tensor, num_groups: int, key: int) -> Tensor:
    """A uniformly random state for each bucket, of those that hold both of its groups; int32 [p, p]."""
    pairs = (groups[:, :, None] * num_groups + groups[:, None, :]).flatten(1)
    pair, at = pairs.flatten().sort(stable=True)  # states ascend within a pair
    number = at // pairs.shape[1]
    counts = pair.bincount(minlength=num_groups**2)
    first = counts.cumsum(0) - counts
    wanted = group[:, None] * num_groups + group[None, :]
    variates = uniform(key, torch.arange(wanted.numel())).view_as(wanted)
    return number[first[wanted] + (variates * counts[wanted]).long()].to(torch.int32)


_MOST_SEARCHED = 8  # groups: beyond, a search for counts at most 2 apart takes long

_MAX_STEPS = 100_000

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
        largest = _largest_group(num_partitions, capacity)
        smaller = "" if capacity // largest == 2 else f"capacity to {2 * largest} and "
        raise ValueError(
            f"{in_buffer} of {groups} groups are in the buffer at a time; balanced_order takes two: set {smaller}"
            f"num_groups to {num_partitions // largest}, or use comet_order"
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


@dataclass(frozen=True, eq=False, repr=False)
class NodeOrder:
    """An epoch over training nodes in partitions.

    Args:
        num_partitions: number p of partitions, those without training nodes included.
        states: int64 [num_states, capacity], the partitions in the buffer in each state, ascending.
        first: int64 [number of partitions with training nodes], the first state that holds each.
        last: int64, of the same length, the last state.
    """

    num_partitions: int
    states: Tensor
    first: Tensor
    last: Tensor

    @property
    def num_states(self) -> int:
        """Number of states of the buffer."""
        return self.states.shape[0]

    @property
    def num_loads(self) -> int:
        """Number of partitions that an epoch reads from disk, those of the first state included."""
        return self.states.shape[1] + self.num_states - 1

    def states_of(self, node_ids: Tensor, partition: Tensor, *, seed: int = 0, epoch: int = 0) -> Tensor:
        """A uniformly random state for each training node, of those that hold its partition.

        Args:
            node_ids: int64 or int32 [n], by which the states are drawn.
            partition: int64 or int32 [n], partition of each node.
            seed: of the draws.
            epoch: number of the epoch.

        Returns:
            int64 [n].

        Raises:
            IndexError: a partition that is not one of training nodes.
        """
        at = check_ids("partition", partition, len(self.first))
        variates = uniform(stream(seed, Purpose.ORDER, epoch, _NODES), node_ids)
        return self.first[at] + (variates * (self.last[at] - self.first[at] + 1)).long()

    def __repr__(self) -> str:
        return f"NodeOrder({len(self.first)} partitions of training nodes, {self.num_states} states)"


def node_order(
    num_partitions: int, capacity: int, num_train_partitions: int, *, seed: int = 0, epoch: int = 0
) -> NodeOrder:
    """An epoch over partitions of which the first have all training nodes.

    If these fit into the buffer they are resident, the rest of it is filled at random, and the epoch is one state.
    Otherwise it begins with random ones; each swap replaces a random one in the buffer by the next that was not in it.

    Args:
        num_partitions: number p of partitions.
        capacity: number c of partitions in the buffer.
        num_train_partitions: number of partitions with training nodes, those before all others.
        seed: of loads and evictions.
        epoch: number of the epoch.

    Raises:
        ValueError: a number out of range.

    Source: Waleffe et al., "MariusGNN" (EuroSys 2023), section 5.3.
    """
    check_capacity(num_partitions, capacity)
    check_at_least("num_train_partitions", num_train_partitions, 1, most=num_partitions)
    key = stream(seed, Purpose.ORDER, epoch, _LOADS)
    if num_train_partitions <= capacity:
        rest = permutation(key, num_partitions - num_train_partitions)[: capacity - num_train_partitions]
        held = torch.cat([torch.arange(num_train_partitions), (rest + num_train_partitions).sort().values])
        return NodeOrder(num_partitions, held[None, :], *torch.zeros(2, num_train_partitions, dtype=torch.int64))
    loads = permutation(key, num_train_partitions)
    return _swapped(num_partitions, loads, capacity, stream(seed, Purpose.ORDER, epoch, _EVICTIONS))


def _swapped(num_partitions: int, loads: Tensor, capacity: int, key: int) -> NodeOrder:
    """Swap in the partitions one by one, each in place of a random one."""
    num_swaps = len(loads) - capacity
    slots = (uniform(key, torch.arange(num_swaps)) * capacity).long().tolist()
    held = loads[:capacity].clone()
    first, last = torch.zeros(2, len(loads), dtype=torch.int64)
    states = [held.clone()]
    for number, (slot, new) in enumerate(zip(slots, loads[capacity:].tolist(), strict=True), 1):
        last[held[slot]] = number - 1
        held[slot], first[new] = new, number
        states.append(held.clone())
    last[held] = num_swaps
    return NodeOrder(num_partitions, torch.stack(states).sort(dim=1).values, first, last)


def partition_bias(order: BucketOrder, *, bucket_edges: Tensor | None = None) -> float:
    """B over partitions: the share of edges trained, of those that start or end in a partition.

    Args:
        order: of the buckets.
        bucket_edges: int64 [p, p], edges from partition i to partition j; None: equally many in all buckets.

    Returns:
        The largest difference of two partitions with edges, in [0, 1].

    Raises:
        ValueError: another shape.

    Source: Waleffe et al., "MariusGNN" (EuroSys 2023), section 5.2.
    """
    p, states = order.num_partitions, order.num_states
    weight = torch.ones(p, p) if bucket_edges is None else bucket_edges
    if weight.shape != (p, p):
        raise ValueError(f"bucket_edges is {list(weight.shape)}; it must be [{p}, {p}], a number for each bucket")
    weight = weight.double()
    at = order.state_of_bucket.long()
    ends = torch.arange(p)
    trained = torch.zeros(p * states, dtype=torch.float64)
    trained.index_add_(0, (ends[:, None] * states + at).flatten(), weight.flatten())
    within = torch.eye(p, dtype=torch.bool)
    other = torch.where(within, torch.zeros_like(weight), weight)  # a bucket within a partition counts once
    trained.index_add_(0, (ends[None, :] * states + at).flatten(), other.flatten())
    return _largest_difference(trained.view(p, states).cumsum(1))


def node_bias(order: BucketOrder, graph: Graph, partition: Tensor, *, min_edges: int = 1) -> float:
    """B over nodes: the share of edges trained, of those that start or end at a node.

    Args:
        order: of the buckets.
        graph: its edges are trained once each.
        partition: int64 or int32 [num_nodes], the partition of each node.
        min_edges: nodes with fewer edges do not count. A node with one edge is always trained either not at all or
            completely, so two of these make B = 1 in every order.

    Returns:
        The largest difference of two nodes with so many edges, in [0, 1].

    Raises:
        IndexError: a partition that the order does not have.
        ValueError: `partition` has another length, or `min_edges` is less than 1.
        TypeError: it is not an integer tensor.

    Source: Waleffe et al., "MariusGNN" (EuroSys 2023), section 5.2.
    """
    check_at_least("min_edges", min_edges, 1)
    check_vector("partition", partition, graph.num_nodes, (torch.int64, torch.int32))
    partition = check_ids("partition", partition, order.num_partitions).cpu()
    dst = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.in_degrees().cpu())
    src = graph.indices.long().cpu()
    at = order.state_of_bucket[partition[src], partition[dst]]
    by_state = at.argsort(stable=True)
    ends = at.bincount(minlength=order.num_states).cumsum(0)[:-1]
    loops = src == dst
    total = _count_ends(src, dst, loops, graph.num_nodes)
    some = total >= min_edges
    trained, worst = torch.zeros_like(total), 0.0
    for edges in by_state.tensor_split(ends):
        trained += _count_ends(src[edges], dst[edges], loops[edges], graph.num_nodes)
        share = trained[some] / total[some]
        worst = max(worst, float(share.max() - share.min())) if len(share) else worst
    return worst


def _count_ends(src: Tensor, dst: Tensor, loops: Tensor, num_nodes: int) -> Tensor:
    return src.bincount(minlength=num_nodes) + dst[~loops].bincount(minlength=num_nodes)


def _largest_difference(trained: Tensor) -> float:
    """Of rows' cumulated counts, divided by the last."""
    some = trained[trained[:, -1] > 0]
    share = some / some[:, -1:]
    return float((share.amax(0) - share.amin(0)).max()) if len(share) else 0.0
