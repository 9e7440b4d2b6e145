"""`plan_micro_batches`: split a batch into as few micro-batches as fit the memory, without a trial run.

Two strategies: repartition the whole batch for every number of parts, or split only the parts that overflow.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from workbench.core.errors import check_at_least, check_bytes, check_choice, check_seed
from workbench.core.exchange import refuse_halo
from workbench.core.minibatch import MiniBatch
from workbench.core.units import format_bytes
from workbench.memory.estimate import MemoryEstimate
from workbench.memory.estimator import Estimator, estimator_for
from workbench.memory.search import (
    REFINED,
    UNREFINED,
    Budget,
    Candidate,
    CandidateBuilder,
    lower_bound_exceeds,
    most_expensive_seed,
    smallest_fitting,
)
from workbench.memory.training_setup import Backend, Optimizer, Recovery, TrainingSetup
from workbench.meter.stopwatch import Stopwatch
from workbench.nn.signature import Forward
from workbench.partition.batch import partition_batch, partition_choices
from workbench.partition.batch.partitioner import Partitioner
from workbench.partition.batch.prepared_batch import check_method
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
        memory_bytes: device memory that each micro-batch's step must fit into.
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
    memory_bytes: int
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

    @property
    def choice(self) -> Mapping[str, Any]:
        return {"num_parts": self.num_parts, "method": self.method}

    @property
    def predicted(self) -> Mapping[str, float]:
        return {"peak_bytes": self.peak_bytes, "read_rows": self.redundancy.total_inputs}

    @property
    def error(self) -> float | None:
        """Error that the estimator of a traced module states; 0 for layers whose memory is computed exactly."""
        return max((estimate.error or 0.0 for estimate in self.estimates), default=0.0)

    def code(self) -> str:
        """Lines that train on the batch that was planned, `mb`, with this plan, `plan`."""
        return "loss = wb.train_step(model, mb.split(plan.assignment), x, y, loss_fn, optimizer)\n"

    def __repr__(self) -> str:
        sizes = f"{format_bytes(self.peak_bytes)} of {format_bytes(self.memory_bytes)}"
        return f"Plan({self.num_parts} parts by {self.method_name}, {sizes}, redundancy {self.redundancy.ratio:.2f})"


def plan_micro_batches(
    model: nn.Module,
    mb: MiniBatch,
    *,
    memory: int | str,
    method: str = "auto",
    optimizer: Optimizer = "adam",
    seed: int = 0,
    margin: float = 0.02,
    backend: Backend | str | None = None,
    recover: bool = False,
    in_dim: int | None = None,
    loss_fn: Callable[..., Tensor] = cross_entropy,
    forward: Forward | None = None,
    node_parts: Tensor | None = None,
    strategy: str = "even",
    max_parts: int | None = None,
) -> Plan:
    """Split a batch into as few micro-batches as possible such that each one's training step fits the capacity.

    Partitions balance the model's bytes (`workbench.memory.byte_costs`). They are computed and estimated for two or
    three numbers of parts on average, five to seven with methods that don't refine
    (`workbench.memory.search`); the model is not run.

    Args:
        model: the module as `workbench.train_step` calls it, in its current mode (train or eval).
        mb: the batch; all of its seeds have labels.
        memory: device memory that the whole step must fit into, in bytes or as text such as "8GiB".
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
        forward: `forward(mb, inputs)` calls the model, as for `workbench.train_step`; None for the default call.
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
    memory_bytes = check_options(memory, method, margin, node_parts, strategy, max_parts)
    check_seed(seed)
    watch = Stopwatch()
    with watch.phase("estimate"):
        recovery = Recovery() if recover else None
        setup = TrainingSetup(
            model, loss_fn, optimizer, forward=forward, recover=recovery, backend=backend, in_dim=in_dim
        )
        estimator = estimator_for(setup, mb)
    return plan_with(
        estimator,
        mb,
        memory=memory_bytes,
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
    memory: int | str,
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
    memory_bytes = check_options(memory, method, margin, node_parts, strategy, max_parts)
    check_seed(seed)
    refuse_halo(mb.exchanges, "planned")
    partitioner = Partitioner(method, seed=seed, node_parts=node_parts)
    builder = CandidateBuilder(estimator, partitioner, mb, watch or Stopwatch())
    candidate, tried = Candidate((), ()), ()
    if mb.num_seeds:
        limit = _part_limit(mb, node_parts, max_parts)
        candidate, tried = find_fitting(builder, Budget(memory_bytes, margin), strategy, limit)
    return Plan(
        assignment=_assignment(candidate, mb),
        micro=candidate.micro,
        estimates=candidate.estimates,
        method=" + ".join(candidate.methods) or method,
        strategy=strategy,
        memory_bytes=memory_bytes,
        redundancy=redundancy(candidate.micro, mb),
        seconds={stage: builder.watch.seconds.get(stage, 0.0) for stage in STAGES},
        tried=tried,
        asked=method,
    )


_SMALLER = "use smaller fanouts, fewer layers or a narrower model"


class PartLimit(NamedTuple):
    """The maximum number of parts, and the error message if it is too small.

    Args:
        max_parts: the maximum number of parts.
        subject: start of the message, up to and including the verb.
        remedy: what to change other than the capacity.
    """

    max_parts: int
    subject: str = "one seed alone needs"
    remedy: str = _SMALLER


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


_MAX_ERROR = 0.25  # of a traced estimate; beyond it, whole batches have measured up to nine times their estimate

_MAX_SKIPPED = 16

SearchResult = tuple[Candidate, tuple[tuple[int, int], ...]]
"""A candidate, and the numbers of parts that were tried with the peak bytes of each."""


def find_fitting(builder: CandidateBuilder, budget: Budget, strategy: str, limit: PartLimit) -> SearchResult:
    """Partition a batch of at least one seed into as few parts as the strategy finds such that each fits.

    Raises:
        CapacityError: No partition fits.
        ValueError: The error of the estimates is too large to plan with.
    """
    whole = builder.unpartitioned()
    budget = replace(budget, error=_checked_error(whole.estimates[0]))
    if budget.fits(whole.estimates[0]):
        return whole, ((1, whole.peak_bytes),)
    _check_feasible(builder, whole, budget, limit)
    candidate, tried = STRATEGIES[strategy](builder, whole, budget, limit.max_parts)
    largest = candidate.estimates[candidate.largest]
    if not budget.fits(largest):
        smallest = min(whole, candidate, key=lambda tried: tried.peak_bytes)
        raise budget.capacity_error(
            limit.subject,
            candidate.peak_bytes,
            largest.fixed_bytes,
            limit.remedy,
            smallest.estimates[smallest.largest],
        )
    return candidate, tried


def _checked_error(estimate: MemoryEstimate) -> float:
    if not (estimate.error or 0.0) <= _MAX_ERROR:
        raise ValueError(
            f"the model was traced, and its estimates were off by up to {estimate.error:.0%} on held-out sub-batches, "
            f"more than the {_MAX_ERROR:.0%} up to which a plan is reliable: train with recover=Recovery(), which "
            "splits micro-batches that run out of memory, or choose the number of parts yourself (partition_batch)"
        )
    return estimate.error or 0.0


def _check_feasible(builder: CandidateBuilder, whole: Candidate, budget: Budget, limit: PartLimit) -> None:
    """Raise `CapacityError` if no partition can fit, without making one."""
    estimate = whole.estimates[0]
    fixed, step = estimate.fixed_bytes, estimate.phase_bytes["step"]
    narrower = "use a narrower model or optimizer='sgd'"
    if budget.required_bytes(fixed, fixed) >= budget.memory_bytes:
        subject = "parameters and optimizer state alone need"
        raise budget.capacity_error(subject, fixed, fixed, narrower, _sufficient(builder, whole, limit))
    if budget.required_bytes(step, fixed) > budget.memory_bytes:
        subject = "the optimizer step, for any number of parts, needs"
        raise budget.capacity_error(subject, step, fixed, narrower, _sufficient(builder, whole, limit))
    if lower_bound_exceeds(builder, budget):
        seed = most_expensive_seed(builder)
        after = "" if builder.mb.num_seeds == 1 else ", after other parts,"
        subject = f"seed {int(seed.micro[0].seeds[0])} alone{after} needs"
        raise budget.capacity_error(subject, seed.peak_bytes, fixed, _SMALLER, _sufficient(builder, whole, limit))


def _sufficient(builder: CandidateBuilder, whole: Candidate, limit: PartLimit) -> MemoryEstimate:
    """An estimate that must fit for a plan to exist: the largest part at the part limit, or the whole batch."""
    if limit.max_parts == 1:
        return whole.estimates[0]
    at_limit = limit.max_parts == builder.mb.num_seeds
    finest = most_expensive_seed(builder) if at_limit else builder.partitioned(limit.max_parts)
    smaller = min(whole, finest, key=lambda candidate: candidate.peak_bytes)
    return smaller.estimates[smaller.largest]


def repartition_whole(builder: CandidateBuilder, whole: Candidate, budget: Budget, max_parts: int) -> SearchResult:
    """Search the number of parts, partitioning the whole batch for every number tried.

    The search estimates only the largest parts of each number; the result is estimated completely, and if it does not
    fit after all, the search goes on. Returns the fitting candidate, or if none fits the one with `max_parts` parts.
    """
    candidates = {1: whole}

    def utilization(num_parts: int) -> float:
        if num_parts not in candidates:
            build = builder.partitioned if num_parts == max_parts else builder.largest_parts
            candidates[num_parts] = build(num_parts)
        candidate = candidates[num_parts]
        return budget.utilization(candidate.estimates[candidate.largest])

    prior = REFINED if builder.method.endswith("_refined") else UNREFINED
    while True:
        found = smallest_fitting(utilization, max_parts, prior)
        if found is None and max_parts == builder.mb.num_seeds:
            found = next((number for number in _skipped(tuple(candidates)) if utilization(number) <= 1), None)
        if found is None or candidates[found].complete:
            tried = tuple((number, candidate.peak_bytes) for number, candidate in candidates.items())
            return candidates[found or max_parts], tried
        candidates[found] = builder.partitioned(found)


def _skipped(tried: Sequence[int]) -> Sequence[int]:
    """Evenly spaced numbers that were not tried; a seed that fits only in the first part may end up there.

    >>> _skipped([1, 2, 5])
    [3, 4]
    """
    skipped = [num_parts for num_parts in range(1, max(tried)) if num_parts not in tried]
    return skipped[:: math.ceil(len(skipped) / _MAX_SKIPPED) or 1]


def split_overflowing(builder: CandidateBuilder, whole: Candidate, budget: Budget, max_parts: int) -> SearchResult:
    """Partition the batch once, into its bytes over the available bytes, then split only the parts that do not fit.

    Parts share inputs, so most of the first parts do not fit; splitting them individually keeps the redundancy low. If
    this exceeds `max_parts`, fall back to `repartition_whole`.
    """
    num_parts = min(max_parts, math.ceil(budget.utilization(whole.estimates[0])))
    candidates = [whole]
    if num_parts > 1:
        candidates.append(builder.partitioned(num_parts))
    while (finer := _split_once(builder, candidates[-1], budget)) is not None and len(finer.micro) <= max_parts:
        candidates.append(finer)
    tried = tuple((len(candidate.micro), candidate.peak_bytes) for candidate in candidates)
    if budget.fits(candidates[-1].estimates[candidates[-1].largest]):
        return candidates[-1], tried
    candidate, tried_after = repartition_whole(builder, whole, budget, max_parts)
    return candidate, tried + tried_after[1:]


def _split_once(builder: CandidateBuilder, candidate: Candidate, budget: Budget) -> Candidate | None:
    """Split every part that does not fit into at least two; None if no part can be split."""
    finer = [
        _split_part(builder, micro, estimate, budget, first=position == 0)
        for position, (micro, estimate) in enumerate(zip(candidate.micro, candidate.estimates, strict=True))
    ]
    micro = tuple(micro for part in finer for micro in part.micro)
    if len(micro) == len(candidate.micro):
        return None
    methods = dict.fromkeys((*candidate.methods, *(method for part in finer for method in part.methods)))
    return Candidate(micro, tuple(estimate for part in finer for estimate in part.estimates), tuple(methods))


def _split_part(
    builder: CandidateBuilder, micro: MiniBatch, estimate: MemoryEstimate, budget: Budget, *, first: bool
) -> Candidate:
    if budget.fits(estimate) or micro.num_seeds == 1 or micro.parent is None:
        return Candidate((micro,), (estimate,))
    num_parts = min(micro.num_seeds, max(2, math.ceil(budget.utilization(estimate))))
    candidate = builder.repartitioned(micro, num_parts, first=first)
    return replace(candidate, micro=tuple(replace(part, parent=micro.parent[part.parent]) for part in candidate.micro))


STRATEGIES: Mapping[str, Callable[[CandidateBuilder, Candidate, Budget, int], SearchResult]] = MappingProxyType(
    {"even": repartition_whole, "split": split_overflowing}
)


def check_options(
    memory: int | str,
    method: str,
    margin: float,
    node_parts: Tensor | None,
    strategy: str,
    max_parts: int | None,
) -> int:
    """Validate the options of `plan_micro_batches`, and return the capacity in bytes.

    Raises:
        ValueError: An option is out of range or unknown, or `node_parts` does not go with the method.
        TypeError: `node_parts` is not an integer tensor.
    """
    memory_bytes = check_bytes("memory", memory)
    check_choice("method", method, partition_choices())
    check_method(method, node_parts)
    check_choice("strategy", strategy, STRATEGIES)
    if not isinstance(margin, Real) or not 0 <= margin <= 1:
        raise ValueError(f"margin is {margin!r}; it must be a fraction between 0 and 1, such as 0.02 for 2 %")
    if max_parts is not None:
        check_at_least("max_parts", max_parts, 1)
    return memory_bytes
