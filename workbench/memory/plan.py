"""`plan_micro_batches`: into how many micro-batches a batch is cut so that each fits, without a trial run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from workbench.core.errors import check_at_least, check_bytes, check_choice, check_seed
from workbench.core.minibatch import MiniBatch
from workbench.core.stopwatch import Stopwatch
from workbench.core.units import format_bytes
from workbench.memory.estimate import Estimator, Optimizer, estimator_for
from workbench.memory.kernels import Kernels
from workbench.memory.planning.cut import Cut, Cutter
from workbench.memory.planning.partitioner import Partitioner
from workbench.memory.planning.room import Room
from workbench.memory.planning.strategy import STRATEGIES, Limit, fitting_cut
from workbench.memory.record import MemoryEstimate
from workbench.partition.batch import PARTITION_CHOICES, partition_batch
from workbench.partition.batch.options import check_method
from workbench.partition.redundancy import Redundancy, redundancy

STAGES: tuple[str, ...] = ("estimate", "partition", "split")


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """How a batch is cut so that every micro-batch's training step fits.

    Args:
        assignment: int64 [num_seeds], label of every seed in [0, num_parts); `mb.split` of it gives `micro`.
        micro: the micro-batches.
        estimates: what each needs; all but the first find gradients of those before them.
        method: that partitioned, never "auto"; of a batch that is not cut, that was asked for.
        strategy: "even" or "split".
        capacity_bytes: that each must fit into.
        redundancy: input nodes of the micro-batches against the batch's.
        seconds: of planning, by stage: "estimate", "partition", "split".
        tried: numbers of parts and what the largest part needed, in the order tried.
        asked: the method that was asked for; None: `method`.
    """

    assignment: Tensor
    micro: tuple[MiniBatch, ...]
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
        """For people: "reg", or "auto (reg)" where "auto" was asked for."""
        return self.method if self.asked in (None, self.method) else f"{self.asked} ({self.method})"

    @property
    def peak_bytes(self) -> int:
        """What the most demanding part needs; 0 without parts."""
        return max((estimate.peak_bytes for estimate in self.estimates), default=0)

    def __repr__(self) -> str:
        sizes = f"{format_bytes(self.peak_bytes)} of {format_bytes(self.capacity_bytes)}"
        return f"Plan({self.num_parts} parts by {self.method_name}, {sizes}, redundancy {self.redundancy.ratio:.2f})"


def plan_micro_batches(
    model: nn.Module,
    mb: MiniBatch,
    *,
    capacity_bytes: int,
    method: str = "auto",
    optimizer: Optimizer = "adam",
    seed: int = 0,
    margin: float = 0.02,
    kernels: Kernels | None = None,
    recover: bool = False,
    in_dim: int | None = None,
    loss_fn: Callable[..., Tensor] = cross_entropy,
    node_parts: Tensor | None = None,
    strategy: str = "even",
    max_parts: int | None = None,
) -> Plan:
    """Cut a batch into as few micro-batches as it takes for each one's training step to fit.

    Partitions are made, split and estimated for five to seven numbers of parts on average, 21 at most in 500 batches
    (`smallest_fitting`); the model is not run.

    Args:
        model: see `workbench.estimate_memory`, as `optimizer`, `kernels`, `recover`, `in_dim` and `loss_fn`.
        mb: the batch.
        capacity_bytes: memory that everything of the step must fit into.
        method: see `workbench.partition_batch`, as `seed` and `node_parts`; "auto" is settled once, for all partitions.
        margin: share by which an estimate may be too low: what needs at most capacity / (1 + margin) fits. Of a traced
            module what a step adds, over 1 - its error, must fit as well.
        strategy: "even" partitions the batch anew for every number of parts. "split" partitions it once, into fewer
            parts, and then only parts that do not fit, each by the same method; where that takes too many, "even".
        max_parts: the most there may be; None: one a seed.

    Raises:
        CapacityError: one output node alone does not fit, or parameters, optimizer state and the optimizer's step do
            not; or `max_parts`, or the clusters of `node_parts`, are too few. The message gives a capacity that does.
        ValueError: bad options, a traced module whose estimates were off by more than 25 %, or what
            `workbench.partition_batch` and `workbench.estimate_memory` refuse.
        TypeError: `node_parts` are no integers, or what these refuse so.

    Source: Betty (ASPLOS 2023), section 4.4.3, which adds one part at a time.
    """
    check_options(capacity_bytes, method, margin, node_parts, strategy, max_parts)
    check_seed(seed)
    watch = Stopwatch()
    with watch.phase("estimate"):
        estimator = estimator_for(
            model, mb, optimizer=optimizer, kernels=kernels, recover=recover, in_dim=in_dim, loss_fn=loss_fn
        )
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
    capacity_bytes: int,
    method: str = "auto",
    seed: int = 0,
    margin: float = 0.02,
    node_parts: Tensor | None = None,
    strategy: str = "even",
    max_parts: int | None = None,
    watch: Stopwatch | None = None,
) -> Plan:
    """`plan_micro_batches` with an estimator that is there already, for several plans of one model.

    Args:
        estimator: see `workbench.memory.estimate.estimator_for`.
        mb: the batch; for the rest see `plan_micro_batches`.
        watch: its seconds count as the plan's.

    Raises:
        CapacityError: see `plan_micro_batches`.
        ValueError: likewise.
        TypeError: likewise.
    """
    check_options(capacity_bytes, method, margin, node_parts, strategy, max_parts)
    check_seed(seed)
    partition = Partitioner(mb, method, seed, node_parts)
    cutter = Cutter(estimator, partition, watch or Stopwatch())
    cut, tried = Cut((), ()), ()
    if mb.num_seeds:
        limit = _limit(mb, node_parts, max_parts)
        cut, tried = fitting_cut(cutter, mb, Room(capacity_bytes, margin), strategy, limit)
    return Plan(
        assignment=_assignment(cut, mb),
        micro=cut.micro,
        estimates=cut.estimates,
        method=partition.resolved if len(cut.micro) > 1 else method,
        strategy=strategy,
        capacity_bytes=capacity_bytes,
        redundancy=redundancy(cut.micro, mb),
        seconds={stage: cutter.watch.seconds.get(stage, 0.0) for stage in STAGES},
        tried=tried,
        asked=method,
    )


def _limit(mb: MiniBatch, node_parts: Tensor | None, max_parts: int | None) -> Limit:
    limits = [Limit(mb.num_seeds)]
    if node_parts is not None:
        clusters = len(partition_batch(mb, mb.num_seeds, method="cluster", node_parts=node_parts).unique())
        what = f"the largest of {clusters} parts, one for each cluster of node_parts that has seeds, needs"
        limits.append(Limit(clusters, what, "pass node_parts with more clusters, or use another method"))
    if max_parts is not None:
        limits.append(Limit(max_parts, f"with max_parts={max_parts} the largest part needs", "allow more parts"))
    return min(limits, key=lambda limit: limit.number)


def check_options(
    capacity_bytes: int,
    method: str,
    margin: float,
    node_parts: Tensor | None,
    strategy: str,
    max_parts: int | None,
) -> None:
    """Refuse options of `plan_micro_batches` before any work.

    Raises:
        ValueError: with what would do.
        TypeError: `node_parts` are no integers.
    """
    check_bytes("capacity_bytes", capacity_bytes)
    check_choice("method", method, PARTITION_CHOICES)
    check_method(method, node_parts)
    check_choice("strategy", strategy, STRATEGIES)
    if not isinstance(margin, Real) or not 0 <= margin <= 1:
        raise ValueError(f"margin is {margin!r}; it must be a share between 0 and 1, such as 0.02 for 2 %")
    if max_parts is not None:
        check_at_least("max_parts", max_parts, 1)


def _assignment(cut: Cut, mb: MiniBatch) -> Tensor:
    assignment = torch.zeros(mb.num_seeds, dtype=torch.int64, device=mb.device)
    for label, micro in enumerate(cut.micro):
        if micro.parent is not None and len(cut.micro) > 1:
            assignment[micro.parent[: micro.num_seeds]] = label
    return assignment
