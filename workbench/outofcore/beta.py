"""BETA: the order of buffer states that swaps least by a greedy rule (Marius, OSDI 2021)."""

from itertools import pairwise

import torch

from workbench.core.errors import check_at_least
from workbench.core.randomness import Purpose, permutation, stream
from workbench.outofcore.bucket_order import BucketOrder

_PARTITIONS = 6  # stream of an epoch


def beta_states(num_partitions: int, capacity: int) -> list[list[int]]:
    """The states of BETA: every pair of partitions is in one of them, and consecutive states differ by one partition.

    The last slot cycles through all partitions on disk; then the other slots are replaced one by one, and what was in
    them has met every partition.

    Args:
        num_partitions: number p of partitions.
        capacity: number c of partitions in the buffer, from 2 to p; if p is 1, 1.

    Returns:
        The content of the buffer's slots in each state.

    Raises:
        ValueError: a number out of range.

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
        on_disk = [swap(-1, partition) for partition in on_disk]
        retired = min(capacity - 1, len(on_disk))
        for slot in range(retired):
            swap(slot, on_disk[slot])
        on_disk = on_disk[retired:]
    return states


def beta_order(num_partitions: int, capacity: int, *, seed: int | None = None, epoch: int = 0) -> BucketOrder:
    """BETA's epoch: every bucket is trained in the first state that holds both of its partitions.

    Args:
        num_partitions: number p of partitions.
        capacity: number c of partitions in the buffer, from 2 to p; if p is 1, 1.
        seed: of a permutation of the partitions in each epoch, so that no partition is always trained last; None: they
            come in the order of their numbers.
        epoch: number of the epoch.

    Raises:
        ValueError: a number out of range.

    Source: Mohoney et al., "Marius" (OSDI 2021), section 4.

    >>> beta_order(16, 4).num_swaps
    42
    """
    states = beta_states(num_partitions, capacity)
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

    Args:
        num_partitions: number p of partitions.
        capacity: number c of partitions in the buffer.

    Raises:
        ValueError: a number out of range.

    >>> num_beta_swaps(16, 4), num_beta_swaps(32, 8)
    (42, 78)
    """
    check_capacity(num_partitions, capacity)
    step = max(1, capacity - 1)
    return sum(left + min(step, left) for left in range(num_partitions - capacity, 0, -step))


def fewest_swaps(num_partitions: int, capacity: int) -> int:
    """A lower bound of the swaps of any order: each brings at most c − 1 new pairs together.

    Args:
        num_partitions: number p of partitions.
        capacity: number c of partitions in the buffer.

    Raises:
        ValueError: a number out of range.

    Source: Mohoney et al., "Marius" (OSDI 2021), section 4: ⌈(p (p − 1) − c (c − 1)) / (2 (c − 1))⌉.

    >>> fewest_swaps(16, 4), fewest_swaps(32, 8)
    (38, 67)
    """
    check_capacity(num_partitions, capacity)
    p, c = num_partitions, capacity
    return 0 if p == c else -((c * (c - 1) - p * (p - 1)) // (2 * (c - 1)))


def check_capacity(num_partitions: int, capacity: int) -> None:
    """Check that a buffer holds two partitions at least, and no more than there are.

    Args:
        num_partitions: number of partitions.
        capacity: number of partitions in the buffer.

    Raises:
        ValueError: it does not; the message names both numbers.
    """
    check_at_least("num_partitions", num_partitions, 1)
    check_at_least("capacity", capacity, min(2, num_partitions), most=num_partitions)
