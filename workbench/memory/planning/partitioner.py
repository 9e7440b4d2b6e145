"""A batch partitioner with fixed options, used for every number of parts that a plan tries."""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.partition.batch import partition_batch
from workbench.partition.batch.auto import resolve_method


@dataclass(frozen=True, eq=False)
class Partitioner:
    """Partitions a batch and its parts with the same method and options.

    "auto" resolves to the same method for all of them; as in `workbench.partition_batch`, star is used when memory is
    short.

    Args:
        mb: the batch.
        method: a name of `workbench.PARTITION_METHODS`, or "auto" or "fast".
        seed: seed of the random choices of the method.
        node_parts: part of every node of the raw graph, for methods that use one; None for the others.
    """

    mb: MiniBatch
    method: str = "auto"
    seed: int = 0
    node_parts: Tensor | None = None

    def __call__(self, mb: MiniBatch, num_parts: int) -> Tensor:
        return partition_batch(mb, num_parts, method=self.method, seed=self.seed, node_parts=self.node_parts)

    @cached_property
    def resolved(self) -> str:
        """The method that is used, unless memory is short."""
        return resolve_method(self.mb, method=self.method, node_parts=self.node_parts)
