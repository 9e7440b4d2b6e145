"""A candidate partition of a batch: its micro-batches and the memory estimate of each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import Tensor

from workbench.core.minibatch import MiniBatch
from workbench.memory.byte_costs import marginal_costs
from workbench.memory.estimate import MemoryEstimate
from workbench.memory.estimator import Estimator
from workbench.meter.stopwatch import Stopwatch
from workbench.partition.batch.partitioner import Partitioner, Parts, PreparedPartition

_NUM_LARGEST = 3  # parts that are estimated while the number of parts is searched


@dataclass(frozen=True, eq=False)
class Candidate:
    """Micro-batches of a batch with their memory estimates.

    Args:
        micro: the micro-batches, in training order.
        estimates: the estimate of each.
        methods: the partition methods that made them, in order of first use; none for an unpartitioned batch.
        complete: whether these are all micro-batches of the partition, not only those with the most bytes.
    """

    micro: tuple[MiniBatch, ...]
    estimates: tuple[MemoryEstimate, ...]
    methods: tuple[str, ...] = ()
    complete: bool = True

    @property
    def largest(self) -> int:
        """Index of the micro-batch with the highest peak; the first of several."""
        return max(range(len(self.estimates)), key=lambda position: self.estimates[position].peak_bytes)

    @property
    def peak_bytes(self) -> int:
        return self.estimates[self.largest].peak_bytes


@dataclass(frozen=True, eq=False)
class CandidateBuilder:
    """Partitions, splits and estimates a batch and its parts, and times each of the three.

    Args:
        estimator: memory estimator of one model.
        partitioner: partitions the batch and its parts.
        mb: the batch, prepared once for all numbers of parts.
        watch: accumulates seconds in the phases "partition", "split" and "estimate".
    """

    estimator: Estimator
    partitioner: Partitioner
    mb: MiniBatch
    watch: Stopwatch = field(default_factory=Stopwatch)
    _parts: dict[int, Parts] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def _prepared(self) -> PreparedPartition:
        return self._costed.prepare(self.mb)

    @cached_property
    def _costed(self) -> Partitioner:
        """The partitioner with the model's bytes per node and edge."""
        with self.watch.phase("estimate"):
            return replace(self.partitioner, costs=marginal_costs(self.estimator, self.mb))

    @property
    def method(self) -> str:
        """The method that partitions the batch, unless memory is short."""
        return self._prepared.method

    def unpartitioned(self) -> Candidate:
        """The whole batch as a single micro-batch."""
        return Candidate((self.mb,), self._estimates([self.mb], [0]))

    def partitioned(self, num_parts: int) -> Candidate:
        """Partition the batch.

        Args:
            num_parts: number of parts.
        """
        return self._split(self.mb, self._cut_whole(num_parts))

    def repartitioned(self, micro: MiniBatch, num_parts: int, *, first: bool) -> Candidate:
        """Partition a micro-batch.

        Args:
            micro: the micro-batch.
            num_parts: number of parts.
            first: it is trained on before any other micro-batch, so its first part finds no gradients.
        """
        return self._split(micro, self._cut(self._costed.prepare(micro), num_parts), first=first)

    def largest_parts(self, num_parts: int) -> Candidate:
        """Partition the batch, but split and estimate only the parts with the most bytes.

        Args:
            num_parts: number of parts.

        Returns:
            A candidate of up to three parts, whose highest peak is about that of all.
        """
        parts = self._cut_whole(num_parts)
        with self.watch.phase("estimate"):
            labels = parts.assignment.unique(return_inverse=True)[1]  # clusters without seeds are no parts
            part_bytes = self._prepared.part_bytes(labels)
        if len(part_bytes) <= _NUM_LARGEST:
            return self.partitioned(num_parts)
        largest = part_bytes.topk(_NUM_LARGEST).indices.sort().values.tolist()
        some = self.groups([(labels == label).nonzero()[:, 0] for label in largest], after=largest)
        return replace(some, methods=(parts.method,), complete=False)

    def groups(self, seeds: Sequence[Tensor], *, after: Sequence[int]) -> Candidate:
        """One micro-batch per group of seeds.

        Args:
            seeds: int64 positions of seeds, per group.
            after: how many micro-batches are trained on before each; gradients of these exist.
        """
        with self.watch.phase("split"):
            micro = self.mb.select(seeds)
        return Candidate(tuple(micro), self._estimates(micro, after))

    def _cut_whole(self, num_parts: int) -> Parts:
        if num_parts not in self._parts:
            self._parts[num_parts] = self._cut(self._prepared, num_parts)
        return self._parts[num_parts]

    def _cut(self, prepared: PreparedPartition, num_parts: int) -> Parts:
        with self.watch.phase("partition"):
            return prepared.cut(num_parts)

    def _split(self, mb: MiniBatch, parts: Parts, *, first: bool = True) -> Candidate:
        with self.watch.phase("split"):
            micro = mb.split(parts.assignment)
        return Candidate(tuple(micro), self._estimates(micro, range(not first, len(micro) + 1)), (parts.method,))

    def _estimates(self, micro: Sequence[MiniBatch], after: Iterable[int]) -> tuple[MemoryEstimate, ...]:
        with self.watch.phase("estimate"):
            return tuple(self.estimator(mb, accumulating=count > 0) for mb, count in zip(micro, after, strict=False))
