"""`Partitioner`: partitions a batch in two stages, so that it is prepared once and cut for many numbers of parts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

import torch
from torch import Tensor

from workbench.core.errors import (
    ID_DTYPES,
    CapacityError,
    check_at_least,
    check_choice,
    check_ids,
    check_type,
    check_vector,
)
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.partition.balance import check_weights
from workbench.partition.batch.baselines import (
    prepare_cluster,
    prepare_metis,
    prepare_random,
    prepare_range,
    prepare_star,
)
from workbench.partition.batch.hypergraph import prepare_hypergraph, prepare_hypergraph_deep
from workbench.partition.batch.prepared_batch import (
    POLICIES,
    Cut,
    PartitionOptions,
    Prepare,
    PreparedBatch,
    check_method,
)
from workbench.partition.batch.reg import prepare_reg, prepare_reg_normalized, prepare_reg_unweighted
from workbench.partition.refine import count_bytes, refine


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
    >>> prepared = wb.partition.Partitioner("range").prepare(mb)
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
        """Partition the batch into 1 to as many parts as seeds.

        Raises:
            ValueError: an impossible number of parts.
            IndexError: a seed that `node_parts` does not cover.
            CapacityError: reg, hypergraph or a refinement would need more than `max_bytes` (checked before allocating).
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
        """Sum the costs of the nodes and edges of every part, float64 [largest label + 1], without a split."""
        return count_bytes(self.batch.contracted_graph, assignment.cpu())

    @cached_property
    def _cut(self) -> Cut:
        return PARTITION_METHODS[self.method](self.batch)

    @cached_property
    def _cut_by_fallback(self) -> Cut:
        assert self.fallback is not None
        return PARTITION_METHODS[self.fallback](self.batch)


def refined(prepare: Prepare) -> Prepare:
    """Return a partitioner that refines the parts of another, which leaves none empty."""

    def prepare_refined(batch: PreparedBatch) -> Cut:
        initial, given = prepare(batch), batch.options
        options = {"objective": given.objective, "weights": given.weights, "max_bytes": given.max_bytes}

        def cut(num_parts: int) -> Tensor:
            part = initial(num_parts)
            if not batch.mb.blocks:
                return part
            return refine(batch.contracted_graph, part, num_parts, anneal=given.costs is not None, **options)

        return cut

    return prepare_refined


_METHODS: dict[str, Prepare] = {
    "range": prepare_range,
    "random": prepare_random,
    "metis": prepare_metis,
    "reg": prepare_reg,
    "reg_unweighted": prepare_reg_unweighted,
    "reg_normalized": prepare_reg_normalized,
    "star": prepare_star,
    "star_refined": refined(prepare_star),
    "hypergraph": prepare_hypergraph,
    "hypergraph_deep": prepare_hypergraph_deep,
    "hypergraph_refined": refined(prepare_hypergraph),
    "cluster": prepare_cluster,
}

_BUILT_IN = (*POLICIES, *_METHODS)

PARTITION_METHODS: Mapping[str, Prepare] = MappingProxyType(_METHODS)
"""The methods by name; `register_partitioner` adds to them."""

Assign = Callable[[MiniBatch, int], Tensor]
"""A partitioner of one's own: a batch and the number of parts to the part of every seed, integer [num_seeds]."""


def partition_choices() -> tuple[str, ...]:
    """Return what `Partitioner` accepts: `PARTITION_METHODS`, and the policies that choose one of them."""
    return (*POLICIES, *PARTITION_METHODS)


def register_partitioner(name: str) -> Callable[[Assign], Assign]:
    """Give a function a name that every `method=` accepts: of partitions, plans, recovery and training.

    The function gets a batch, on its own device, and a number of parts, 2 to the number of seeds, and returns the part
    of every seed, integer [num_seeds]. Its result is checked every time. Seeds, weights, objectives and budgets are not
    passed to it. The name is known in this process, until it ends; registering it again replaces the function.

    Args:
        name: of the method; not one of the workbench's own.

    Returns:
        A decorator that registers a function and returns it unchanged.

    Raises:
        ValueError: the name is empty, or one of the workbench's own.
        TypeError: the name is not text.
    """
    check_type("name", name, str, 'write it above the function: @wb.partition.register_partitioner("my method")')
    if not name or name in _BUILT_IN:
        raise ValueError(f"the name of a partitioner is {name!r}; choose one that is not in {', '.join(_BUILT_IN)}")

    def register(assign: Assign) -> Assign:
        _METHODS[name] = lambda batch: lambda num_parts: _checked(name, assign(batch.mb, num_parts), batch, num_parts)
        return assign

    return register


def _checked(name: str, part: Tensor, batch: PreparedBatch, num_parts: int) -> Tensor:
    check_vector(f"the result of {name!r}", part, batch.mb.num_seeds, ID_DTYPES)
    return check_ids(f"the result of {name!r}", part, num_parts).cpu()


# Wall seconds per edge on two cores, rounded up from the slowest of 32 cases on four real graphs with 4 to 32 parts
# (experiments/betty/partitioners) and of one with 196,615 seeds.
STAR_SECONDS_PER_EDGE = 1.5e-6  # of the output block

REFINE_SECONDS_PER_EDGE = 1e-6  # of all blocks

HYPERGRAPH_SECONDS_PER_EDGE = 2.5e-5  # of the output block


def resolve_method(
    mb: MiniBatch,
    *,
    method: str = "auto",
    node_parts: Tensor | None = None,
    objective: str = "largest",
    time_budget_seconds: float | None = None,
) -> str:
    """Resolve "auto" and "fast" to a method of `PARTITION_METHODS`; return any other method unchanged.

    "cluster" if `node_parts` are given. Otherwise "fast" is "star", and "auto" is "star_refined", or within a budget
    the first of "hypergraph_refined" (for "total" only), "star_refined" and "star" that is expected to keep it, or
    "range" if none is.
    """
    if method not in POLICIES:
        return method
    if node_parts is not None:
        return "cluster"
    if method == "fast":
        return "star"
    if time_budget_seconds is None:
        return "star_refined"
    expected = expected_seconds(mb)
    if objective == "largest":
        expected.pop("hypergraph_refined")
    return next((name for name, seconds in expected.items() if seconds <= time_budget_seconds), "range")


def expected_seconds(mb: MiniBatch) -> dict[str, float]:
    """Estimate methods' wall seconds from the batch's edges, as a rough upper bound, the slowest method first."""
    edges = [block.num_edges for block in mb.blocks] or [0]
    star, refine = edges[-1] * STAR_SECONDS_PER_EDGE, sum(edges) * REFINE_SECONDS_PER_EDGE
    return {
        "hypergraph_refined": edges[-1] * HYPERGRAPH_SECONDS_PER_EDGE + refine,
        "star_refined": star + refine,
        "star": star,
    }
