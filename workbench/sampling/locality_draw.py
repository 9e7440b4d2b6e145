"""Locality-aware draws: an edge t → s is kept if r_t ≤ min(1, c_s · φ_t), with c_s such that a row keeps k on average.

φ_t is the factor of a source and r_t its variate, which all destinations share. Factors are a few levels, so a row
counts its candidates per level, solves for c_s in one pass over the levels, and compares with one threshold per level.
Sums run over the levels in order: numba and torch agree to the bit, for any number of threads.
"""

import numpy as np
import torch
from torch import Tensor

from workbench.core.variates import Variates
from workbench.kernels.bits import lowest_bit
from workbench.kernels.hash import TWO_TO_MINUS_53, hash_index, unit_interval
from workbench.kernels.jit import compiled, compiled_inline
from workbench.kernels.lanes import LANES, first_lanes, hash_below
from workbench.kernels.normal import mixed_uniform, mixed_uniform_torch
from workbench.kernels.relabel import invalid_source
from workbench.sampling.candidates import Candidates, expand_rows, row_offsets
from workbench.sampling.inverse_weights import WEIGHTS, inverse_weights
from workbench.sampling.kept_rows import keep_edges, prefetch_rows, without_excluded, write_kept
from workbench.sampling.labor import row_limits
from workbench.sampling.levels import Levels
from workbench.sampling.sampler import Drawn

_ONE, _ZERO = np.uint64(1), np.uint64(0)
_MEAN, _RATIO = WEIGHTS.index("mean"), WEIGHTS.index("ratio")


def draw_local(
    indices: Tensor,
    levels: Levels,
    variates: Variates,
    rows: Candidates,
    fanout: int | Tensor,
    *,
    weights: str,
    positions: bool,
) -> Drawn:
    """Draw rows by Poisson sampling with factors.

    Args:
        indices: int32 or int64 [num_edges], the graph's sources by CSR position.
        levels: the factors.
        variates: of the sources.
        rows: the candidates.
        fanout: edges to draw in expectation, for all rows or int64 [n]; -1: all.
        weights: one of `WEIGHTS`.
        positions: whether to return the edges' CSR positions.

    Returns:
        The drawn rows, each in CSR order, with float32 weights.
    """
    if rows.positions is not None:
        grouped, sources = rows._replace(positions=None), indices[rows.positions]
        drawn = draw_local(sources, levels, variates, grouped, fanout, weights=weights, positions=True)
        return drawn._replace(positions=rows.positions[drawn.positions] if positions else None)
    limits = row_limits(rows, torch.full_like(rows.degrees, fanout) if isinstance(fanout, int) else fanout)
    if indices.device.type != "cpu":
        return draw_local_torch(indices, levels, variates, rows, limits, weights=weights, positions=positions)
    fields = (rows.starts, rows.lengths, rows.degrees, rows.excluded, rows.first_excluded, limits)
    invalid = np.full(1, -1)
    factors = (levels.factors.numpy(), levels.codes.numpy(), WEIGHTS.index(weights))
    args = (tuple(field.numpy() for field in fields), indices.numpy(), factors, tuple(variates), invalid)
    indptr, (sources, kept, weight) = keep_edges(
        lambda lo, hi, slot, *out: _keep_rows(lo, hi, slot, *args, *out),
        row_offsets(rows.degrees),
        [indices.dtype, torch.int64 if positions else None, torch.float32],
    )
    if invalid[0] >= 0:
        raise invalid_source(int(indices[invalid[0]]), len(levels.codes))
    assert sources is not None
    return Drawn(indptr, sources, kept, weight)


@compiled
def _keep_rows(lo, hi, slot, rows, indices, levels, variates, invalid, counts, sources, positions, weights):
    """Count, solve, decide and weigh row by row."""
    starts, lengths, degrees, excluded, first_excluded, limits = rows
    factors, codes, kind = levels
    found, p = np.empty(len(factors), np.int64), np.empty(len(factors))
    for i in range(lo, hi):
        prefetch_rows(i, hi, starts, lengths, indices)
        first, start, end, whole = slot, starts[i], starts[i] + lengths[i], degrees[i] <= limits[i]
        skip, top = first_excluded[i] if len(excluded) else 0, 0
        if not whole:
            if not _count_levels(indices, start, end, excluded, skip, codes, found, invalid):
                counts[i:hi] = 0
                break
            top = _solve(found, factors, limits[i], p)
        for position in range(start, end, LANES):
            left = end - position
            mask = first_lanes(left) if whole else _below(indices, position, left, variates, codes, found, p, top)
            if len(excluded):
                mask, skip = without_excluded(mask, position, excluded, skip)
            slot = write_kept(mask, position, indices, sources, positions, slot)
        counts[i] = slot - first
        if whole:
            for e in range(first, slot):
                weights[e] = 1.0
        else:
            _weigh(sources, first, slot, codes, found, p, np.float64(degrees[i]), kind, weights)


@compiled_inline
def _count_levels(indices, start, end, excluded, skip, codes, found, invalid):
    """Count a row's candidates per level; return False at a source that is out of range."""
    for level in range(len(found)):
        found[level] = 0
    if len(found) == 2:  # the common case, without a store per edge that the next one waits for
        second = 0
        for e in range(start, end):
            if not 0 <= indices[e] < len(codes):
                invalid[0] = e
                return False
            second += codes[indices[e]]
        found[0], found[1] = end - start - second, second
    else:
        for e in range(start, end):
            if not 0 <= indices[e] < len(codes):
                invalid[0] = e
                return False
            found[codes[indices[e]]] += 1
    while skip < len(excluded) and excluded[skip] < end:
        found[codes[indices[excluded[skip]]]] -= 1
        skip += 1
    return True


