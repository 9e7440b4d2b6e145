"""`plan_micro_batches`: split a batch into as few micro-batches as fit the memory, without a trial run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from workbench.core.errors import check_seed
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.core.units import format_bytes
from workbench.memory.estimate import MemoryEstimate
from workbench.memory.estimator import Estimator, estimator_for
from workbench.memory.planning.lower_bound import Budget
from workbench.memory.planning.search import Candidate, CandidateBuilder
from workbench.memory.planning.strategy import PartLimit, check_options, find_fitting
from workbench.memory.training_setup import Backend, Optimizer, Recovery, TrainingSetup
from workbench.meter.stopwatch import Stopwatch
from workbench.partition.batch import partition_batch
from workbench.partition.batch.partitioner import Partitioner
from workbench.partition.redundancy import Redundancy, redundancy

STAGES: tuple[str, ...] = ("estimate", "partition", "split")


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """A partition of a batch into micro-batches whose training steps each fit the capacity.

    Args:
        assignment: int64 [num_seeds], part of every seed in [0, num_parts); `mb.split(assignment)` returns `micro`.
        micro: the micro-batches; those of `workbench.micro_batches` are in the format of its batch.
        estimates: memory estimate of each; all but the first include gradients of earlier micro-batches.
        method: the partition method that made the parts, never "auto" ("a + b" if parts of one method were split by
            another because memory was short); for an unpartitioned batch the method requested.
        strategy: "even" or "split".
        capacity_bytes: the capacity that each micro-batch's step must fit into.
        redundancy: input nodes of the micro-batches relative to the batch's.
        seconds: planning time by stage: "estimate", "partition", "split".
        tried: (number of parts, peak bytes of the largest part), in the order first tried; of numbers that were not
            chosen, only the three parts with the most bytes are estimated.
        asked: the partition method requested, which may be "auto"; None for `method`.
    """

    assignment: Tensor
    micro: Sequence[Any]
    estimates: tuple[MemoryEstimate, ...]
    method: str
    strategy: str
    capacity_bytes: int
    redundancy: Redundancy
    seconds: Mapping[str, float]
    tried: tuple[tuple[int, int], ...]
    asked: str | None = None

    @property
    def num_parts(self) -> int:
        return len(self.micro)

    @property
    def method_name(self) -> str:
        """The method for display: "reg", or "auto (reg)" if "auto" was requested."""
        return self.method if self.asked in (None, self.method) else f"{self.asked} ({self.method})"

    @property
    def peak_bytes(self) -> int:
        """Estimated peak of the largest micro-batch; 0 for an empty batch."""
        return max((estimate.peak_bytes for estimate in self.estimates), default=0)

    def __repr__(self) -> str:
        sizes = f"{format_bytes(self.peak_bytes)} of {format_bytes(self.capacity_bytes)}"
        return f"Plan({self.num_parts} parts by {self.method_name}, {sizes}, redundancy {self.redundancy.ratio:.2f})"


def plan_micro_batches(
    model: nn.Module,
    mb: MiniBatch,
    *,
    capacity_bytes: int | str,
    method: str = "auto",
    optimizer: Optimizer = "adam",
    seed: int = 0,
    margin: float = 0.02,
    backend: Backend | str | None = None,
    recover: bool = False,
    in_dim: int | None = None,
    loss_fn: Callable[..., Tensor] = cross_entropy,
    node_parts: Tensor | None = None,
    strategy: str = "even",
    max_parts: int | None = None,
) -> Plan:
    """Split a batch into as few micro-batches as possible such that each one's training step fits the capacity.

    Partitions balance the model's bytes (`workbench.memory.byte_costs`). They are computed and estimated for two or
    three numbers of parts on average, five to seven with methods that don't refine
    (`workbench.memory.planning.search`); the model is not run.

    Args:
        model: the module as `workbench.train_step` calls it, in its current mode (train or eval).
        mb: the batch; all of its seeds have labels.
        capacity_bytes: device memory that the whole step must fit into, in bytes or as text such as "8GiB".
        method: a name of `workbench.partition.PARTITION_METHODS`, or "auto" or "fast", which resolve once, for all
            partitions.
        optimizer: "adam", "adamw" or "sgd" with torch's defaults, or an optimizer of the model's parameters.
        seed: seed of the random choices of the partition method.
        margin: fraction by which an estimate may be too low: a step fits if its estimate is at most
            capacity / (1 + margin). For a traced module, the fixed bytes plus the added bytes / (1 − error) must fit
            as well.
        backend: the kernels to model: a `Backend`, or the device name "cpu" or "cuda"; None for those of the model's
            device.
        recover: plan for `train_step(recover=…)`, which computes a micro-batch's gradients separately.
        in_dim: channels of the features, as for `workbench.estimate_memory`.
        loss_fn: the loss function, as for `workbench.estimate_memory`.
        node_parts: integer [num_graph_nodes], a partition of the whole graph, for method "cluster"; None for others.
        strategy: "even" repartitions the whole batch for every number of parts. "split" partitions it once, into fewer
            parts, and then only the parts that do not fit, each by the same method; "even" is the fallback if that
            needs too many parts.
        max_parts: maximum number of micro-batches; None for one per seed.

    Raises:
        CapacityError: One seed alone does not fit, or parameters, optimizer state and the optimizer step do not; or
            `max_parts` or the number of clusters of `node_parts` is too small. The message states a sufficient
            capacity.
        ValueError: An option is invalid, the estimates of a traced module are off by more than 25 %, or
            `workbench.partition_batch` or `workbench.estimate_memory` refuses its arguments.
        TypeError: `node_parts` is not an integer tensor, or an argument is of another type.

    Source: Betty (ASPLOS 2023), section 4.4.3, which increases the number of parts one at a time.
    """
    capacity_bytes = check_options(capacity_bytes, method, margin, node_parts, strategy, max_parts)
    check_seed(seed)
    watch = Stopwatch()
    with watch.phase("estimate"):
        recovery = Recovery() if recover else None
        setup = TrainingSetup(model, loss_fn, optimizer, recover=recovery, backend=backend, in_dim=in_dim)
        estimator = estimator_for(setup, mb)
    return plan_with(
        estimator,
        mb,
        capacity_bytes=capacity_bytes,
        method=method,
        seed=seed,
        margin=margin,
        node_parts=node_parts,
        strategy=strategy,
        max_parts=max_parts,
        watch=watch,
    )


def plan_with(
    estimator: Estimator,
    mb: MiniBatch,
    *,
    capacity_bytes: int | str,
    method: str = "auto",
    seed: int = 0,
    margin: float = 0.02,
    node_parts: Tensor | None = None,
    strategy: str = "even",
    max_parts: int | None = None,
    watch: Stopwatch | None = None,
) -> Plan:
    """Plan micro-batches with an existing estimator (`estimator_for`), to make several plans for one model.

    The other arguments and the errors are those of `plan_micro_batches`; seconds of `watch` count as planning time.
    """
    capacity_bytes = check_options(capacity_bytes, method, margin, node_parts, strategy, max_parts)
    check_seed(seed)
    refuse_halo(mb.exchanges, "planned")
    partitioner = Partitioner(method, seed=seed, node_parts=node_parts)
    builder = CandidateBuilder(estimator, partitioner, mb, watch or Stopwatch())
    candidate, tried = Candidate((), ()), ()
    if mb.num_seeds:
        limit = _part_limit(mb, node_parts, max_parts)
        candidate, tried = find_fitting(builder, Budget(capacity_bytes, margin), strategy, limit)
    return Plan(
        assignment=_assignment(candidate, mb),
        micro=candidate.micro,
        estimates=candidate.estimates,
        method=" + ".join(candidate.methods) or method,
        strategy=strategy,
        capacity_bytes=capacity_bytes,
        redundancy=redundancy(candidate.micro, mb),
        seconds={stage: builder.watch.seconds.get(stage, 0.0) for stage in STAGES},
        tried=tried,
        asked=method,
    )


def _part_limit(mb: MiniBatch, node_parts: Tensor | None, max_parts: int | None) -> PartLimit:
    limits = [PartLimit(mb.num_seeds)]
    if node_parts is not None:
        clusters = len(partition_batch(mb, mb.num_seeds, method="cluster", node_parts=node_parts).unique())
        subject = f"the largest of {clusters} parts, one for each cluster of node_parts that contains seeds, needs"
        limits.append(PartLimit(clusters, subject, "pass node_parts with more clusters, or use another method"))
    if max_parts is not None:
        limits.append(PartLimit(max_parts, f"with max_parts={max_parts} the largest part needs", "raise max_parts"))
    return min(limits, key=lambda limit: limit.max_parts)


def _assignment(candidate: Candidate, mb: MiniBatch) -> Tensor:
    assignment = torch.zeros(mb.num_seeds, dtype=torch.int64, device=mb.device)
    for label, micro in enumerate(candidate.micro):
        if micro.parent is not None and len(candidate.micro) > 1:
            assignment[micro.parent[: micro.num_seeds]] = label
    return assignment
