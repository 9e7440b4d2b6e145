"""One method for all partitions that a plan tries."""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.partition.batch import partition_batch
from workbench.partition.batch.choice import resolve_method


@dataclass(frozen=True, eq=False)
class Partitioner:
    """Partitions a batch, and parts of it, always by the same method.

    "auto" stands for the same in all of them; as in `partition_batch`, star cuts where it lacks memory.

    Args:
        mb: the batch.
        method: see `workbench.partition_batch`, as `seed` and `node_parts`.
    """

    mb: MiniBatch
    method: str = "auto"
    seed: int = 0
    node_parts: Tensor | None = None

    def __call__(self, mb: MiniBatch, num_parts: int) -> Tensor:
        return partition_batch(mb, num_parts, method=self.method, seed=self.seed, node_parts=self.node_parts)

    @cached_property
    def resolved(self) -> str:
        """The method that partitions, where memory is not short."""
        return resolve_method(self.mb, method=self.method, node_parts=self.node_parts)
