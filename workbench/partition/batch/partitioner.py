"""`Partitioner`: partitions a batch in two stages, so that it is prepared once and cut for many numbers of parts."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from workbench.core.errors import CapacityError, check_at_least, check_choice, check_type
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.partition.balance import check_weights
from workbench.partition.batch.auto import resolve_method
from workbench.partition.batch.methods import PARTITION_METHODS, partition_choices
from workbench.partition.batch.prepared_batch import Cut, PartitionOptions, PreparedBatch, check_method
from workbench.partition.refine.pin_counts import count_bytes


@dataclass(frozen=True, eq=False)
class Parts:
    """A partition of a batch's seeds.

    Args:
        assignment: int64 [num_seeds], part of every seed in [0, num_parts), on the batch's device.
        method: the method of `PARTITION_METHODS` that made it: never "auto" or "fast".
    """

    assignment: Tensor
    method: str


@dataclass(frozen=True, eq=False)
class Partitioner(PartitionOptions):
    """A partition method with its options, for any number of batches.

    Args:
        method: a name of `PARTITION_METHODS`; "auto": star_refined, or star if memory is too short for that, or the
            best method that the time budget allows; "fast": star.
        seed: seed of every random decision.
        weights: [num_seeds] of the one batch that is prepared, non-negative weight of every seed to balance; None: the
            number of seeds, or their bytes.
        node_parts: integer [num_graph_nodes], a partition of the whole graph, for cluster.
        max_bytes: memory that the partitioner itself may allocate; None: the memory that the machine has available.
        objective: "largest" (minimize the largest part) or "total" (minimize the sum of all parts).
        time_budget_seconds: bound of the time of each cut, which "auto" chooses the method by; None: no limit.
        costs: bytes per node and edge of each layer, for star, hypergraph and the refinement; None: 512 per input node
            and 16 per edge.

    Raises:
        ValueError: an unknown method or objective, a budget that is not positive, `node_parts` missing or unused.
        TypeError: `node_parts` are not integers.

    >>> import workbench as wb
    >>> mb = wb.MiniBatch(torch.tensor([7, 5, 3, 1]), ())
    >>> prepared = wb.Partitioner("range").prepare(mb)
    >>> [prepared.cut(num_parts).assignment.tolist() for num_parts in (2, 4)]
    [[1, 1, 0, 0], [3, 2, 1, 0]]
    """

    method: str = field(default="auto", kw_only=False)

    def __post_init__(self) -> None:
        check_choice("method", self.method, partition_choices())
        super().__post_init__()
        check_method(self.method, self.node_parts)

    def prepare(self, mb: MiniBatch) -> "PreparedPartition":
        """Validate a batch; what depends on it alone is built by the first cut, and kept.

        Args:
            mb: the batch, on any device.

        Raises:
            ValueError: `weights` do not fit the batch, or it has exchanges.
            TypeError: not a batch, or weights of another dtype.
        """
        check_type("mb", mb, MiniBatch, "pass a MiniBatch; workbench.micro_batches splits batches of DGL and PyG")
        refuse_halo(mb.exchanges, "partitioned")
        options = replace(self, weights=check_weights(self.weights, mb.num_seeds))
        method = resolve_method(
            mb,
            method=self.method,
            node_parts=self.node_parts,
            objective=self.objective,
            time_budget_seconds=self.time_budget_seconds,
        )
        return PreparedPartition(PreparedBatch(mb, options), method, "star" if self.method == "auto" else None)


@dataclass(frozen=True, eq=False)
class PreparedPartition:
    """A batch prepared for partitions into any number of parts.

    Args:
        batch: the batch and the options.
        method: the method of `PARTITION_METHODS` that cuts it.
        fallback: the method, of linear memory, that cuts it where `method` has too little memory; None: an error.
    """

    batch: PreparedBatch
    method: str
    fallback: str | None = None

    def cut(self, num_parts: int) -> Parts:
        """Partition the batch.

        Args:
            num_parts: number of parts, 1 to the number of seeds.

        Returns:
            The parts and the method that made them.

        Raises:
            ValueError: an impossible number of parts.
            IndexError: a seed that `node_parts` does not cover.
            CapacityError: reg, hypergraph or a refinement would need more than `max_bytes` (checked before
                allocating).
            ImportError: metis, reg or star without pymetis, hypergraph without mtkahypar.
            PartitionError: METIS or Mt-KaHyPar failed, crashed or overran the budget.
        """
        mb = self.batch.mb
        check_at_least("num_parts", num_parts, 1)
        if num_parts > max(1, mb.num_seeds):
            raise ValueError(
                f"num_parts is {num_parts}, but the batch has {mb.num_seeds} seeds; ask for at most one part per seed"
            )
        if num_parts == 1:
            return Parts(torch.zeros(mb.num_seeds, dtype=torch.int64, device=mb.device), self.method)
        try:
            return Parts(self._cut(num_parts).to(mb.device), self.method)
        except CapacityError:
            if self.fallback is None:
                raise
        return Parts(self._cut_by_fallback(num_parts).to(mb.device), self.fallback)

    def part_bytes(self, assignment: Tensor) -> Tensor:
        """Sum the costs of the nodes and edges of every part, without splitting the batch.

        Args:
            assignment: int64 [num_seeds], in [0, num_parts).

        Returns:
            float64 [largest label + 1].
        """
        return count_bytes(self.batch.contracted_graph, assignment.cpu())

    @cached_property
    def _cut(self) -> Cut:
        return PARTITION_METHODS[self.method](self.batch)

    @cached_property
    def _cut_by_fallback(self) -> Cut:
        assert self.fallback is not None
        return PARTITION_METHODS[self.fallback](self.batch)
