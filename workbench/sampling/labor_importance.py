"""LABOR-i and LABOR-*: the inclusion probabilities min(1, c_s · π_t) that reach few distinct sources.

The fixed point of Balın and Çatalyürek (NeurIPS 2023), in ρ_t = 1 / π_t and x_s = 1 / c_s, which need no divisions:

    start:   ρ_t = 1, x_s = d_s / k
    round:   ρ_t ← ρ_t · min x_s over the destinations s of t           (π_t ← π_t · max c_s)
             x_s ← the solution of Σ_t max(1, ρ_t · x_s) = d_s² / k     (Σ 1 / min(1, c_s · π_t) = d_s² / k)

The left side is convex and piecewise linear in x_s, so Newton's method solves it in a few steps. Rows of at most k
edges keep x_s = d_s / k, and all their edges.

All sums are of whole multiples of a power of two in int64: their order does not matter, and numba and torch agree to
the bit for any number of threads.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.core.exchange import AllToAll
from workbench.core.randomness import Variates
from workbench.kernels.buffers import constant, filled
from workbench.kernels.hash import mixed_uniform, mixed_uniform_torch
from workbench.kernels.jit import compiled, compiled_inline
from workbench.kernels.lanes import LANES, at_most_one, clamped_sum, compress, first_lanes, gather, hash_units, multiply
from workbench.kernels.relabel import invalid_source, relabeler
from workbench.kernels.threads import get_num_threads, parallel_rows, run_tasks
from workbench.sampling.owned_graph import OwnedGraph
from workbench.sampling.poisson import keep_edges, mark_smallest, prefetch_rows, write_kept
from workbench.sampling.sampler import Candidates, Drawn, ExpandedRows, expand_offsets, row_offsets
from workbench.sampling.uniform import draw_uniform, draw_uniform_torch
from workbench.sampling.weighted import smallest_in_order

TOLERANCE = 2.0**-17  # of the sum, relative, before the last Newton step; the paper's implementation has 1e-4

_CONVERGED = 1 - 1e-4  # of the expected number of sources: LABOR-* stops at a smaller decrease

_MAX_STEP = 16.0  # of Newton's method; bounds the sums

_MAX_STEPS = 100

_SUM_BITS = 58  # sums of a row are below 16 · d² / k, and 2⁶² as whole multiples

_SCALES = np.ldexp(1.0, _SUM_BITS - np.arange(256))  # by the exponent of d² / k

_COUNT_SCALE = 2.0**30

_SMALLEST = 2.0**-200  # of ρ, so that it never becomes 0

_MAX_COPIES = 8

_MIN_EDGES = 1 << 16  # per copy


class Importance(NamedTuple):
    """Inclusion probabilities min(1, 1 / (ρ_t · x_s)).

    Args:
        rho: float64 [num_sources], 1 / π_t; infinite for sources without edges.
        x: float64 [num_rows], 1 / c_s; unspecified for rows without edges.
        num_rounds: rounds until convergence.
    """

    rho: Tensor
    x: Tensor
    num_rounds: int


class BipartiteLayer(NamedTuple):
    """All candidates of a layer's destinations.

    Args:
        offsets: int64 [num_rows + 1], the row lengths, cumulated.
        starts: int64 [num_rows], the first edge of every row.
        degrees: int64 [num_rows], edges per row.
        local: int32 or int64, the number of every edge's source.
        raw: int32 or int64, the raw-graph id of every edge's source.
        num_sources: exclusive bound of the numbers; not every number has edges.
        ids: int64 [num_sources], the raw-graph id of every source; None: its number.
        positions: int64, the CSR position of every edge; None: its index.
    """

    offsets: Tensor
    starts: Tensor
    degrees: Tensor
    local: Tensor
    raw: Tensor
    num_sources: int
    ids: Tensor | None = None
    positions: Tensor | None = None

    @classmethod
    def of_csr(cls, indptr: Tensor, local: Tensor, ids: Tensor) -> "BipartiteLayer":
        """Return the layer of consecutive rows: offsets int64 [num_rows + 1], numbers, and the ids of all sources."""
        return cls(indptr, indptr[:-1], indptr.diff(), local, ids[local.long()], len(ids), ids)

    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return starts, degrees and numbers for compiled kernels."""
        return self.starts.numpy(), self.degrees.numpy(), self.local.numpy()


