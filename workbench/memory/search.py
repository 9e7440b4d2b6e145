"""The smallest number of parts that fits, in few tries, although more parts are not always smaller.

`smallest_fitting` chooses the numbers to try; `CandidateBuilder` partitions, splits and estimates the batch; the most
expensive seeds alone are a lower bound on any partition (`lower_bound_exceeds`).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.core.units import format_bytes
from workbench.memory.estimate import MemoryEstimate
from workbench.memory.estimator import Estimator, marginal_costs
from workbench.meter.stopwatch import Stopwatch
from workbench.partition.batch.partitioner import Partitioner, Parts, PreparedPartition

_NOISE_PRIOR_POINTS = 4  # how many observations the prior of the noise is worth

_CURVATURE = 0.15  # extra standard deviation per unit of log(utilization): the slope varies along the curve

_LIKELY = 0.4  # probability at which a larger number is worth a try

_TOLERANCE = 0.04  # a number this much smaller is worth finding

_RESOLUTION = 0.015  # relative spacing of the numbers considered

_MISS_PROBABILITY = 0.1

_WIDE_BRACKET = 1.5

_MAX_TRIES = 24


class CurvePrior(NamedTuple):
    """Prior of log(utilization) against log(parts).

    Args:
        slope: mean slope of the line, downwards.
        slope_std: its standard deviation.
        noise: residual standard deviation.
    """

    slope: float = 0.75
    slope_std: float = 0.15
    noise: float = 0.08


UNREFINED = CurvePrior()
"""From 500 batches of nine graphs partitioned by range, random, metis and reg into up to 90 parts."""

REFINED = CurvePrior(0.8, 0.1, 0.015)
"""Of batches refined with the costs of their models, whose largest parts hardly scatter: the residuals of 22 batches of
nine graphs are 0.5 to 1.7 %. Slopes are 0.9 for a few parts and fall to 0.7 for tens of them."""


def smallest_fitting(utilization: Callable[[int], float], upper: int, prior: CurvePrior = UNREFINED) -> int | None:
    """Find the smallest number of parts that fits, in a few tries; None if not even `upper` does.

    On average these are two or three besides 1 for refined partitions, and five to seven for others. Partitions into K
    and K + 1 parts have little in common, so utilization is not monotone: a number below one that does not fit may fit.
    A Bayesian power-law fit to the numbers tried gives the probability that any other number fits. The number of parts
    grows until one fits; then the most promising smaller number is tried, until the probability that a number smaller
    by 4 % fits is at most one in ten, or after 24 tries.

    Args:
        utilization: for a number of parts, required over available bytes of the largest part; it fits if at most 1.
            Called once per number, first with 1.
        upper: the largest number to try, at least 1.
    """
    tried = {1: utilization(1)}
    while (candidate := _next(tried, upper, prior)) is not None:
        tried[candidate] = utilization(candidate)
    return _best(tried)


def _best(tried: Mapping[int, float]) -> int | None:
    return min((num_parts for num_parts, utilization in tried.items() if utilization <= 1), default=None)


def _next(tried: Mapping[int, float], upper: int, prior: CurvePrior) -> int | None:
    best = _best(tried)
    if best is None:
        return _next_larger(tried, upper, prior)
    return None if len(tried) >= _MAX_TRIES else _next_smaller(tried, best, prior)


def _next_larger(tried: Mapping[int, float], upper: int, prior: CurvePrior) -> int | None:
    """The first number that is likely to fit, beyond a minimum step that doubles with every failure."""
    most = max(tried)
    if most >= upper:
        return None
    step = min(upper, most + max(1, int(most * 0.05 * 2 ** len(tried))))
    larger = torch.arange(step, upper + 1)
    likely = (_PowerLaw.fit_to(tried, prior).fit_probability(larger) >= _LIKELY).nonzero()
    return int(larger[likely[0, 0]]) if len(likely) else step


def _next_smaller(tried: Mapping[int, float], best: int, prior: CurvePrior) -> int | None:
    """The smaller number with the largest expected reduction; None if a worthwhile one probably does not exist."""
    step = max(1, int(best * _RESOLUTION))
    smaller = torch.tensor([num_parts for num_parts in range(best - step, 1, -step) if num_parts not in tried])
    fits = _PowerLaw.fit_to(tried, prior).fit_probability(smaller)
    if 1 - float((1 - fits[smaller <= best * (1 - _TOLERANCE)]).prod()) <= _MISS_PROBABILITY:
        return None
    failed = max((num_parts for num_parts in tried if num_parts < best), default=1)
    if len(tried) % 4 == 0 and best > _WIDE_BRACKET * failed + 1:  # bisection, where the curve is no power law
        return math.isqrt(failed * best) + 1
    return int(smaller[(fits * (best / smaller).log()).argmax()])


@dataclass(frozen=True)
class _PowerLaw:
    """log(utilization) = level − slope · log(parts), fitted by Bayesian linear regression.

    Args:
        mean: float64 [2], posterior mean of level and slope.
        covariance: float64 [2, 2], posterior covariance of level and slope.
        noise: residual standard deviation near a utilization of 1.
    """

    mean: Tensor
    covariance: Tensor
    noise: float

    @staticmethod
    def fit_to(tried: Mapping[int, float], prior: CurvePrior) -> "_PowerLaw":
        """Fit twice: with the prior noise, then with the noise estimated from the residuals of the first fit."""
        log_parts, log_utilization = torch.tensor(list(tried.items()), dtype=torch.float64).log().T
        first = _PowerLaw._fit(log_parts, log_utilization, prior, prior.noise)
        weight = prior.noise**2 / (prior.noise**2 + (_CURVATURE * log_utilization) ** 2)
        squares = weight @ (log_utilization - _design(log_parts) @ first.mean) ** 2
        variance = (_NOISE_PRIOR_POINTS * prior.noise**2 + float(squares)) / (_NOISE_PRIOR_POINTS + float(weight.sum()))
        return _PowerLaw._fit(log_parts, log_utilization, prior, math.sqrt(variance))

    @staticmethod
    def _fit(log_parts: Tensor, log_utilization: Tensor, prior: CurvePrior, noise: float) -> "_PowerLaw":
        design, weight = _design(log_parts), 1 / (noise**2 + (_CURVATURE * log_utilization) ** 2)
        precision = torch.tensor([0, prior.slope_std**-2], dtype=torch.float64)
        covariance = torch.linalg.inv(design.T @ (weight[:, None] * design) + precision.diag())
        mean = covariance @ (design.T @ (weight * log_utilization) + precision * prior.slope)
        return _PowerLaw(mean, covariance, noise)

    def fit_probability(self, num_parts: Tensor) -> Tensor:
        """float64: for each number of parts, the probability that its utilization is at most 1."""
        design = _design(num_parts.double().log())
        variance = self.noise**2 + ((design @ self.covariance) * design).sum(1)
        return torch.special.ndtr(-(design @ self.mean) / variance.sqrt())


def _design(log_parts: Tensor) -> Tensor:
    return torch.stack([torch.ones_like(log_parts), -log_parts], 1)


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
        """Partition the batch."""
        return self._split(self.mb, self._cut_whole(num_parts))

    def repartitioned(self, micro: MiniBatch, num_parts: int, *, first: bool) -> Candidate:
        """Partition a micro-batch; if it is trained on `first`, its first part finds no gradients."""
        return self._split(micro, self._cut(self._costed.prepare(micro), num_parts), first=first)

    def largest_parts(self, num_parts: int) -> Candidate:
        """Partition the batch, but split and estimate only the up to three parts with the most bytes."""
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
        """One micro-batch per group of positions of seeds, `after` so many others, whose gradients exist."""
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


_FIRST_CHUNK, _MAX_CHUNK, _MAX_SEEDS = 32, 512, 4096

_MAX_CHUNK_EDGES, _MAX_EDGES = 2**24, 2**27  # edges read for single-seed batches: per chunk, in total


@dataclass(frozen=True)
class Budget:
    """The capacity that estimates must fit into, with a safety margin.

    Args:
        memory_bytes: memory of the device.
        margin: fraction of an estimate by which it may be too low.
        error: relative error, in [0, 1), of the estimated bytes that a step adds to the fixed bytes.
    """

    memory_bytes: int
    margin: float
    error: float = 0.0

    def required_bytes(self, peak_bytes: int, fixed_bytes: int) -> int:
        """Capacity required by an estimated peak: the measured step may need estimate / (1 − error)."""
        worst_step_bytes = math.ceil((peak_bytes - fixed_bytes) / (1 - self.error))
        return max(math.ceil(peak_bytes * (1 + self.margin)), fixed_bytes + worst_step_bytes)

    def required(self, estimate: MemoryEstimate) -> int:
        """Capacity in bytes required by an estimate."""
        return self.required_bytes(estimate.peak_bytes, estimate.fixed_bytes)

    def fits(self, estimate: MemoryEstimate) -> bool:
        return self.required(estimate) <= self.memory_bytes

    def utilization(self, estimate: MemoryEstimate) -> float:
        """Required bytes over available bytes, both without the fixed bytes: the step fits if it is at most 1."""
        fixed = self.required_bytes(estimate.fixed_bytes, estimate.fixed_bytes)
        return (self.required(estimate) - fixed) / (self.memory_bytes - fixed)

    def capacity_error(
        self, subject: str, peak_bytes: int, fixed_bytes: int, remedy: str, sufficient: MemoryEstimate
    ) -> CapacityError:
        """Build the error for a peak that exceeds the capacity.

        Args:
            subject: start of the message, up to and including the verb ("one seed alone needs").
            remedy: what to change other than the capacity.
            sufficient: the estimate whose required capacity is the smallest for which a plan exists.
        """
        required = self.required_bytes(peak_bytes, fixed_bytes)
        with_margin = f", or {required:,} with {self._reserve()}" if required > peak_bytes else ""
        return CapacityError(
            f"{subject} {_exact(peak_bytes)}{with_margin}, more than the capacity of {_exact(self.memory_bytes)}: "
            f"{remedy}, or a capacity of {_exact(self.required(sufficient))}"
        )

    def _reserve(self) -> str:
        margin = f"a margin of {self.margin:.1%}"
        return f"{margin} and an error of up to {self.error:.0%} of the traced estimate" if self.error else margin


def lower_bound_exceeds(builder: CandidateBuilder, budget: Budget) -> bool:
    """Return whether the most expensive seeds of a batch that does not fit prove that no partition fits.

    All parts but the first find gradients of earlier parts, so seeds that do not fit after them must all be in the
    first part. If that part does not fit either, no partition does.
    """
    if builder.mb.num_seeds == 1:
        return True
    _, largest_trees = next(_by_computation_tree(builder.mb))
    unfit = _unfit_alone(builder, largest_trees, budget)
    return bool(unfit) and not budget.fits(builder.groups([torch.cat(unfit)], after=[0]).estimates[0])


def _unfit_alone(builder: CandidateBuilder, seeds: Tensor, budget: Budget) -> list[Tensor]:
    """The seeds that do not fit as micro-batches of their own after other parts, by bisection.

    A group that fits contains none, because its seeds need at most as much as the group.
    """
    groups, unfit = [seeds], []
    while groups:
        estimates = builder.groups(groups, after=[1] * len(groups)).estimates
        large = [group for group, estimate in zip(groups, estimates, strict=True) if not budget.fits(estimate)]
        unfit += [group for group in large if len(group) == 1]
        groups = [half for group in large if len(group) > 1 for half in group.tensor_split(2)]
    return unfit


def most_expensive_seed(builder: CandidateBuilder) -> Candidate:
    """Find the seed that needs the most memory as a micro-batch of its own after other parts.

    Of far more than 4,096 seeds, only those with the largest computation trees are estimated, unless a bound proves
    earlier that no other seed has more nodes.
    """
    if builder.mb.num_seeds == 1:
        return builder.unpartitioned()
    best: list[Candidate] = []
    for largest_tree, seeds in _by_computation_tree(builder.mb):
        if best and largest_tree < best[0].micro[0].num_inputs:
            break
        singletons = builder.groups(seeds.split(1), after=[1] * len(seeds))
        if not best or singletons.peak_bytes > best[0].peak_bytes:
            best = [Candidate((singletons.micro[singletons.largest],), (singletons.estimates[singletons.largest],))]
    return best[0]


def _by_computation_tree(mb: MiniBatch) -> Iterator[tuple[int, Tensor]]:
    """Chunks of seed positions by decreasing tree size, each with the edges of its largest tree."""
    trees, order = tree_edges(mb).sort(descending=True, stable=True)
    max_reads = trees.clamp(max=mb.num_edges).clamp_(min=1)
    begin, chunk, edges_read = 0, _FIRST_CHUNK, 0
    while begin < min(mb.num_seeds, _MAX_SEEDS) and edges_read < _MAX_EDGES:
        end = begin + max(1, min(chunk, int(_MAX_CHUNK_EDGES // max_reads[begin])))
        yield int(trees[begin]), order[begin:end]
        edges_read += int(max_reads[begin:end].sum())
        begin, chunk = end, min(2 * chunk, _MAX_CHUNK)


def tree_edges(mb: MiniBatch) -> Tensor:
    """float64 [num_seeds]: edges of each seed's computation tree over all blocks, counted once per path.

    >>> from workbench.core.block import Block
    >>> block = Block(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 1], dtype=torch.int32), num_src=2, num_dst=2)
    >>> tree_edges(MiniBatch(torch.tensor([7, 8]), (block, block))).tolist()
    [7.0, 3.0]
    """
    below = torch.zeros(mb.num_inputs, dtype=torch.float64)
    for block in mb.blocks:
        ends = torch.zeros(block.num_edges + 1, dtype=torch.float64)
        torch.cumsum(1 + below[block.indices.cpu().long()], 0, out=ends[1:])
        below = below[: block.num_dst] + ends[block.indptr.cpu()].diff()  # a destination is also its own source
    return below


def _exact(nbytes: int) -> str:
    return f"{nbytes:,} bytes ({format_bytes(nbytes)})"
