"""Orders for node classification: training nodes are in the first partitions, which stay in the buffer if they fit."""

from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_ids
from workbench.core.randomness import Purpose, permutation, stream, uniform
from workbench.outofcore.beta import check_capacity

_LOADS, _EVICTIONS, _NODES = 2, 3, 4  # streams of an epoch


@dataclass(frozen=True, eq=False, repr=False)
class NodeOrder:
    """An epoch over training nodes in partitions.

    Args:
        states: int64 [num_states, capacity], the partitions in the buffer in each state, ascending.
        first: int64 [number of partitions with training nodes], the first state that holds each.
        last: int64, of the same length, the last state.
    """

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
        return NodeOrder(held[None, :], *torch.zeros(2, num_train_partitions, dtype=torch.int64))
    return _swapped(permutation(key, num_train_partitions), capacity, stream(seed, Purpose.ORDER, epoch, _EVICTIONS))


def _swapped(loads: Tensor, capacity: int, key: int) -> NodeOrder:
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
    return NodeOrder(torch.stack(states).sort(dim=1).values, first, last)