def optimise(layer: BipartiteLayer, fanout: int, rounds: int | None) -> tuple[Tensor, int]:
    """Optimise the inclusion probabilities of the edges of a bipartite layer, on the CPU.

    The x that belong to the result are not computed: a row solves for its own when it is drawn (`solve_row`).

    Args:
        fanout: k, at least 1.
        rounds: number of rounds; None: until the expected number of sources converges.

    Returns:
        float64 [num_sources], ρ = 1 / π, infinite for sources without edges; and the number of rounds.
    """
    bounds = _copy_bounds(layer.offsets)
    rho = filled(layer.num_sources, value=1.0, dtype=torch.float64)
    least = filled(len(bounds) - 1, layer.num_sources, value=math.inf, dtype=torch.float64)
    arrays = (*layer.rows(), fanout)
    invalid = np.full(len(least), -1)
    _for_each_copy(bounds, lambda lo, hi, copy: _start_rows(lo, hi, *arrays, least[copy].numpy(), invalid[copy:]))
    if invalid.max() >= 0:
        raise invalid_source(int(layer.local[invalid.max()]), layer.num_sources)
    previous, done = math.inf, 0
    while True:
        total, done = _update(rho, least), done + 1
        if done == rounds or total >= previous * _CONVERGED:
            return rho, done
        previous, solve = total, partial(_solve_rows, rho.numpy(), *arrays)
        _for_each_copy(bounds, lambda lo, hi, copy, solve=solve: solve(lo, hi, least[copy].numpy()))


