"""Degree sequences of exact sum from a degree distribution, given by its quantiles at some knots."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

_KNOTS = 64
_NORMAL = NormalDist()
# Bound of a node's neighbours, as a share of all nodes: beyond, simple edges run out before its degree is met.
_MAX_SHARE = 0.25


@dataclass(frozen=True)
class DegreeLaw:
    """The degree distribution of the full graph.

    Args:
        knots: pairs (degree, share of nodes with at most that degree), both ascending; the last one is the largest
            degree, with share 1.
        population: number of nodes of the full graph.
    """

    knots: tuple[tuple[int, float], ...]
    population: int

    @property
    def largest(self) -> int:
        """The largest degree of the full graph."""
        return self.knots[-1][0]

    @classmethod
    def lognormal(cls, *, mean: float, sigma: float, population: int) -> "DegreeLaw":
        """Create a discretized log-normal distribution, whose largest degree is the quantile 1 - 1 / population.

        Args:
            mean: mean degree.
            sigma: standard deviation of the degree's logarithm.

        Source: Kolda, Pinar, Plantenga, Seshadhri (SIAM J. Sci. Comput. 2014), who fit it for BTER.
        """
        mu = math.log(mean) - sigma**2 / 2
        largest = round(math.exp(mu + sigma * _NORMAL.inv_cdf(1 - 1 / population)))
        degrees = sorted({round(largest ** (i / _KNOTS)) for i in range(_KNOTS)} - {largest})
        shares = [_NORMAL.cdf((math.log(degree + 0.5) - mu) / sigma) for degree in degrees]
        return cls((*zip(degrees, shares, strict=True), (largest, 1.0)), population)

    @classmethod
    def counted(cls, at_most: tuple[tuple[int, int], ...]) -> "DegreeLaw":
        """Create the distribution of a real graph from its cumulative degree counts.

        Args:
            at_most: pairs (degree, number of nodes with at most that degree), both ascending; the last one counts all
                nodes.
        """
        population = at_most[-1][1]
        return cls(tuple((degree, count / population) for degree, count in at_most), population)

    def ranked(self, count: int) -> np.ndarray:
        """Compute the degrees at evenly spaced ranks, not yet rounded: float64 [count], ascending.

        Between knots the logarithm of the degree is linear in that of the share of nodes above, as in a power law. A
        sample of fewer nodes than the population has the same quantiles; its largest degree is that of the middle of
        the top population / count ranks.
        """
        step = self.population / count
        above = np.arange(count - 1, -1, -1) * step + (step - 1) / 2
        degrees = [degree + 0.5 for degree, _ in self.knots]
        shares = [1 - share for _, share in self.knots]
        # A node exceeds a knot's degree if fewer nodes are above it than above the knot: hence half a degree more.
        degrees[-1], shares[-1] = float(self.largest), 0.0
        if shares[0] < 1:
            degrees, shares = [degrees[0] / 5 if degrees[0] < 1 else 0.5, *degrees], [1.0, *shares]
        floor = 1 / self.population
        rising = np.log(np.array(shares[::-1]) + floor)
        return np.exp(np.interp(np.log(above / self.population + floor), rising, np.log(degrees[::-1])))


def _rounded(raw: np.ndarray, factor: float, min_degree: int, max_degree: int) -> np.ndarray:
    return np.clip(np.floor(raw * factor + 0.5), min_degree, max_degree).astype(np.int64)


def _fit(raw: np.ndarray, total: int, min_degree: int, max_degree: int) -> np.ndarray:
    """Scale the degrees by bisection until they sum to at most `total`, and hardly less."""
    low, high = 0.0, 16.0
    for _ in range(60):
        middle = (low + high) / 2
        if _rounded(raw, middle, min_degree, max_degree).sum() > total:
            high = middle
        else:
            low = middle
    return _rounded(raw, low, min_degree, max_degree)


def _largest(law: DegreeLaw, nodes: int, total: int, max_neighbours: int | None) -> int:
    at_rank = round(float(law.ranked(nodes)[-1]))
    if max_neighbours is None:
        return at_rank
    simple = max(law.largest * math.sqrt(nodes / law.population), math.sqrt(total))
    return min(at_rank, round(simple), int(_MAX_SHARE * max_neighbours))


def degree_sequence(
    law: DegreeLaw, nodes: int, total: int, *, min_degree: int = 1, max_neighbours: int | None
) -> Tensor:
    """Compute degrees that follow a distribution and sum to `total`: int64 [nodes], ascending.

    Args:
        total: sum of the degrees; those of the distribution are scaled by a common factor to meet it.
        min_degree: smallest degree.
        max_neighbours: number of possible neighbours of a node: no degree exceeds a quarter of it, nor both √total and
            √(nodes / population) times the distribution's largest degree, because simple graphs can't meet more. None:
            no such bound.
    """
    raw = law.ranked(nodes)
    max_degree = _largest(law, nodes, total, max_neighbours)
    if not min_degree * nodes <= total <= max_degree * nodes // 2:
        raise ValueError(
            f"{nodes} nodes with a mean degree of {total / nodes:.1f} require larger degrees than {max_degree}, the "
            "limit for a simple graph; pass a larger scale"
        )
    degrees = _fit(raw[:-1], total - max_degree, min_degree, max_degree)
    missing = total - max_degree - int(degrees.sum())
    below = np.flatnonzero(degrees < max_degree)
    degrees[below[np.linspace(0, len(below) - 1, missing).astype(np.int64)]] += 1
    return torch.from_numpy(np.append(np.sort(degrees), max_degree))
