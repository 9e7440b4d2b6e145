"""LABOR-0's choice: one variate per source, shared by all destinations, against a threshold per destination.

An edge t → s is kept if r_t ≤ k / d_s (Poisson sampling), or if r_t is among the k smallest of the row (sequential
Poisson sampling). The more sources two destinations share, the fewer distinct ones they draw.
"""

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.hash import (
    TWO_TO_MINUS_53,
    hash_index,
    hash_index_torch,
    unit_interval,
    unit_interval_torch,
)
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_edges, parallel_rows
from workbench.sampling.candidates import Candidates, expand_rows
from workbench.sampling.marked_rows import (
    WORD_BITS,
    MarkedRows,
    mark_smallest,
    popcount,
    prefetch_rows,
    unmark_excluded,
    unmarked_rows,
)
from workbench.sampling.weighted import earliest_torch

_WORK_PER_WORD = 64
_ZERO = np.uint64(0)
_S11 = np.uint64(11)


def mark_uniform(rows: Candidates, indices: Tensor, limits: Tensor, *, poisson: bool, key: int) -> MarkedRows:
    """Mark the edges that LABOR-0 keeps.

    Args:
        rows: the candidates, consecutive in `indices`.
        indices: int32 or int64, sources by CSR position.
        limits: int64 [n], the fanout of every row.
        poisson: keep `limits` edges per row in expectation; otherwise exactly.
        key: key of the sources' variates.

    Returns:
        The marked rows.
    """
    marks = unmarked_rows(rows, limits)
    arrays = tuple(t.numpy() for t in (rows.starts, rows.lengths, rows.degrees, rows.excluded, rows.first_excluded))
    kernel = _mark_below if poisson else _mark_smallest
    args = (arrays, limits.numpy(), indices.numpy(), key, *marks.arrays())
    parallel_edges(lambda lo, hi: kernel(lo, hi, *args), marks.offsets, _WORK_PER_WORD)
    return marks


@compiled
def _mark_below(lo, hi, rows, limits, indices, key, words, offsets, counts):
    """Poisson sampling; r ≤ p is compared in whole numbers: r · 2⁵³ ≤ ⌊p · 2⁵³⌋."""
    starts, lengths, degrees, excluded, first_excluded = rows
    for i in range(lo, hi):
        prefetch_rows(i, hi, starts, lengths, indices)
        counts[i] = degrees[i]
        if offsets[i] == offsets[i + 1]:
            continue
        threshold = np.int64(np.float64(limits[i]) / np.float64(degrees[i]) / TWO_TO_MINUS_53) if limits[i] else -1
        row, end, count = words[offsets[i] : offsets[i + 1]], starts[i] + lengths[i], 0
        base = starts[i]
        for w in range(len(row)):
            word = _ZERO
            for b in range(min(WORD_BITS, end - base)):
                keep = np.int64(hash_index(key, indices[base + b]) >> _S11) <= threshold
                word |= np.uint64(keep) << np.uint64(b)
            row[w] = word
            base += WORD_BITS
        if len(excluded):
            unmark_excluded(row, starts[i], lengths[i], excluded, first_excluded[i])
        for w in range(len(row)):
            count += popcount(row[w])
        counts[i] = count


@compiled
def _mark_smallest(lo, hi, rows, limits, indices, key, words, offsets, counts):
    """Sequential Poisson sampling."""
    starts, lengths, degrees, excluded, first_excluded = rows
    keys = np.empty(lengths[lo:hi].max() if hi > lo else 0)
    for i in range(lo, hi):
        prefetch_rows(i, hi, starts, lengths, indices)
        counts[i] = min(degrees[i], limits[i])
        if offsets[i] == offsets[i + 1]:
            continue
        for j in range(lengths[i]):
            keys[j] = unit_interval(hash_index(key, indices[starts[i] + j]))
        if len(excluded):
            skip = first_excluded[i]
            while skip < len(excluded) and excluded[skip] < starts[i] + lengths[i]:
                keys[excluded[skip] - starts[i]] = np.inf
                skip += 1
        row = words[offsets[i] : offsets[i + 1]]
        mark_smallest(row, keys, lengths[i], np.empty(counts[i]), np.empty(counts[i], np.int64))


def keep_uniform_torch(
    rows: Candidates, indices: Tensor, limits: Tensor, *, poisson: bool, key: int
) -> tuple[Tensor, Tensor]:
    """Choose as `mark_uniform` does, in plain torch for any device; the oracle of the compiled kernels.

    Returns:
        Row and position in `indices` of every edge kept, int64 [num_kept] each.
    """
    row, position = expand_rows(rows)
    candidate = ~torch.isin(position, rows.excluded)
    row, position = row[candidate], position[candidate]
    keys = source_keys_torch(indices[position], key)
    if poisson:
        kept = (keys <= (limits.double() / rows.degrees.double())[row]) & (limits > 0)[row]
        return row[kept], position[kept]
    kept = earliest_torch(keys, row, torch.minimum(limits, rows.degrees)).sort().values
    return row[kept], position[kept]


def source_keys(sources: Tensor, key: int) -> Tensor:
    """Return the variate of every source, float64 in [0, 1).

    Args:
        sources: int64 [n], raw-graph ids.
        key: key of the sources' variates.
    """
    if sources.device.type != "cpu":
        return source_keys_torch(sources, key)
    out = torch.empty(len(sources), dtype=torch.float64)
    parallel_rows(lambda lo, hi: _source_keys(lo, hi, sources.numpy(), key, out.numpy()), len(sources), 1 << 15)
    return out


@compiled
def _source_keys(lo, hi, sources, key, out):
    for i in range(lo, hi):
        out[i] = unit_interval(hash_index(key, sources[i]))


def source_keys_torch(sources: Tensor, key: int) -> Tensor:
    """Compute `source_keys` in plain torch, on any device."""
    return unit_interval_torch(hash_index_torch(key, sources))
