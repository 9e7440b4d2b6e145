"""COMET: BETA over random groups of partitions; each bucket is trained in a random state that holds it (MariusGNN)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from workbench.core.errors import check_at_least
from workbench.core.randomness import Purpose, permutation, stream, uniform
from workbench.outofcore.beta import beta_states, check_capacity
from workbench.outofcore.bucket_order import BucketOrder

_GROUPS, _BUCKETS = 0, 1  # streams of an epoch


def comet_order(
    num_partitions: int, capacity: int, num_groups: int | None = None, *, seed: int = 0, epoch: int = 0
) -> BucketOrder:
    """COMET's epoch: physical partitions in random logical groups, whose states are BETA's.

    Args:
        num_partitions: number p of physical partitions.
        capacity: number c of partitions that the buffer has room for.
        num_groups: number l of logical groups, a divisor of p; a buffer holds c_l = ⌊c·l/p⌋ of them, at least 2. None:
            2p/c, which costs least (section 6).
        seed: of the groups and of the buckets' states.
        epoch: number of the epoch, each of which has other groups.

    Raises:
        ValueError: a number out of range, or one that does not divide the partitions; the message names the remedy.

    Source: Waleffe et al., "MariusGNN" (EuroSys 2023), section 5.1.

    >>> comet_order(32, 8, seed=1)
    BucketOrder(COMET: 32 partitions, 8 in the buffer, 28 states, 108 swaps)
    """
    size, in_buffer = group_size(num_partitions, capacity, num_groups)
    states = beta_states(num_partitions // size, in_buffer)
    return grouped_order("COMET", num_partitions, states, seed=seed, epoch=epoch)


def group_size(num_partitions: int, capacity: int, num_groups: int | None) -> tuple[int, int]:
    """Partitions per logical group, and groups in the buffer, after checking all numbers.

    Args:
        num_partitions: number p of physical partitions.
        capacity: number c of partitions that the buffer has room for.
        num_groups: number l of logical groups; None: the fewest of which two fit.

    Raises:
        ValueError: a number out of range, or one that does not divide the partitions.
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
            f"time: set num_groups to {-(-2 * num_partitions // capacity)} or more, or enlarge the buffer"
        )
    return size, in_buffer


def grouped_order(
    method: str, num_partitions: int, states: Sequence[Sequence[int]], *, seed: int, epoch: int
) -> BucketOrder:
    """An epoch whose states hold groups of partitions; groups are random, and so is each bucket's state.

    Args:
        method: name of the order.
        num_partitions: number p of partitions, a multiple of the number of groups.
        states: the groups in each state; every pair of groups is in one.
        seed: of the groups and of the buckets' states.
        epoch: number of the epoch.
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
