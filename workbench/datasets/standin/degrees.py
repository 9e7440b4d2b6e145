"""Degree sequences: a distribution given by knots, read at evenly spaced ranks, with an exact sum."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

_KNOTS = 64
_NORMAL = NormalDist()
# A node may know at most this share of the others, or simple edges run out before its degree is met.
_MOST_NEIGHBOURS = 0.25


@dataclass(frozen=True)
class DegreeLaw:
    """How degrees are distributed over the nodes of the full graph.

    Args:
        knots: pairs (degree, share of nodes with at most that degree), both rising; the last one is the largest degree,
            with share 1.
        population: nodes of the full graph.
    """

    knots: tuple[tuple[int, float], ...]
    population: int

    @property
    def largest(self) -> int:
        """Largest degree of the full graph."""
        return self.knots[-1][0]

    @classmethod
    def lognormal(cls, *, mean: float, sigma: float, population: int) -> "DegreeLaw":
        """Discretised log-normal degrees, as BTER's authors fit them (Kolda, Pinar, Plantenga, Seshadhri, SIAM J. Sci.
        Comput. 2014); the largest degree is the quantile 1 − 1 / population.

        Args:
            mean: mean degree.
            sigma: standard deviation of the logarithm.
            population: nodes of the full graph.
        """
        mu = math.log(mean) - sigma**2 / 2
        largest = round(math.exp(mu + sigma * _NORMAL.inv_cdf(1 - 1 / population)))
        degrees = sorted({round(largest ** (i / _KNOTS)) for i in range(_KNOTS)} - {largest})
        shares = [_NORMAL.cdf((math.log(degree + 0.5) - mu) / sigma) for degree in degrees]
        return cls((*zip(degrees, shares, strict=True), (largest, 1.0)), population)

    @classmethod
    def counted(cls, at_most: tuple[tuple[int, int], ...]) -> "DegreeLaw":
        """The law of a real graph, from how many of its nodes have at most each of some degrees.

        Args:
            at_most: pairs (degree, nodes with at most that degree), both rising; the last one counts all nodes.
        """
        population = at_most[-1][1]
        return cls(tuple((degree, count / population) for degree, count in at_most), population)

    def ranked(self, count: int) -> np.ndarray:
        """float64 [count], ascending: degrees at evenly spaced ranks, not yet whole.

        Between knots the logarithm of the degree is linear in that of the share of nodes above, as in a power law. A
        sample of fewer nodes than the population keeps the quantiles; its largest degree is that of the middle of the
        top population / count ranks.
        """
        step = self.population / count
        above = np.arange(count - 1, -1, -1) * step + (step - 1) / 2
        degrees = [degree + 0.5 for degree, _ in self.knots]
        shares = [1 - share for _, share in self.knots]
        # A node has more than a knot's degree when fewer nodes stand above it than exceed the knot: half a degree more.
        degrees[-1], shares[-1] = float(self.largest), 0.0
        if shares[0] < 1:
            degrees, shares = [degrees[0] / 5 if degrees[0] < 1 else 0.5, *degrees], [1.0, *shares]
        floor = 1 / self.population
        rising = np.log(np.array(shares[::-1]) + floor)
        return np.exp(np.interp(np.log(above / self.population + floor), rising, np.log(degrees[::-1])))


def _rounded(raw: np.ndarray, factor: float, least: int, most: int) -> np.ndarray:
    return np.clip(np.floor(raw * factor + 0.5), least, most).astype(np.int64)


def _fit(raw: np.ndarray, total: int, least: int, most: int) -> np.ndarray:
    """Scale the degrees, the largest excepted, until they sum to at most `total` and hardly less."""
    low, high = 0.0, 16.0
    for _ in range(60):
        middle = (low + high) / 2
        if _rounded(raw, middle, least, most).sum() > total:
            high = middle
        else:
            low = middle
    return _rounded(raw, low, least, most)


def _largest(law: DegreeLaw, nodes: int, total: int, neighbours: int | None) -> int:
    at_rank = round(float(law.ranked(nodes)[-1]))
    if neighbours is None:
        return at_rank
    simple = max(law.largest * math.sqrt(nodes / law.population), math.sqrt(total))
    return min(at_rank, round(simple), int(_MOST_NEIGHBOURS * neighbours))


def degree_sequence(law: DegreeLaw, nodes: int, total: int, *, least: int = 1, neighbours: int | None) -> Tensor:
    """Degrees of `nodes` nodes, ascending, that sum to `total` and follow the law.

    Args:
        law: distribution.
        nodes: how many.
        total: their sum; the law's degrees are scaled by a common factor to meet it.
        least: smallest degree.
        neighbours: nodes that one may be joined to, once each: no degree exceeds a quarter of them, nor both √total and
            √(nodes / population) times the law's largest, since more can't be met without repeats. None: no such limit.

    Returns:
        int64 [nodes].

    Raises:
        ValueError: so many edges on so few nodes that the law can't be followed.
    """
    raw = law.ranked(nodes)
    most = _largest(law, nodes, total, neighbours)
    if not least * nodes <= total <= most * nodes // 2:
        raise ValueError(
            f"{nodes} nodes with a mean degree of {total / nodes:.1f} need degrees of at most {most} here; "
            "pass a larger scale"
        )
    degrees = _fit(raw[:-1], total - most, least, most)
    missing = total - most - int(degrees.sum())
    room = np.flatnonzero(degrees < most)
    degrees[room[np.linspace(0, len(room) - 1, missing).astype(np.int64)]] += 1
    return torch.from_numpy(np.append(np.sort(degrees), most))