@compiled_inline
def _solve(found, factors, limit, p):
    """Write each level's probability, whose sum over the row is `limit`; return the first level that has candidates.

    Levels are clamped to 1 from the largest factor on; the rest share what is left of the limit.
    """
    num, top = len(factors), 0
    p[num - 1] = found[num - 1] * factors[num - 1]
    for level in range(num - 2, -1, -1):  # masses of a level and all behind it
        p[level] = p[level + 1] + found[level] * factors[level]
    while top < num - 1 and found[top] == 0:
        top += 1
    level, left = 0, limit
    c = np.float64(left) / p[0]
    while level < num - 1 and found[level] < left and factors[level] * c >= 1.0:
        left -= found[level]
        level += 1
        c = np.float64(left) / p[level]
    for other in range(num):
        p[other] = 1.0 if other < level else min(1.0, factors[other] * c)
        if limit == 0:
            p[other] = -1.0
    return top


@compiled_inline
def _below(indices, position, count, variates, codes, found, p, top):
    """Return which of eight sources have variates of at most the probabilities of their levels.

    Probabilities fall with the level, so few variates pass the comparison with the row's largest one; those are
    compared again.
    """
    key, next_key, cosine, sine = variates
    mask = np.uint64(0)
    if sine != 0.0:
        for b in range(min(count, LANES)):
            source = indices[position + b]
            below = mixed_uniform(key, next_key, cosine, sine, source) <= p[codes[source]]
            mask |= np.uint64(below) << np.uint64(b)
        return mask
    mask = hash_below(indices, position, count, key, np.int64(np.floor(p[top] / TWO_TO_MINUS_53)))
    rest = mask if len(p) > 1 else _ZERO
    while rest != _ZERO:
        bit = rest & (~rest + _ONE)
        source = indices[position + lowest_bit(rest)]
        if unit_interval(hash_index(key, source)) > p[codes[source]]:
            mask &= ~bit
        rest &= ~bit
    return mask


@compiled_inline
def _weigh(sources, first, last, codes, kept, p, degree, kind, weights):
    """Compute `inverse_weights` of the edges kept; `kept` is scratch memory for their number per level."""
    norm, count = 1.0, np.float64(last - first)
    if kind == _MEAN:
        norm = count / degree
    elif kind == _RATIO:
        for level in range(len(kept)):
            kept[level] = 0
        for e in range(first, last):
            kept[codes[sources[e]]] += 1
        total = 0.0
        for level in range(len(kept)):
            total += np.float64(kept[level]) * (1.0 / p[level])
        norm = count / total
    for e in range(first, last):
        weights[e] = norm * (1.0 / p[codes[sources[e]]])


def draw_local_torch(
    indices: Tensor,
    levels: Levels,
    variates: Variates,
    rows: Candidates,
    limits: Tensor,
    *,
    weights: str,
    positions: bool,
) -> Drawn:
    """Draw as `draw_local` does, in plain torch for any device; its oracle."""
    row, position = expand_rows(rows)
    candidate = ~torch.isin(position, rows.excluded)
    row, position = row[candidate], position[candidate]
    sources = indices[position].long()
    code, num = levels.codes[sources].long(), len(levels.factors)
    found = _per_level(row, code, len(limits), num)
    p = _solve_torch(found, levels.factors, limits, rows.degrees <= limits)
    kept = mixed_uniform_torch(*variates, sources) <= p[row, code]
    row, position, code = row[kept], position[kept], code[kept]
    counts, totals = _per_level(row, code, len(limits), num), torch.zeros_like(p[:, 0])
    for level in range(num):
        totals = totals + counts[:, level].double() * (1.0 / p[:, level])
    number = counts.sum(1)
    weight = inverse_weights(weights, 1.0 / p[row, code], number, rows.degrees, totals, row)
    return Drawn(row_offsets(number), indices[position], position if positions else None, weight)


def _per_level(row: Tensor, code: Tensor, num_rows: int, num_levels: int) -> Tensor:
    return torch.bincount(row * num_levels + code, minlength=num_rows * num_levels).view(num_rows, num_levels)


def _solve_torch(found: Tensor, factors: Tensor, limits: Tensor, whole: Tensor) -> Tensor:
    """Solve as `_solve` does, for all rows together: float64 [num_rows, num_levels], 1 for rows kept whole."""
    products = found * factors
    mass = [products[:, -1]]
    for level in range(len(factors) - 2, -1, -1):
        mass.insert(0, mass[0] + products[:, level])
    c, left = limits / mass[0], limits
    clamped, going = torch.zeros_like(found, dtype=torch.bool), ~whole
    for level in range(len(factors) - 1):
        going = going & (found[:, level] < left) & (factors[level] * c >= 1.0)
        left = torch.where(going, left - found[:, level], left)
        c = torch.where(going, left / mass[level + 1], c)
        clamped[:, level] = going
    p = torch.where(clamped | whole[:, None], 1.0, (factors * c[:, None]).clamp(max=1.0))
    return torch.where((limits == 0)[:, None] & ~whole[:, None], -1.0, p)
