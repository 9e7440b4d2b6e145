"""method="search": round the relaxation to a placement, then improve it by exchanging rows.

Rows on whose holders the relaxation's patterns agree are placed. Where they disagree, patterns take turns in
proportion to their weights, so that the devices' counts and probabilities stay close to the mixture's. What rounding
leaves over or free is repaired copy by copy. If rows are few, each weighs much: then devices replace and exchange rows
for as long as the objective falls, and after some random replacements again.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.randomness import Purpose, stream, uniform
from workbench.kernels.jit import compiled
from workbench.placement.algorithm1 import trade_duplicates
from workbench.placement.problem import PlacementProblem

_MAX_EXCHANGES = 30_000_000  # of pairs of rows, compared in all passes: where rows are many, each weighs too little

_MAX_PASSES = 1000

_MAX_ROUNDS, _KICKS = 40, 3  # of random replacements, each round from the best placement so far

_TIE = 1e-3  # weight of the mean in the largest cost, so that devices below it improve too


def search(problem: PlacementProblem) -> list[Tensor]:
    """Return each device's rows; groups of devices are independent of each other."""
    buffers = [torch.empty(0, dtype=torch.int64)] * problem.num_devices
    for group in problem.groups:
        holders = torch.from_numpy(_holders(problem.restricted(group)))
        for bit, device in enumerate(group):
            buffers[device] = problem.order[((holders >> bit) & 1).nonzero()[:, 0]]
    return buffers


