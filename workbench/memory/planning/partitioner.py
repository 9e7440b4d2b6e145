"""One method for all partitions that a plan tries."""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from workbench.core.host_memory import available_bytes
from workbench.core.minibatch import MiniBatch
from workbench.partition.batch import partition_batch, resolve_method


@dataclass(frozen=True, eq=False)
class Partitioner:
    """Partitions a batch, and parts of it, always by the same method: "auto" is settled at the first partition.

    Args:
        mb: the batch.
        method: see `workbench.partition_batch`, as `seed` and `node_parts`.
    """

    mb: MiniBatch
    method: str = "auto"
    seed: int = 0
    node_parts: Tensor | None = None

    def __call__(self, mb: MiniBatch, num_parts: int) -> Tensor:
        method, max_bytes = self._settled
        return partition_batch(
            mb, num_parts, method=method, seed=self.seed, node_parts=self.node_parts, max_bytes=max_bytes
        )

    @property
    def resolved(self) -> str:
        """The method that partitions."""
        return self._settled[0]

    @cached_property
    def _settled(self) -> tuple[str, int | None]:
        """The method, and the memory that it may take: what is left when "auto" is settled, whatever is left later."""
        if self.method != "auto":
            return self.method, None
        left = available_bytes()
        return resolve_method(self.mb, node_parts=self.node_parts, max_bytes=left), left
