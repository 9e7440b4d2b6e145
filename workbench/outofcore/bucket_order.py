"""`BucketOrder`: which partitions are in the buffer, state after state, and in which state each edge bucket is trained.

Nodes are in p partitions on disk, edges in p² buckets by the partitions of their ends. A bucket can be trained only
while both are in the buffer, so link prediction needs every pair of partitions in some state. What an order costs is
the partitions it loads; what it is worth is how random the order of the edges remains (`permutation_bias`).
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


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
        """Partitions that a state adds to those of the state before, int64, ascending; all of the first state's.

        Args:
            state: number of the state.
        """
        new = self.states[state]
        return new if state == 0 else new[~torch.isin(new, self.states[state - 1])]

    def buckets(self, state: int) -> Tensor:
        """Buckets that a state trains, int64 [n, 2]: the partitions of their edges' sources and destinations.

        Args:
            state: number of the state.
        """
        lo, hi = self._offsets[state : state + 2].tolist()
        flat = self._by_state[lo:hi]
        return torch.stack([flat // self.num_partitions, flat % self.num_partitions], dim=1)

    @cached_property
    def _by_state(self) -> Tensor:
        return self.state_of_bucket.flatten().argsort(stable=True)

    @cached_property
    def _offsets(self) -> Tensor:
        counts = self.state_of_bucket.flatten().bincount(minlength=self.num_states)
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)])

    def __repr__(self) -> str:
        return (
            f"BucketOrder({self.method}: {self.num_partitions} partitions, {self.capacity} in the buffer, "
            f"{self.num_states} states, {self.num_swaps} swaps)"
        )
