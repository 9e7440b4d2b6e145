"""The smallest number of parts that fits, in few tries, although more parts do not always mean smaller ones."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

# Of log(largest part's bytes) over log(parts), in 500 batches of nine graphs cut by range, random, metis and reg into
# up to 90 parts: the slope, and how far points lie off a line.
_SLOPE, _SLOPE_SPREAD, _NOISE = 0.75, 0.15, 0.08
_NOISE_WORTH = 4  # points: how soon those tried say more about the noise
_CURVATURE = 0.15  # noise that a point gains with its distance from what fits: the slope is not the same everywhere

_LIKELY = 0.4
_NEAR = 0.04
_GRAIN = 0.015
_MISSED = 0.1
_WIDE = 1.5
_MOST_TRIES = 24


def smallest_fitting(load: Callable[[int], float], upper: int) -> int | None:
    """The smallest number of parts that fits, found in five to seven tries on average, 21 at most in 500 batches.

    Partitions into K and K + 1 parts have little in common, so a number below one that does not fit may fit. A line
    through what was tried, in logarithms, says with which probability any other number fits. Numbers rise until one
    fits; then the smaller number that promises most is tried, until no more than one time in ten a number that is 4 %
    smaller fits, or after 24 tries.

    Args:
        load: of a number of parts, from 1 on, what its largest part needs over what it may take: at most 1 fits. Called
            once a number.
        upper: the largest number to try, at least 1.

    Returns:
        The smallest number tried that fits; None if not even `upper` does.
    """
    loads = {1: load(1)}
    while (candidate := _next(loads, upper)) is not None:
        loads[candidate] = load(candidate)
    return _best(loads)


def _best(loads: Mapping[int, float]) -> int | None:
    return min((number for number, tried in loads.items() if tried <= 1), default=None)


def _next(loads: Mapping[int, float], upper: int) -> int | None:
    best = _best(loads)
    if best is None:
        return _climb(loads, upper)
    return None if len(loads) >= _MOST_TRIES else _improve(loads, best)


def _climb(loads: Mapping[int, float], upper: int) -> int | None:
    """About where the line says that parts fit, and at least a step more, which grows with every failure."""
    most = max(loads)
    if most >= upper:
        return None
    step = min(upper, most + max(1, int(most * 0.05 * 2 ** len(loads))))
    further = torch.arange(step, upper + 1)
    likely = (_Trend.through(loads).probability(further) >= _LIKELY).nonzero()
    return int(further[likely[0, 0]]) if len(likely) else step


def _improve(loads: Mapping[int, float], best: int) -> int | None:
    """The smaller number that promises most; None if all that are worth it together hardly promise anything."""
    step = max(1, int(best * _GRAIN))
    smaller = torch.tensor([number for number in range(best - step, 1, -step) if number not in loads])
    fits = _Trend.through(loads).probability(smaller)
    if 1 - float((1 - fits[smaller <= best * (1 - _NEAR)]).prod()) <= _MISSED:
        return None
    failed = max((number for number in loads if number < best), default=1)
    if len(loads) % 4 == 0 and best > _WIDE * failed + 1:  # where the loads are no line, halving gets there
        return math.isqrt(failed * best) + 1
    return int(smaller[(fits * (best / smaller).log()).argmax()])


@dataclass(frozen=True)
class _Trend:
    """The line log(load) = level − slope · log(number) by Bayesian regression.

    Args:
        mean: float64 [2], level and slope.
        covariance: float64 [2, 2].
        noise: standard deviation of a point that lies near 0.
    """

    mean: Tensor
    covariance: Tensor
    noise: float

    @staticmethod
    def through(loads: Mapping[int, float]) -> "_Trend":
        points = torch.tensor(list(loads.items()), dtype=torch.float64).log()
        numbers, heights = points.T
        first = _Trend._fit(points, _NOISE)
        near = _NOISE**2 / (_NOISE**2 + (_CURVATURE * heights) ** 2)
        off = near @ (heights - _design(numbers) @ first.mean) ** 2
        seen = (_NOISE_WORTH * _NOISE**2 + float(off)) / (_NOISE_WORTH + float(near.sum()))
        return _Trend._fit(points, math.sqrt(seen))

    @staticmethod
    def _fit(points: Tensor, noise: float) -> "_Trend":
        numbers, heights = points.T
        design, weight = _design(numbers), 1 / (noise**2 + (_CURVATURE * heights) ** 2)
        prior = torch.tensor([0, _SLOPE_SPREAD**-2], dtype=torch.float64)
        covariance = torch.linalg.inv(design.T @ (weight[:, None] * design) + prior.diag())
        return _Trend(covariance @ (design.T @ (weight * heights) + prior * _SLOPE), covariance, noise)

    def probability(self, numbers: Tensor) -> Tensor:
        """float64, for every number of parts the probability that it fits."""
        design = _design(numbers.double().log())
        variance = self.noise**2 + ((design @ self.covariance) * design).sum(1)
        return torch.special.ndtr(-(design @ self.mean) / variance.sqrt())


def _design(logarithms: Tensor) -> Tensor:
    return torch.stack([torch.ones_like(logarithms), -logarithms], 1)