def _copy_bounds(offsets: Tensor) -> list[int]:
    """Divide the rows among threads, each of which has a copy of the minima over destinations."""
    starts = offsets.numpy()
    copies = max(1, min(get_num_threads(), _MAX_COPIES, int(starts[-1]) // _MIN_EDGES))
    return [0, *(bisect_left(starts, int(starts[-1]) * i // copies) for i in range(1, copies)), len(starts) - 1]


def _for_each_copy(bounds: list[int], kernel: Callable[[int, int, int], object]) -> None:
    run_tasks([lambda i=i: kernel(bounds[i], bounds[i + 1], i) for i in range(len(bounds) - 1)])


@compiled
def _start_rows(lo, hi, starts, degrees, local, fanout, least, invalid):
    """Find the least x of every source for the first round; stop at an invalid source, and write its position."""
    for i in range(lo, hi):
        prefetch_rows(i, hi, starts, degrees, local)
        outside = False
        for e in range(starts[i], starts[i] + degrees[i]):
            outside |= not 0 <= local[e] < len(least)
        if outside:
            for e in range(starts[i], starts[i] + degrees[i]):
                if not 0 <= local[e] < len(least):
                    invalid[0] = e
            break
        _scatter(local, starts[i], degrees[i], np.float64(degrees[i]) / np.float64(fanout), least)


@compiled_inline
def _scatter(local, start, degree, x, least):
    for e in range(start, start + degree):
        least[local[e]] = min(least[local[e]], x)


def _update(rho: Tensor, least: Tensor) -> float:
    """Multiply ρ by the least x of every source, reset the copies, and return Σ min(1, π) times 2³⁰."""
    chunk = max(1, -(-len(rho) // max(1, min(get_num_threads(), len(rho) >> 14))))
    totals = np.zeros(-(-len(rho) // chunk), np.int64)

    def kernel(lo: int, hi: int) -> None:
        totals[lo // chunk] = _update_sources(lo, hi, rho.numpy(), least.numpy())

    run_tasks([lambda lo=lo: kernel(lo, min(lo + chunk, len(rho))) for lo in range(0, len(rho), chunk)])
    return float(totals.sum())


@compiled
def _update_sources(lo, hi, rho, least):
    total = np.int64(0)
    for t in range(lo, hi):
        factor = least[0, t]
        least[0, t] = np.inf
        for copy in range(1, len(least)):
            factor = min(factor, least[copy, t])
            least[copy, t] = np.inf
        rho[t] = max(rho[t] * factor, _SMALLEST)
        total += np.int64(min(1.0, 1.0 / rho[t]) * _COUNT_SCALE)
    return total


@compiled
def _solve_rows(rho, starts, degrees, local, fanout, lo, hi, least):
    """Solve for x of rows [lo, hi), and find the least x of every source for the next round."""
    buffer = np.empty((degrees[lo:hi].max() if hi > lo else 0) + LANES)
    for i in range(lo, hi):
        prefetch_rows(i, hi, starts, degrees, local)
        x = solve_row(local, starts[i], degrees[i], fanout, rho, buffer)
        _scatter(local, starts[i], degrees[i], x, least)


@compiled_inline
def solve_row(local, start, degree, fanout, rho, row_rho):
    """Solve for x of a row, and copy ρ of its sources to `row_rho`, which has room for 7 more values."""
    if degree <= fanout:
        return np.float64(degree) / np.float64(fanout)
    for j in range(0, degree, LANES):
        gather(rho, local, start + j, degree - j, row_rho, j)
    target = np.float64(degree) * np.float64(degree) / np.float64(fanout)
    return _solve(row_rho, degree, target, sum_scale(degree, np.float64(fanout)))


@compiled_inline
def sum_scale(degree, fanout):
    """Return the power of two by which the terms of a row's sum are multiplied before they become whole numbers."""
    return _SCALES[math.frexp(np.float64(degree) * np.float64(degree) / fanout)[1]]


def sum_scales(degrees: Tensor, fanout: int) -> Tensor:
    """Compute `sum_scale` for all rows in plain torch: float64 [num_rows]."""
    k = torch.full((), float(fanout), dtype=torch.float64, device=degrees.device)  # a GPU multiplies by 1 / a number
    exponent = torch.frexp(degrees.double() * degrees.double() / k).exponent
    return constant(_SCALES, degrees.device)[exponent.long().clamp(min=0)]


@compiled_inline
def _solve(rho, count, target, scale):
    """Solve Σ max(1, ρ · x) = target for x, from x = 1."""
    x, unit = 1.0, 1.0 / scale
    for _ in range(_MAX_STEPS):
        total, low = clamped_total(rho, count, x, scale)
        mass, low = np.float64(total) * unit, np.float64(low)
        x *= min((target - low) / (mass - low), _MAX_STEP) if mass > low else _MAX_STEP
        if abs(mass - target) <= target * TOLERANCE:
            break
    return x


@compiled_inline
def clamped_total(rho, count, x, scale):
    """Return Σ ⌊max(1, ρ · x) · scale⌋ over `count` values, and how many are clamped to 1.

    `rho` has room for 7 more values, which become zeros and complete a block of eight.
    """
    blocks = (count + LANES - 1) // LANES
    spare = blocks * LANES - count
    for j in range(count, count + spare):
        rho[j] = 0.0
    total, low = clamped_sum(rho, blocks, x, scale)
    return total - spare * np.int64(scale), low - spare


def importance_torch(layer: BipartiteLayer, fanout: int, rounds: int | None) -> Importance:
    """Compute `optimise` and x in plain torch, for consecutive rows; the oracle of the compiled kernels.

    The host waits once per round, or once per `_STEPS_AT_A_TIME` steps if solving for x takes more.
    """
    degrees, local = layer.degrees, layer.local.long()
    row = expand_offsets(layer.offsets, len(local))
    k = torch.full((), float(fanout), dtype=torch.float64, device=local.device)
    x, target = degrees.double() / k, degrees.double() * degrees.double() / k
    rho = torch.ones(layer.num_sources, dtype=torch.float64, device=local.device)
    scale, active = sum_scales(degrees, fanout), degrees > fanout
    previous, done, again = math.inf, 0, True
    while again:
        least = torch.full_like(rho, math.inf).scatter_reduce(0, local, x[row], "amin")
        rho = (rho * least).clamp(min=_SMALLEST)
        count = (rho.reciprocal().clamp(max=1) * _COUNT_SCALE).long().sum()
        x, total = _solve_torch(rho[local], row, active, x, target, scale, count)
        done += 1
        again, previous = done != rounds and total < previous * _CONVERGED, total
    return Importance(rho, x, done)


_STEPS_AT_A_TIME = 4  # of Newton's method, before the host asks whether all rows are solved


def _solve_torch(
    rho: Tensor, row: Tensor, active: Tensor, x: Tensor, target: Tensor, scale: Tensor, also: Tensor
) -> tuple[Tensor, float]:
    """Solve as `_solve` does, for all active rows together, and read a whole number together with what is left."""
    x, scales, read = torch.where(active, 1.0, x), scale[row], [0, 0]
    for step in range(_MAX_STEPS):
        if step and step % _STEPS_AT_A_TIME == 0:
            read = torch.stack([also, active.sum()]).tolist()
            if not read[1]:
                return x, float(read[0])
        y = rho * x[row]
        low = torch.zeros_like(target, dtype=torch.int64).index_add_(0, row, (y <= 1).long()).double()
        total = torch.zeros_like(target, dtype=torch.int64).index_add_(0, row, (y.clamp(min=1) * scales).long())
        mass = total.double() / scale
        excess = mass - low
        change = torch.where(excess > 0, ((target - low) / excess).clamp(max=_MAX_STEP), _MAX_STEP)
        x = torch.where(active, x * change, x)
        active = active & ((mass - target).abs() > target * TOLERANCE)
    return x, float(read[0])


def draw_important(
    rows: Candidates,
    indices: Tensor,
    fanout: int,
    *,
    rounds: int | None,
    poisson: bool,
    variates: Variates,
    positions: bool,
    num_nodes: int,
) -> Drawn:
    """Draw rows by LABOR-i or LABOR-*, each in CSR order, with float32 weights whose mean is 1 in every row.

    Args:
        fanout: k, at least 1.
        rounds: i; None: until convergence.
        poisson: keep edges with their probabilities; otherwise min(fanout, degree) per row.
        positions: whether to return the edges' CSR positions.
    """
    options = {"rounds": rounds, "poisson": poisson, "variates": variates, "positions": positions}
    if indices.device.type != "cpu":
        return draw_important_torch(rows, indices, fanout, **options)
    layer = bipartite_layer(rows, indices, num_nodes, positions=positions)
    return draw_layer(layer, fanout, rounds=rounds, poisson=poisson, variates=variates, positions=positions)[0]


def draw_layer(
    layer: BipartiteLayer, fanout: int, *, rounds: int | None, poisson: bool, variates: Variates, positions: bool
) -> tuple[Drawn, Importance]:
    """Draw a layer's rows as `draw_important` does; return them, with raw ids, and their probabilities."""
    rho, done = optimise(layer, fanout, rounds)
    x = torch.empty(len(layer.degrees), dtype=torch.float64)
    units = torch.empty(0, dtype=torch.float64) if variates.sine == 0.0 else _variates(layer.ids, variates, rho)
    choice = (fanout, poisson, rho.numpy(), variates.key, units.numpy())
    args = (*layer.rows(), layer.raw.numpy(), *choice, x.numpy())
    indptr, (sources, kept, weight) = keep_edges(
        lambda lo, hi, slot, *out: _keep_rows(lo, hi, slot, *args, *out),
        layer.offsets,
        [layer.raw.dtype, torch.int64 if positions else None, torch.float32],
    )
    assert sources is not None
    if kept is not None and layer.positions is not None:
        kept = layer.positions[kept]
    return Drawn(indptr, sources, kept, weight), Importance(rho, x, done)


def _variates(ids: Tensor | None, variates: Variates, rho: Tensor) -> Tensor:
    """Return the variate r of every source that has edges, float64 in [0, 1), under a mixture of two streams."""
    units = torch.empty_like(rho)
    raw = np.empty(0, np.int64) if ids is None else ids.numpy()
    args = (raw, tuple(variates), rho.numpy(), units.numpy())
    parallel_rows(lambda lo, hi: _write_variates(lo, hi, *args), len(rho), 1 << 14)
    return units


@compiled
def _write_variates(lo, hi, ids, variates, rho, units):
    key, next_key, cosine, sine = variates
    for t in range(lo, hi):
        if rho[t] < np.inf:
            units[t] = mixed_uniform(key, next_key, cosine, sine, ids[t] if len(ids) else t)


@compiled
def _keep_rows(
    lo, hi, slot, starts, degrees, local, raw, fanout, poisson, rho, key, units, x, counts, sources, positions, weights
):
    """Solve for x = 1/c of every row, decide which edges it keeps, and weigh them."""
    longest = (degrees[lo:hi].max() if hi > lo else 0) + LANES
    row_rho, keys, inverse = np.empty(longest), np.empty(longest), np.empty(longest)
    masks, offsets = np.empty(longest // LANES + 1, np.uint8), np.empty(min(fanout, longest), np.int64)
    for i in range(lo, hi):
        prefetch_rows(i, hi, starts, degrees, local)
        first, start, degree, kept = slot, starts[i], degrees[i], 0
        if degree <= fanout:
            for j in range(0, degree, LANES):
                slot = write_kept(first_lanes(degree - j), start + j, raw, sources, positions, slot)
            for e in range(first, slot):
                weights[e] = 1.0
            counts[i], x[i] = degree, np.float64(degree) / np.float64(fanout)
            continue
        x[i] = solve_row(local, start, degree, fanout, rho, row_rho)
        for j in range(0, degree, LANES):
            if len(units):
                gather(units, local, start + j, degree - j, keys, j)
            else:
                hash_units(raw, start + j, degree - j, key, keys, j)
            multiply(keys, j, row_rho, x[i] if poisson else 1.0)
            masks[j // LANES] = at_most_one(keys, j, degree - j)
        if not poisson:
            mark_smallest(masks, keys, degree, inverse[:fanout], offsets)
        for j in range(0, degree, LANES):
            mask = np.uint64(masks[j // LANES])
            compress(row_rho, j, mask, inverse, kept)
            slot = write_kept(mask, start + j, raw, sources, positions, slot)
            kept = slot - first
        counts[i] = kept
        _weigh(inverse, kept, x[i], sum_scale(degree, np.float64(fanout)), weights, first)


@compiled_inline
def _weigh(rho, kept, x, scale, weights, first):
    """Compute max(1, ρ · x) of the kept edges, divided by its mean."""
    norm = np.float64(kept) * scale / np.float64(clamped_total(rho, kept, x, scale)[0]) if kept else 0.0
    for j in range(kept):
        weights[first + j] = max(rho[j] * x, 1.0) * norm


def draw_important_torch(
    rows: Candidates,
    indices: Tensor,
    fanout: int,
    *,
    rounds: int | None,
    poisson: bool,
    variates: Variates,
    positions: bool,
) -> Drawn:
    """Draw as `draw_important` does, in plain torch for any device; its oracle."""
    full = draw_uniform_torch(rows, indices, -1, replace=False, key=0, positions=True)
    layer = number_sources_torch(full.indptr, full.sources)._replace(positions=full.positions)
    found = importance_torch(layer, fanout, rounds)
    return _keep_torch(rows, indices, fanout, layer, found, poisson=poisson, variates=variates, positions=positions)


def number_sources_torch(indptr: Tensor, sources: Tensor) -> BipartiteLayer:
    """Number the sources of consecutive rows by rank in plain torch; numbers beyond the distinct sources have no edges.

    The host need not know how many are distinct, for which it would have to wait.
    """
    values, order = sources.long().sort()
    rank = torch.zeros_like(values)
    torch.cumsum(values[1:] != values[:-1], 0, out=rank[1:])
    local = torch.empty_like(rank).index_put_((order,), rank)
    ids = torch.zeros_like(values).index_put_((rank,), values)
    return BipartiteLayer(indptr, indptr[:-1], indptr.diff(), local, sources, len(values), ids)


def _keep_torch(
    rows: Candidates,
    indices: Tensor,
    fanout: int,
    layer: BipartiteLayer,
    found: Importance,
    *,
    poisson: bool,
    variates: Variates,
    positions: bool,
) -> Drawn:
    """Keep candidates with their probabilities, and weigh them."""
    assert layer.ids is not None and layer.positions is not None
    local, row = layer.local, expand_offsets(layer.offsets, len(layer.local))
    edges, whole = ExpandedRows(layer.offsets, row, layer.positions), rows.degrees <= fanout
    keys = (mixed_uniform_torch(*variates, layer.ids) * found.rho)[local]
    if poisson:
        mask = (keys * found.x[row] <= 1) | whole[row]
        kept, counts = mask.nonzero()[:, 0], edges.count(mask)
        indptr = row_offsets(counts)
    else:
        counts = rows.degrees.clamp(max=fanout)
        indptr = row_offsets(counts)
        kept = smallest_in_order(keys, edges, indptr)
    row = row[kept]
    inverse = (found.rho[local[kept]] * found.x[row]).clamp(min=1)
    scale = sum_scales(rows.degrees, fanout)
    total = torch.zeros_like(counts).index_add_(0, row, (inverse * scale[row]).long())
    norm = counts.double() * scale / total.double()
    weight = torch.where(whole[row], 1.0, inverse * norm[row]).float()
    position = layer.positions[kept]
    return Drawn(indptr, indices[position], position if positions else None, weight)


def draw_important_owned(
    owned: OwnedGraph,
    rows: Candidates,
    fanout: int,
    *,
    rounds: int | None,
    poisson: bool,
    variates: Variates,
    positions: bool,
) -> AllToAll[Drawn]:
    """Draw the rows of one rank's nodes as `draw_important` draws them among the rows of all ranks.

    Every value it yields is a list of int64 vectors, one per rank, to exchange.

    Args:
        owned: the rank's part of the graph.
        rows: candidates of the rank's destinations.
        fanout: k, at least 1. The others as for `draw_important`.
    """
    indices = owned.graph.indices
    full = draw_uniform_torch(rows, indices, -1, replace=False, key=0, positions=True)
    sources, local = torch.unique(full.sources.long(), return_inverse=True)
    layer = BipartiteLayer.of_csr(full.indptr, local, sources)._replace(positions=full.positions)
    found = yield from _importance_owned(owned, layer, fanout, rounds)
    return _keep_torch(rows, indices, fanout, layer, found, poisson=poisson, variates=variates, positions=positions)


def _importance_owned(
    owned: OwnedGraph, layer: BipartiteLayer, fanout: int, rounds: int | None
) -> AllToAll[Importance]:
    """Compute `importance_torch` over the destinations of all ranks: x_s is its destination's, ρ_t its owner's.

    In every round ranks send the minima of x_s over their destinations to the owners of the sources, of all that have
    a candidate edge, and get ρ_t back. A minimum, and a sum of whole numbers, do not depend on the order, so ρ is that
    of one process to the bit.
    """
    degrees, local, ids = layer.degrees, layer.local, layer.ids
    assert ids is not None
    row = torch.repeat_interleave(torch.arange(len(degrees), device=local.device), degrees)
    k = torch.tensor(float(fanout), dtype=torch.float64, device=local.device)
    x, target = degrees.double() / k, degrees.double() * degrees.double() / k
    owner, rank = owned.owner[ids], owned.rank
    by_rank = [(owner == other).nonzero()[:, 0] for other in range(owned.num_ranks)]
    asked = yield [ids[own] if other != rank else ids[:0] for other, own in enumerate(by_rank)]
    for number, wanted in enumerate(asked):
        if number != rank:
            owned.check_owned("the ids that other ranks ask for", wanted)
    parts = [ids[by_rank[rank]] if other == rank else wanted.to(ids) for other, wanted in enumerate(asked)]
    mine, places = torch.unique(torch.cat(parts), return_inverse=True)
    place = places.split([len(part) for part in parts])
    rho, of_mine = torch.ones_like(ids, dtype=torch.float64), torch.ones_like(mine, dtype=torch.float64)
    previous, done, again = math.inf, 0, True
    while again:
        least = torch.full_like(rho, math.inf).scatter_reduce(0, local, x[row], "amin")
        sent = yield [_bits(least[own if other != rank else own[:0]]) for other, own in enumerate(by_rank)]
        minima = [least[by_rank[rank]] if other == rank else _floats(found, rho) for other, found in enumerate(sent)]
        of_all = torch.full_like(of_mine, math.inf).scatter_reduce(0, places, torch.cat(minima), "amin")
        of_mine = (of_mine * of_all).clamp(min=_SMALLEST)
        number = (of_mine.reciprocal().clamp(max=1) * _COUNT_SCALE).long().sum()[None]
        answers = [torch.cat([number, _bits(of_mine[at])]) for at in place]
        back = yield [answer if other != rank else answer[:0] for other, answer in enumerate(answers)]
        back[rank] = answers[rank]
        for own, answer in zip(by_rank, back, strict=True):
            rho[own] = _floats(answer[1:], rho)
        total = float(sum(int(answer[0]) for answer in back))
        x, _ = _solve_torch(rho[local], row, degrees > fanout, x, target, sum_scales(degrees, fanout), number[0])
        done += 1
        again, previous = done != rounds and total < previous * _CONVERGED, total
    return Importance(rho, x, done)


def _bits(values: Tensor) -> Tensor:
    """Float64 as int64, which ranks exchange."""
    return values.contiguous().view(torch.int64)


def _floats(bits: Tensor, like: Tensor) -> Tensor:
    return bits.to(like.device).contiguous().view(torch.float64)


_DENSE = 4  # nodes of the graph per candidate up to which arrays of all nodes are cheaper than relabelling


def bipartite_layer(rows: Candidates, indices: Tensor, num_nodes: int, *, positions: bool) -> BipartiteLayer:
    """Number the sources of all candidates, on the CPU."""
    if not len(rows.excluded) and int(rows.degrees.numpy().sum()) * _DENSE >= num_nodes:  # raw ids are numbers enough
        offsets = row_offsets(rows.degrees)
        return BipartiteLayer(offsets, rows.starts, rows.degrees, indices, indices, num_nodes)
    full = draw_uniform(rows, indices, -1, replace=False, key=0, positions=positions)
    offsets = full.indptr
    with relabeler(num_nodes, offsets[:0]) as labels:
        local, ids = labels(full.sources), labels.node_ids
    return BipartiteLayer(offsets, offsets[:-1], rows.degrees, local, full.sources, len(ids), ids, full.positions)
