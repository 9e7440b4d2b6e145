"""The relaxation behind `Placement.lower_bound` and method="search": rows may be divided among sets of holders.

A row of probability p that the devices of a set H hold saves device i p · s_i(H): its host cost less that of its
cheapest holder. With prices λ_i of the devices' costs and μ_i of their slots, a row's best H maximises
p · Σ λ_i s_i(H) − Σ_{i∈H} μ_i, a line in p. So the rows between two ranks share one H, and pricing all rows is the
upper envelope of 2ⁿ lines, however many rows there are. Such a *pattern* may exceed the capacities. A mixture of
patterns that keeps them, chosen by a linear program, is the optimum of the relaxation once no pattern is worth adding
(Dantzig–Wolfe decomposition). Any prices give a lower bound, and the mixture differs from a placement only where its
patterns disagree.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from workbench.placement.problem import PlacementProblem

MAX_GROUP = 12  # devices that may read from each other: every set of them is a candidate
_TOLERANCE = 1e-5
_MAX_PATTERNS = 400
_SMOOTHING = 0.5


class Sets(NamedTuple):
    """All sets of devices, numbered by their bits.

    Args:
        saving: float64 [n, 2ⁿ], what a device saves on a row of probability 1 that the set holds.
        member: float64 [n, 2ⁿ], 1 for devices in the set.
    """

    saving: np.ndarray
    member: np.ndarray


class Pattern(NamedTuple):
    """A set of holders for each row: that of `holders[k]` for the ranks from `starts[k]` to the next start.

    Args:
        starts: ranks, ascending from 0.
        holders: numbers of sets; the rows after the last start have holders[-1].
        cost: float64 [n], expected cost of each device.
        usage: float64 [n], rows that each device holds.
    """

    starts: list[int]
    holders: list[int]
    cost: np.ndarray
    usage: np.ndarray


@dataclass(frozen=True)
class Relaxation:
    """The optimum of the relaxation for one group of devices.

    Args:
        bound: no placement costs less.
        patterns: the mixture's patterns.
        weights: of the patterns, positive, of sum 1.
        prices: λ, float64 [n], of the devices' costs.
    """

    bound: float
    patterns: list[Pattern]
    weights: list[float]
    prices: np.ndarray


def lower_bound(problem: PlacementProblem) -> float:
    """Return a cost that no placement can fall below: the largest, or the sum, of the bounds of all groups.

    Raises:
        ValueError: a group has more than 12 devices.
    """
    bounds = [relax(problem.restricted(group)).bound for group in problem.groups]
    bound = max(bounds) if problem.objective == "largest" else sum(bounds)
    return bound * (1 - 1e-12)  # rounding errors must not lift it above an optimum


def relax(problem: PlacementProblem) -> Relaxation:
    """Solve the relaxation for one group of devices.

    Raises:
        ValueError: more than 12 devices.
    """
    if problem.num_devices > MAX_GROUP:
        raise ValueError(
            f"a group has {problem.num_devices} devices that read from each other, and every set of them is a "
            f"candidate: the search and the lower bound take at most {MAX_GROUP}; name smaller groups with groups="
        )
    return _Master(problem).solve()


def sets_of(problem: PlacementProblem) -> Sets:
    """Return what every set of a group's devices saves each device."""
    n, costs = problem.num_devices, problem.costs.numpy()
    member = ((np.arange(2**n)[None, :] >> np.arange(n)[:, None]) & 1).astype(np.float64)
    cheapest = np.repeat(costs[:, -1:], 2**n, axis=1)
    for peer in range(n):
        cheapest = np.where(member[peer] > 0, np.minimum(cheapest, costs[:, peer : peer + 1]), cheapest)
    return Sets(costs[:, -1:] - cheapest, member)


