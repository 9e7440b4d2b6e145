"""Planning strategies: repartition the whole batch for every number of parts, or split only the parts that overflow."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from types import MappingProxyType
from typing import NamedTuple

from torch import Tensor

from workbench.core.errors import check_at_least, check_bytes, check_choice
from workbench.core.minibatch import MiniBatch
from workbench.memory.estimate import MemoryEstimate
from workbench.memory.planning.lower_bound import Budget, lower_bound_exceeds, most_expensive_seed
from workbench.memory.planning.search import REFINED, UNREFINED, Candidate, CandidateBuilder, smallest_fitting
from workbench.partition.batch import partition_choices
from workbench.partition.batch.prepared_batch import check_method

_MAX_ERROR = 0.25  # of a traced estimate; beyond it, whole batches have measured up to nine times their estimate

_MAX_SKIPPED = 16

_SMALLER = "use smaller fanouts, fewer layers or a narrower model"

SearchResult = tuple[Candidate, tuple[tuple[int, int], ...]]
"""A candidate, and the numbers of parts that were tried with the peak bytes of each."""


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
    if budget.required_bytes(fixed, fixed) >= budget.capacity_bytes:
        subject = "parameters and optimizer state alone need"
        raise budget.capacity_error(subject, fixed, fixed, narrower, _sufficient(builder, whole, limit))
    if budget.required_bytes(step, fixed) > budget.capacity_bytes:
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
    capacity_bytes: int | str,
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
    capacity_bytes = check_bytes("capacity_bytes", capacity_bytes)
    check_choice("method", method, partition_choices())
    check_method(method, node_parts)
    check_choice("strategy", strategy, STRATEGIES)
    if not isinstance(margin, Real) or not 0 <= margin <= 1:
        raise ValueError(f"margin is {margin!r}; it must be a fraction between 0 and 1, such as 0.02 for 2 %")
    if max_parts is not None:
        check_at_least("max_parts", max_parts, 1)
    return capacity_bytes