def _holders(problem: PlacementProblem) -> np.ndarray:
    """int64 [num_rows], the set of holders of each row, by rank."""
    relaxed, sets, p = relax(problem), sets_of(problem), problem.ranked.numpy()
    capacity, total = problem.capacity.numpy(), problem.objective == "total"
    first = _rounded(relaxed, len(p))
    _repair(p, weighted(relaxed.prices, sets.saving), capacity, first)
    passes = min(_MAX_PASSES, _MAX_EXCHANGES // max(1, len(p) * problem.num_devices) ** 2)
    if not passes or problem.num_devices == 1:
        return first
    fixed = p, sets.saving, problem.costs[:, -1].numpy(), total, passes
    found = [first, *_other_starts(problem)]
    best = found[int(np.argmin([_improve(*fixed, holders) for holders in found]))]
    rounds = min(_MAX_ROUNDS, passes // 20)
    kicks = uniform(stream(0, Purpose.PARTITION), torch.arange(rounds * _KICKS * 3)).view(rounds, _KICKS, 3)
    _kick_and_improve(*fixed, kicks.numpy(), best)
    return best


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


def _rounded(relaxed: Relaxation, num_rows: int) -> np.ndarray:
    """Sets of holders by rank: those of the pattern whose turn it is."""
    starts = np.unique(np.concatenate([pattern.starts for pattern in relaxed.patterns]))
    held = np.empty((len(starts), len(relaxed.patterns)), dtype=np.int64)
    for k, pattern in enumerate(relaxed.patterns):
        held[:, k] = np.array(pattern.holders)[np.searchsorted(pattern.starts, starts, side="right") - 1]
    out = np.empty(num_rows, dtype=np.int64)
    _take_turns(np.append(starts, num_rows), held, np.array(relaxed.weights), out)
    return out


@compiled
def _take_turns(starts, held, weights, out):
    credit = np.zeros(len(weights))
    for segment in range(len(held)):
        agreed = True
        for k in range(1, len(weights)):
            agreed &= held[segment, k] == held[segment, 0]
        for rank in range(starts[segment], starts[segment + 1]):
            if agreed:
                out[rank] = held[segment, 0]
                continue
            turn = 0
            for k in range(len(weights)):
                credit[k] += weights[k]
                if credit[k] > credit[turn]:
                    turn = k
            credit[turn] -= 1.0
            out[rank] = held[segment, turn]


@compiled
def _repair(p, saving, capacity, holders):
    """Remove the copies that save least where a device holds too many; fill free slots with those that save most."""
    count = np.zeros(len(capacity), np.int64)
    for rank in range(len(p)):
        for device in range(len(capacity)):
            count[device] += (holders[rank] >> device) & 1
    for device in range(len(capacity)):
        bit = 1 << device
        while count[device] > capacity[device]:
            best, least = -1, np.inf
            for rank in range(len(p) - 1, -1, -1):
                if holders[rank] & bit:
                    loss = p[rank] * (saving[holders[rank]] - saving[holders[rank] ^ bit])
                    if loss < least:
                        best, least = rank, loss
            holders[best] ^= bit
            count[device] -= 1
    for device in range(len(capacity)):
        bit = 1 << device
        while count[device] < capacity[device]:
            best, most = -1, -np.inf
            for rank in range(len(p)):
                if best >= 0 and p[rank] * saving[-1] <= most:
                    break  # no colder row can save more
                if not holders[rank] & bit:
                    gain = p[rank] * (saving[holders[rank] | bit] - saving[holders[rank]])
                    if gain > most:
                        best, most = rank, gain
            holders[best] |= bit
            count[device] += 1


def _other_starts(problem: PlacementProblem) -> list[np.ndarray]:
    """Placements of small problems to improve besides the relaxation's: the hottest rows, and Algorithm 1's."""
    starts = [[torch.arange(size) for size in problem.capacity.tolist()]]
    by_rank = PlacementProblem(problem.ranked, problem.capacity, problem.costs, problem.objective)
    for objective in ("largest", "total"):
        try:
            by_objective = PlacementProblem(by_rank.p, by_rank.capacity, by_rank.costs, objective)
            starts.append(trade_duplicates(by_objective, threshold=None, printed=False))
        except ValueError:  # costs or capacities that Algorithm 1 does not take
            continue
    return [_bits(start, problem.num_rows) for start in starts]


def _bits(buffers: list[Tensor], num_rows: int) -> np.ndarray:
    bits = np.zeros(num_rows, dtype=np.int64)
    for device, rows in enumerate(buffers):
        bits[rows.numpy()] |= 1 << device
    return bits


@compiled
def _improve(p, saving, host, total, passes, holders):
    """Exchange rows while the objective falls; return it.

    Moves: a device replaces one of its rows by any other; two devices exchange a row that only one of each holds.
    """
    n = len(saving)
    cost = np.zeros(n)
    for rank in range(len(p)):
        for device in range(n):
            cost[device] += p[rank] * (host[device] - saving[device, holders[rank]])
    current = _objective(cost, total)
    trial = np.empty(n)
    for _ in range(passes):
        best, best_a, best_b, best_x, best_y = current - 1e-12 * abs(current), -1, -1, 0, 0
        for a in range(len(p)):
            for b in range(len(p)):
                for i in range(n):
                    x = 1 << i
                    if not holders[a] & x or holders[b] & x:
                        continue
                    for j in range(n):  # j == i: replace; otherwise j gives b for a
                        y = 1 << j
                        if j != i and (j < i or not holders[b] & y or holders[a] & y):
                            continue
                        after_a = holders[a] ^ x ^ (y if j != i else 0)
                        after_b = holders[b] ^ x ^ (y if j != i else 0)
                        for d in range(n):
                            trial[d] = cost[d]
                            trial[d] += p[a] * (saving[d, holders[a]] - saving[d, after_a])
                            trial[d] += p[b] * (saving[d, holders[b]] - saving[d, after_b])
                        value = _objective(trial, total)
                        if value < best:
                            best, best_a, best_b, best_x, best_y = value, a, b, after_a, after_b
        if best_a < 0:
            break
        for d in range(n):
            cost[d] += p[best_a] * (saving[d, holders[best_a]] - saving[d, best_x])
            cost[d] += p[best_b] * (saving[d, holders[best_b]] - saving[d, best_y])
        holders[best_a], holders[best_b] = best_x, best_y
        current = best
    return current


@compiled
def _kick_and_improve(p, saving, host, total, passes, kicks, best):
    """Replace some rows at random and improve again, which leaves local optima; keep the best placement in `best`."""
    n, rows = len(saving), len(p)
    least = np.inf
    for turn in range(-1, len(kicks)):
        holders = best.copy()
        if turn >= 0:
            for device, held, other in kicks[turn]:
                bit = 1 << int(device * n)
                a, b = int(held * rows), int(other * rows)
                for _ in range(rows):  # the next row that the device holds, and the next that it does not
                    a = (a + 1) % rows if not holders[a] & bit else a
                    b = (b + 1) % rows if holders[b] & bit else b
                if holders[a] & bit and not holders[b] & bit:
                    holders[a] ^= bit
                    holders[b] ^= bit
        value = _improve(p, saving, host, total, passes, holders)
        if value < least:
            least = value
            best[:] = holders


@compiled
def _objective(cost, total):
    if total:
        return cost.sum()
    return cost.max() + _TIE * cost.mean()


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


def lower_bound(problem: PlacementProblem) -> float:
    """Return a cost that no placement can fall below: the largest, or the sum, of the bounds of all groups."""
    bounds = [relax(problem.restricted(group)).bound for group in problem.groups]
    bound = max(bounds) if problem.objective == "largest" else sum(bounds)
    return bound * (1 - 1e-12)  # rounding errors must not lift it above an optimum


def relax(problem: PlacementProblem) -> Relaxation:
    """Solve the relaxation for one group of devices."""
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