def weighted(weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return weights @ rows, summed in an order that depends on the shapes alone.

    BLAS orders sums by the processor, too. Lines often meet, so the last bit decides between patterns: placements of
    equal worth by the model would load up to 0.3 % faster or slower, depending on the machine.
    """
    return (weights[:, None] * rows).sum(axis=0)


class _Master:
    """Column generation: a linear program over the patterns found so far, and the pattern that its prices ask for."""

    def __init__(self, problem: PlacementProblem) -> None:
        self.total = problem.objective == "total"
        self.ranked, self.mass = -problem.ranked.numpy(), problem.mass.numpy()
        self.capacity = problem.capacity.numpy().astype(np.float64)
        self.sets = sets_of(problem)
        full = (self.sets.member * (self.capacity == 0)[:, None]).any(axis=0)
        self.allowed = np.flatnonzero(~full)
        self.host = problem.costs[:, -1].numpy() * self.mass[-1]
        self.patterns = [self._pattern([0], [0])]

    def solve(self) -> Relaxation:
        n = len(self.capacity)
        prices, best, tried = self._first_prices(), -np.inf, False
        center, weights = prices, np.ones(1)
        while len(self.patterns) < _MAX_PATTERNS:
            found = self._best_pattern(*prices)
            value = float((prices[0] * found.cost + prices[1] * (found.usage - self.capacity)).sum())
            if value > best:
                best, center = value, prices
            self.patterns.append(found)
            optimum, weights, duals = self._mixture()
            if optimum - best <= _TOLERANCE * max(optimum, 1e-300):
                break
            # Prices between the best ones and the program's keep the first, arbitrary duals from steering the search.
            stuck = value <= best and tried
            share = 0.0 if stuck else _SMOOTHING
            prices = tuple(share * a + (1 - share) * b for a, b in zip(center, duals, strict=True))
            tried = not stuck
        used = np.flatnonzero(weights > 1e-9)
        chosen = [self.patterns[k] for k in used]
        return Relaxation(max(best, 0.0), chosen, (weights[used] / weights[used].sum()).tolist(), center[0][:n])

    def _first_prices(self) -> tuple[np.ndarray, np.ndarray]:
        """Equal weights, and the worth of a single copy of the row that would be the first not to fit."""
        n = len(self.capacity)
        devices = np.ones(n) if self.total else np.full(n, 1 / n)
        next_row = min(len(self.ranked) - 1, int(self.capacity.sum()))
        saved = weighted(devices, self.sets.saving)
        single = [saved[1 << device] for device in range(n)]
        p = -self.ranked[next_row] if len(self.ranked) else 0.0
        return devices, p * np.array(single)

    def _best_pattern(self, devices: np.ndarray, slots: np.ndarray) -> Pattern:
        """The upper envelope of the sets' lines, from the largest probability down."""
        slope = weighted(devices, self.sets.saving)[self.allowed]
        price = weighted(slots, self.sets.member)[self.allowed]
        p = -self.ranked[0] if len(self.ranked) else 0.0
        worth = slope * p - price
        line = int(np.lexsort((slope, worth))[-1])
        starts, holders = [0], [int(self.allowed[line])]
        while True:
            flatter = np.flatnonzero(slope < slope[line])
            if not len(flatter):
                break
            crossing = (price[line] - price[flatter]) / (slope[line] - slope[flatter])
            p = crossing.max()
            start = int(np.searchsorted(self.ranked, -p, side="left"))
            if start >= len(self.ranked):
                break
            ties = flatter[crossing >= p]
            line = int(ties[np.argmin(slope[ties])])
            if start == starts[-1]:
                holders[-1] = int(self.allowed[line])
            else:
                starts.append(start)
                holders.append(int(self.allowed[line]))
        return self._pattern(starts, holders)

    def _pattern(self, starts: list[int], holders: list[int]) -> Pattern:
        ends = np.array([*starts[1:], len(self.ranked)])
        first = np.array(starts)
        mass, rows = self.mass[ends] - self.mass[first], (ends - first).astype(np.float64)
        cost = self.host - weighted(mass, self.sets.saving[:, holders].T)
        return Pattern(starts, holders, cost, weighted(rows, self.sets.member[:, holders].T))

    def _mixture(self) -> tuple[float, np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """The best mixture of all patterns within the capacities: its cost, weights, and prices (λ, μ)."""
        from scipy.optimize import linprog  # slow to import

        n, count = len(self.capacity), len(self.patterns)
        scale = max(float(self.host.max()), 1e-300)
        cost = np.stack([pattern.cost for pattern in self.patterns], axis=1) / scale
        room = np.maximum(self.capacity, 1)[:, None]
        usage = np.stack([pattern.usage for pattern in self.patterns], axis=1) / room
        fits = (self.capacity > 0).astype(np.float64)
        one = np.append(np.ones(count), 0.0)[None, :]
        if self.total:
            objective, above, limits = np.append(cost.sum(0), 0.0), np.zeros((0, count)), fits
        else:
            objective, above, limits = np.append(np.zeros(count), 1.0), cost, np.concatenate([fits, np.zeros(n)])
        last = np.concatenate([np.zeros(n), -np.ones(len(above))])[:, None]
        rows = np.concatenate([np.concatenate([usage, above]), last], axis=1)
        found = linprog(objective, A_ub=rows, b_ub=limits, A_eq=one, b_eq=[1.0], method="highs")
        if found.status != 0:
            raise RuntimeError(f'the linear program of the placement failed: {found.message}; use method="algorithm-1"')
        duals = np.maximum(-found.ineqlin.marginals, 0)
        devices = np.ones(n) if self.total else duals[n:] / max(duals[n:].sum(), 1e-300)
        return found.fun * scale, found.x[:count], (devices, duals[:n] * scale / room[:, 0])
