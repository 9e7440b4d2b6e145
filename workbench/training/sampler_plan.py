"""`plan_sampler`: one number of micro-batches for all batches of a sampler, planned on a few of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

from torch import Tensor, nn

from workbench.core.errors import CapacityError, check_at_least
from workbench.core.minibatch import MiniBatch
from workbench.core.units import format_bytes
from workbench.memory.estimate import MemoryEstimate
from workbench.memory.estimator import Estimator, estimator_for
from workbench.memory.plan import check_options, plan_with
from workbench.memory.search import Budget, smallest_fitting
from workbench.memory.traced.dry_run import work
from workbench.memory.training_setup import TrainingSetup
from workbench.partition.batch.partitioner import Partitioner, PreparedPartition
from workbench.training.adapters import BatchFormat, MicroBatches

_CONFIDENCE = 0.95
_MORE_WORK = 1.1


@dataclass(frozen=True, eq=False, repr=False)
class SamplerPlan:
    """A number of micro-batches for every batch of a sampler, and how many batches it is too small for.

    Args:
        num_parts: number of micro-batches.
        part_peak_bytes: estimated peak of the largest micro-batch of each batch that was planned on.
        num_recovering: how many of these batches do not fit: their training steps need OOM recovery.
        memory_bytes: device memory that each micro-batch's step must fit into.
        partitioner: the partition method with its options.
        estimator: the estimator of the model's steps, fitted once.
        num_tried: how many numbers of parts were tried.
        error: that the estimator of a traced module states; 0 for layers whose memory is computed exactly.
    """

    num_parts: int
    part_peak_bytes: tuple[int, ...]
    num_recovering: int
    memory_bytes: int
    partitioner: Partitioner
    estimator: Estimator
    num_tried: int = 1
    error: float = 0.0

    @property
    def num_batches(self) -> int:
        """Number of batches that were planned on."""
        return len(self.part_peak_bytes)

    @property
    def share_recovering(self) -> float:
        """Share of the batches planned on that do not fit."""
        return self.num_recovering / self.num_batches

    @cached_property
    def share_upper_bound(self) -> float:
        """Upper 95 % confidence bound of the share of the sampler's batches that do not fit (Clopper and Pearson).

        It assumes that the batches planned on are drawn like all others, and that estimates are right. Because the same
        batches also chose the number of parts, the bound holds for all numbers that were tried at once (Bonferroni).
        """
        return _upper_bound(self.num_recovering, self.num_batches, (1 - _CONFIDENCE) / self.num_tried)

    def micro_batches(self, batch: Any) -> MicroBatches:
        """Split a batch into the plan's number of micro-batches, in its own format; no estimate is made.

        Args:
            batch: a `MiniBatch`, DGL blocks or a PyG batch, as for `workbench.micro_batches`.

        Raises:
            ValueError: The batch has exchanges or is not self-contained.
            TypeError: It is of another type.
        """
        whole = BatchFormat.of(batch)
        num_parts = min(self.num_parts, max(1, whole.mb.num_seeds))
        return MicroBatches.of(whole, self.partitioner.prepare(whole.mb).cut(num_parts).assignment)

    @property
    def choice(self) -> Mapping[str, Any]:
        return {"num_parts": self.num_parts, "method": self.partitioner.method}

    @property
    def predicted(self) -> Mapping[str, float]:
        """The largest peak of the batches planned on, and the share of all batches that may need recovery, at most."""
        return {"peak_bytes": max(self.part_peak_bytes), "share_recovering": self.share_upper_bound}

    def code(self) -> str:
        """Lines that train on the batches of `loader` with this plan, `plan`."""
        return (
            "for _, mb in loader:\n"
            "    micro = plan.micro_batches(mb)\n"
            "    wb.train_step(model, micro, x, y, loss_fn, optimizer, recover=wb.Recovery())\n"
        )

    def __repr__(self) -> str:
        largest = format_bytes(max(self.part_peak_bytes))
        return (
            f"SamplerPlan({self.num_parts} parts by {self.partitioner.method}, up to {largest} of "
            f"{format_bytes(self.memory_bytes)}; {self.num_recovering} of {self.num_batches} batches need recovery, "
            f"at most {self.share_upper_bound:.1%} of all)"
        )


def plan_sampler(
    model: nn.Module | TrainingSetup,
    batches: Iterable[Any],
    *,
    memory: int | str,
    num_batches: int = 32,
    share: float = 0.01,
    margin: float = 0.02,
    method: str | None = None,
    seed: int = 0,
    node_parts: Tensor | None = None,
) -> SamplerPlan:
    """Choose one number of micro-batches for all batches of a sampler, so that few of them need OOM recovery.

    The smallest number is chosen for which at most `share` of the first `num_batches` batches do not fit. The estimator
    is built once, on the largest of them: a traced module is traced once, not per batch. `plan.micro_batches(batch)`
    then only partitions and splits; `train_step(…, recover=workbench.Recovery())` splits the micro-batches that do not
    fit. The cheapest good partition is that of the graph: `node_parts=workbench.partition_graph(graph, 64)`.

    Args:
        model: the module as `workbench.train_step` calls it; or a `TrainingSetup`, with its loss, optimizer, backend,
            `recover` and `in_dim`.
        batches: an iterable of batches: `MiniBatch`es, DGL blocks or PyG batches, or what `workbench.batches` and DGL's
            DataLoader yield. Only the first `num_batches` are read, and kept while planning.
        memory: device memory that a step must fit into, in bytes or as text such as "8GiB".
        num_batches: number of batches to plan on; the more, the closer the bound of the share: 0 of 32 that do not fit
            mean at most 9 % of all with 95 % confidence, 0 of 299 at most 1 %.
        share: share of the batches planned on that may need recovery, in [0, 1).
        margin: fraction by which an estimate may be too low, as for `workbench.plan_micro_batches`.
        method: a name of `workbench.partition.PARTITION_METHODS`, or "auto" or "fast"; None: the fastest of "cluster"
            (with `node_parts`), "fast" and "auto" whose micro-batches have at most 10 % more nodes and edges than the
            best's.
        seed: seed of the random choices of the method.
        node_parts: integer [num_graph_nodes], a partition of the whole graph, for method "cluster".

    Raises:
        CapacityError: A batch fits with no number of parts (with `share`, as many batches as it excludes may not fit).
        ValueError: There are no batches, an option is invalid, a traced module's estimates are off by more than 25 %,
            or `workbench.estimate_memory` refuses the model.
        TypeError: An argument is of another type.
    """
    setup = model if isinstance(model, TrainingSetup) else TrainingSetup(model)
    checked = method or ("auto" if node_parts is None else "cluster")
    memory_bytes = check_options(memory, checked, margin, node_parts, "even", None)
    check_at_least("num_batches", num_batches, 1)
    if not 0 <= share < 1:
        raise ValueError(f"share is {share!r}; it must be a fraction from 0 to less than 1, such as 0.01 for 1 %")
    structures: list[MiniBatch] = []
    largest: MiniBatch | None = None  # the model is run on this one alone, so that no other keeps its data
    for mb in filter(lambda mb: mb.num_seeds, map(structure_of, islice(batches, num_batches))):
        structures.append(replace(mb, carried=None))
        largest = mb if largest is None or work(mb) > work(largest) else largest
    if largest is None:
        raise ValueError("batches is empty; pass the batches to plan on, such as workbench.batches(graph, ids, …)")
    estimator = estimator_for(setup, largest)
    wholes = tuple(estimator(mb) for mb in structures)
    budget = Budget(memory_bytes, margin, max(whole.error or 0.0 for whole in wholes))
    names = [method] if method else ["cluster"] * (node_parts is not None) + ["fast", "auto"]
    plans = []
    for name in names:
        partitioner = Partitioner(name, seed=seed, node_parts=node_parts if name == "cluster" else None)
        plans.append(_Planner(estimator, tuple(structures), wholes, budget, partitioner).plan(int(share * len(wholes))))
    return next(plan for work_of_all, plan in plans if work_of_all <= _MORE_WORK * min(least for least, _ in plans))


def _upper_bound(events: int, trials: int, risk: float) -> float:
    """The probability at which so few events, or fewer, occur with a probability of `risk`.

    >>> round(_upper_bound(0, 299, 0.05), 4)
    0.01
    """
    from scipy.stats import beta  # slow to import

    return 1.0 if events == trials else float(beta.ppf(1 - risk, events + 1, trials - events))


def structure_of(batch: Any) -> MiniBatch:
    """Return the structure of a batch, which may be the last element of what a loader yields."""
    if isinstance(batch, tuple | list) and batch and not hasattr(batch[-1], "srcdata"):
        batch = batch[-1]  # (step, batch) of this library, (input nodes, output nodes, blocks) of DGL
    return BatchFormat.of(batch).read()


@dataclass(frozen=True, eq=False)
class _Planner:
    """Evaluates numbers of parts of one partition method on several batches.

    Args:
        estimator: the estimator of the model's steps.
        batches: the batches.
        wholes: the estimate of each batch, not split.
        budget: the budget of each part.
        partitioner: the partition method.
    """

    estimator: Estimator
    batches: tuple[MiniBatch, ...]
    wholes: tuple[MemoryEstimate, ...]
    budget: Budget
    partitioner: Partitioner

    @cached_property
    def _prepared(self) -> list[PreparedPartition]:
        return [self.partitioner.prepare(mb) for mb in self.batches]

    def plan(self, num_excluded: int) -> tuple[int, SamplerPlan]:
        """Choose the smallest number of parts with which all batches fit but the neediest ones.

        Returns:
            Nodes and edges of all micro-batches, and the plan.

        Raises:
            CapacityError: Another batch fits with no number of parts.
        """
        self._check_feasible(num_excluded)
        tried: dict[int, list[tuple[MemoryEstimate, int]]] = {}

        def utilization(num_parts: int) -> float:
            tried[num_parts] = [self._largest(position, num_parts) for position in range(len(self.batches))]
            return sorted(self.budget.utilization(largest) for largest, _ in tried[num_parts])[-1 - num_excluded]

        num_parts = smallest_fitting(utilization, max(mb.num_seeds for mb in self.batches))
        if num_parts is None:
            raise CapacityError(
                f"no number of parts by {self.partitioner.method} makes {len(self.batches) - num_excluded} of "
                f"{len(self.batches)} batches fit into {format_bytes(self.budget.memory_bytes)}; use smaller "
                "fanouts, another method, or a larger share"
            )
        largest = [estimate for estimate, _ in tried[num_parts]]
        return sum(work_of_parts for _, work_of_parts in tried[num_parts]), SamplerPlan(
            num_parts=num_parts,
            part_peak_bytes=tuple(estimate.peak_bytes for estimate in largest),
            num_recovering=sum(not self.budget.fits(estimate) for estimate in largest),
            memory_bytes=self.budget.memory_bytes,
            partitioner=self.partitioner,
            estimator=self.estimator,
            num_tried=len(tried),
            error=self.budget.error,
        )

    def _check_feasible(self, num_excluded: int) -> None:
        """Plan the neediest batch that must fit alone, which raises an error that states a sufficient capacity."""
        order = sorted(range(len(self.batches)), key=lambda position: self.wholes[position].peak_bytes)
        options = {"method": self.partitioner.method, "seed": self.partitioner.seed}
        options |= {"node_parts": self.partitioner.node_parts, "margin": self.budget.margin}
        mb = self.batches[order[-1 - num_excluded]]
        plan_with(self.estimator, mb, memory=self.budget.memory_bytes, **options)

    def _largest(self, position: int, num_parts: int) -> tuple[MemoryEstimate, int]:
        """The estimate of a batch's largest part, and nodes and edges of all of its parts."""
        mb = self.batches[position]
        num_parts = min(num_parts, mb.num_seeds)
        if num_parts == 1:
            return self.wholes[position], work(mb)
        micro = mb.split(self._prepared[position].cut(num_parts).assignment)
        estimates = [self.estimator(part, accumulating=count > 0) for count, part in enumerate(micro)]
        return max(estimates, key=lambda estimate: estimate.peak_bytes), sum(work(part) for part in micro)
