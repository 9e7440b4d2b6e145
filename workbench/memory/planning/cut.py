"""A batch cut into micro-batches, each with what it needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.core.split import select_seeds
from workbench.core.stopwatch import Stopwatch
from workbench.memory.estimate import Estimator
from workbench.memory.record import MemoryEstimate

Partition = Callable[[MiniBatch, int], Tensor]
"""int64 [num_seeds] from a batch and a number of parts."""


@dataclass(frozen=True, eq=False)
class Cut:
    """Micro-batches of a batch.

    Args:
        micro: in the order in which they are trained on.
        estimates: what each needs.
    """

    micro: tuple[MiniBatch, ...]
    estimates: tuple[MemoryEstimate, ...]

    @property
    def largest(self) -> int:
        """Position of the part that needs most; the first of several."""
        return max(range(len(self.estimates)), key=lambda position: self.estimates[position].peak_bytes)

    @property
    def peak_bytes(self) -> int:
        return self.estimates[self.largest].peak_bytes


@dataclass(frozen=True, eq=False)
class Cutter:
    """Partitions, splits and estimates, and counts the seconds of each.

    Args:
        estimator: of one model.
        partition: labels from a batch and a number of parts.
        watch: its phases are "partition", "split" and "estimate".
    """

    estimator: Estimator
    partition: Partition
    watch: Stopwatch = field(default_factory=Stopwatch)

    def whole(self, mb: MiniBatch) -> Cut:
        """The batch as it is."""
        return self._estimated([mb], first=True)

    def cut(self, mb: MiniBatch, num_parts: int, *, first: bool = True) -> Cut:
        """The batch in parts.

        Args:
            mb: the batch, or a micro-batch.
            num_parts: parts.
            first: no micro-batch comes before these.
        """
        with self.watch.phase("partition"):
            part = self.partition(mb, num_parts)
        with self.watch.phase("split"):
            micro = mb.split(part)
        return self._estimated(micro, first=first)

    def each_alone(self, mb: MiniBatch, seeds: Tensor) -> Cut:
        """Seeds each on its own, after other parts.

        Args:
            mb: a batch of two seeds or more.
            seeds: int64, their positions.
        """
        with self.watch.phase("split"):
            alone = select_seeds(mb, seeds.split(1))
        return self._estimated(alone, first=False)

    def first_part(self, mb: MiniBatch, seeds: Tensor) -> Cut:
        """One part of some seeds, before all others.

        Args:
            mb: the batch.
            seeds: int64, their positions.
        """
        with self.watch.phase("split"):
            part = select_seeds(mb, [seeds])
        return self._estimated(part, first=True)

    def _estimated(self, micro: Sequence[MiniBatch], *, first: bool) -> Cut:
        with self.watch.phase("estimate"):
            estimates = [
                self.estimator(mb, accumulating=position > 0 or not first) for position, mb in enumerate(micro)
            ]
        return Cut(tuple(micro), tuple(estimates))
