"""LABOR-0's choice: one variate per source, shared by all destinations, against a threshold per destination.

An edge t → s is kept if r_t ≤ k / d_s (Poisson sampling), or if r_t is among the k smallest of the row (sequential
Poisson sampling). The more sources two destinations share, the fewer distinct ones they draw. Under a mixture of two
streams, normals n_t are compared with Φ⁻¹(k / d_s), and r_t = Φ(n_t) is not needed.
"""

import numpy as np
import torch
from torch import Tensor

from workbench.core.variates import Variates
from workbench.kernels.bits import popcount
from workbench.kernels.hash import TWO_TO_MINUS_53, hash_index, unit_interval
from workbench.kernels.jit import compiled
from workbench.kernels.normal import (
    mixed_normal,
    mixed_normal_torch,
    mixed_uniform,
    mixed_uniform_torch,
    normal_quantile,
    normal_quantile_torch,
)
from workbench.kernels.threads import parallel_edges, parallel_rows
from workbench.sampling.candidates import Candidates, expand_rows
from workbench.sampling.marked_rows import (
    WORD_BITS,
    MarkedRows,
    mark_smallest,
    prefetch_rows,
    unmark_excluded,
    unmarked_rows,
)
from workbench.sampling.race import earliest_torch

_WORK_PER_WORD = 64
_ZERO = np.uint64(0)
_S11 = np.uint64(11)


def mark_uniform(rows: Candidates, indices: Tensor, limits: Tensor, *, poisson: bool, variates: Variates) -> MarkedRows:
    """Mark the edges that LABOR-0 keeps.

    Args:
        rows: the candidates, consecutive in `indices`.
        indices: int32 or int64, sources by CSR position.
        limits: int64 [n], the fanout of every row.
        poisson: keep `limits` edges per row in expectation; otherwise exactly.
        variates: of the sources.

    Returns:
        The marked rows.
    """
    marks = unmarked_rows(rows, limits)
    arrays = tuple(t.numpy() for t in (rows.starts, rows.lengths, rows.degrees, rows.excluded, rows.first_excluded))
    kernel = _mark_below if poisson else _mark_smallest
    args = (arrays, limits.numpy(), indices.numpy(), tuple(variates), *marks.arrays())
    parallel_edges(lambda lo, hi: kernel(lo, hi, *args), marks.offsets, _WORK_PER_WORD)
    return marks


@compiled
def _mark_below(lo, hi, rows, limits, indices, variates, words, offsets, counts):
    """Poisson sampling."""
    starts, lengths, degrees, excluded, first_excluded = rows
    for i in range(lo, hi):
        prefetch_rows(i, hi, starts, lengths, indices)
        counts[i] = degrees[i]
        if offsets[i] == offsets[i + 1]:
            continue
        row = words[offsets[i] : offsets[i + 1]]
        probability = np.float64(limits[i]) / np.float64(degrees[i])
        if variates[3] == 0.0:
            _mark_uniforms(row, indices, starts[i], lengths[i], variates[0], probability)
        else:
            _mark_normals(row, indices, starts[i], lengths[i], variates, probability)
        if len(excluded):
            unmark_excluded(row, starts[i], lengths[i], excluded, first_excluded[i])
        count = 0
        for w in range(len(row)):
            count += popcount(row[w])
        counts[i] = count


@compiled
def _mark_uniforms(row, indices, start, length, key, probability):
    """Mark r ≤ p, compared in whole numbers, r · 2⁵³ ≤ ⌊p · 2⁵³⌋, so that the loop is vectorized."""
    threshold = np.int64(probability / TWO_TO_MINUS_53) if probability > 0.0 else -1
    for w in range(len(row)):
        word, base = _ZERO, start + w * WORD_BITS
        for b in range(min(WORD_BITS, start + length - base)):
            keep = np.int64(hash_index(key, indices[base + b]) >> _S11) <= threshold
            word |= np.uint64(keep) << np.uint64(b)
        row[w] = word


@compiled
def _mark_normals(row, indices, start, length, variates, probability):
    """Mark n ≤ Φ⁻¹(p)."""
    key, next_key, cosine, sine = variates
    threshold = normal_quantile(probability)
    for w in range(len(row)):
        word, base = _ZERO, start + w * WORD_BITS
        for b in range(min(WORD_BITS, start + length - base)):
            keep = mixed_normal(key, next_key, cosine, sine, indices[base + b]) <= threshold
            word |= np.uint64(keep) << np.uint64(b)
        row[w] = word


@compiled
def _order_key(variates, source):
    """Return a number that orders the sources as their variates r do."""
    key, next_key, cosine, sine = variates
    if sine == 0.0:
        return unit_interval(hash_index(key, source))
    return mixed_normal(key, next_key, cosine, sine, source)


@compiled
def _mark_smallest(lo, hi, rows, limits, indices, variates, words, offsets, counts):
    """Sequential Poisson sampling."""
    starts, lengths, degrees, excluded, first_excluded = rows
    keys = np.empty(lengths[lo:hi].max() if hi > lo else 0)
    for i in range(lo, hi):
        prefetch_rows(i, hi, starts, lengths, indices)
        counts[i] = min(degrees[i], limits[i])
        if offsets[i] == offsets[i + 1]:
            continue
        for j in range(lengths[i]):
            keys[j] = _order_key(variates, indices[starts[i] + j])
        if len(excluded):
            skip = first_excluded[i]
            while skip < len(excluded) and excluded[skip] < starts[i] + lengths[i]:
                keys[excluded[skip] - starts[i]] = np.inf
                skip += 1
        row = words[offsets[i] : offsets[i + 1]]
        mark_smallest(row, keys, lengths[i], np.empty(counts[i]), np.empty(counts[i], np.int64))


def keep_uniform_torch(
    rows: Candidates, indices: Tensor, limits: Tensor, *, poisson: bool, variates: Variates
) -> tuple[Tensor, Tensor]:
    """Choose as `mark_uniform` does, in plain torch for any device; the oracle of the compiled kernels.

    Returns:
        Row and position in `indices` of every edge kept, int64 [num_kept] each.
    """
    row, position = expand_rows(rows)
    candidate = ~torch.isin(position, rows.excluded)
    row, position = row[candidate], position[candidate]
    sources, mixed = indices[position].long(), variates.sine != 0.0
    keys = mixed_normal_torch(*variates, sources) if mixed else mixed_uniform_torch(*variates, sources)
    if poisson:
        probability = limits.double() / rows.degrees.double()
        threshold = normal_quantile_torch(probability) if mixed else probability
        kept = (keys <= threshold[row]) & (limits > 0)[row]
        return row[kept], position[kept]
    kept = earliest_torch(keys, row, torch.minimum(limits, rows.degrees)).sort().values
    return row[kept], position[kept]


def source_variates(sources: Tensor, variates: Variates) -> Tensor:
    """Return the variate r of every source, float64 in [0, 1).

    Args:
        sources: int64 [n], raw-graph ids, on the CPU.
        variates: of the sources.
    """
    out = torch.empty(len(sources), dtype=torch.float64)
    args = (sources.numpy(), tuple(variates), out.numpy())
    parallel_rows(lambda lo, hi: _source_variates(lo, hi, *args), len(sources), 1 << 15)
    return out


@compiled
def _source_variates(lo, hi, sources, variates, out):
    key, next_key, cosine, sine = variates
    for i in range(lo, hi):
        out[i] = mixed_uniform(key, next_key, cosine, sine, sources[i])
