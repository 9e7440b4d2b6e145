"""method="search": round the relaxation to a placement, then improve it by exchanging rows.

Rows on whose holders the relaxation's patterns agree are placed. Where they disagree, patterns take turns in
proportion to their weights, so that the devices' counts and probabilities stay close to the mixture's. What rounding
leaves over or free is repaired copy by copy. If rows are few, each weighs much: then devices replace and exchange rows
for as long as the objective falls, and after some random replacements again.
"""

import numpy as np
import torch
from torch import Tensor

from workbench.core.randomness import Purpose, stream, uniform
from workbench.kernels.jit import compiled
from workbench.placement.algorithm1 import trade_duplicates
from workbench.placement.problem import PlacementProblem
from workbench.placement.relaxation import Relaxation, relax, sets_of, weighted

_MAX_EXCHANGES = 30_000_000  # of pairs of rows, compared in all passes: where rows are many, each weighs too little
_MAX_PASSES = 1000
_MAX_ROUNDS, _KICKS = 40, 3  # of random replacements, each round from the best placement so far
_TIE = 1e-3  # weight of the mean in the largest cost, so that devices below it improve too


def search(problem: PlacementProblem) -> list[Tensor]:
    """Return each device's rows; groups of devices are independent of each other.

    Raises:
        ValueError: a group has more than 12 devices.
    """
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
