"""A candidate partition of a batch: its micro-batches and the memory estimate of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.memory.estimate import MemoryEstimate
from workbench.memory.estimator import Estimator
from workbench.meter.stopwatch import Stopwatch

Partition = Callable[[MiniBatch, int], Tensor]
"""Maps a batch and a number of parts to int64 labels [num_seeds]."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """Micro-batches of a batch with their memory estimates.

    Args:
        micro: the micro-batches, in training order.
        estimates: the estimate of each.
    """

    micro: tuple[MiniBatch, ...]
    estimates: tuple[MemoryEstimate, ...]

    @property
    def largest(self) -> int:
        """Index of the micro-batch with the highest peak; the first of several."""
        return max(range(len(self.estimates)), key=lambda position: self.estimates[position].peak_bytes)

    @property
    def peak_bytes(self) -> int:
        return self.estimates[self.largest].peak_bytes


@dataclass(frozen=True, eq=False)
class CandidateBuilder:
    """Partitions, splits and estimates batches, and times each of the three.

    Args:
        estimator: memory estimator of one model.
        partition: maps a batch and a number of parts to labels.
        watch: accumulates seconds in the phases "partition", "split" and "estimate".
    """

    estimator: Estimator
    partition: Partition
    watch: Stopwatch = field(default_factory=Stopwatch)

    def unpartitioned(self, mb: MiniBatch) -> Candidate:
        """The whole batch as a single micro-batch."""
        return self._estimated([mb], first=True)

    def partitioned(self, mb: MiniBatch, num_parts: int, *, first: bool = True) -> Candidate:
        """Partition a batch.

        Args:
            mb: the batch, or a micro-batch.
            num_parts: number of parts.
            first: the first part is trained on before any other micro-batch, so finds no gradients.
        """
        with self.watch.phase("partition"):
            part = self.partition(mb, num_parts)
        with self.watch.phase("split"):
            micro = mb.split(part)
        return self._estimated(micro, first=first)

    def singletons(self, mb: MiniBatch, seeds: Tensor) -> Candidate:
        """One micro-batch per given seed, all of them trained on after other micro-batches.

        Args:
            mb: a batch of at least two seeds.
            seeds: int64 positions of seeds.
        """
        with self.watch.phase("split"):
            micro = mb.select(seeds.split(1))
        return self._estimated(micro, first=False)

    def first_part(self, mb: MiniBatch, seeds: Tensor) -> Candidate:
        """A single micro-batch of the given seeds, trained on before all others.

        Args:
            mb: the batch.
            seeds: int64 positions of seeds.
        """
        with self.watch.phase("split"):
            part = mb.select([seeds])
        return self._estimated(part, first=True)

    def _estimated(self, micro: Sequence[MiniBatch], *, first: bool) -> Candidate:
        with self.watch.phase("estimate"):
            estimates = [
                self.estimator(mb, accumulating=position > 0 or not first) for position, mb in enumerate(micro)
            ]
        return Candidate(tuple(micro), tuple(estimates))
