"""LABOR-0's choice: one variate per source, shared by all destinations, against a threshold per destination.

An edge t → s is kept if r_t ≤ k / d_s (Poisson sampling), or if r_t is among the k smallest of the row (sequential
Poisson sampling). The more sources two destinations share, the fewer distinct ones they draw. Under a mixture of two
streams, normals n_t are compared with Φ⁻¹(k / d_s), and r_t = Φ(n_t) is not needed.
"""

import numpy as np
import torch
from torch import Tensor

from workbench.core.variates import Variates
from workbench.kernels.hash import TWO_TO_MINUS_53, hash_index, unit_interval
from workbench.kernels.jit import compiled, compiled_inline
from workbench.kernels.lanes import LANES, first_lanes, hash_below
from workbench.kernels.normal import (
    mixed_normal,
    mixed_normal_torch,
    mixed_uniform_torch,
    normal_quantile,
    normal_quantile_torch,
)
from workbench.sampling.candidates import Candidates, expand_rows, row_offsets
from workbench.sampling.kept_rows import keep_edges, mark_smallest, prefetch_rows, without_excluded, write_kept
from workbench.sampling.race import earliest_torch
from workbench.sampling.sampler import Drawn


def keep_uniform(
    rows: Candidates, indices: Tensor, limits: Tensor, *, poisson: bool, variates: Variates, positions: bool
) -> Drawn:
    """Draw rows by LABOR-0.

    Args:
        rows: the candidates, consecutive in `indices`.
        indices: int32 or int64, sources by CSR position.
        limits: int64 [n], the fanout of every row.
        poisson: keep `limits` edges per row in expectation; otherwise exactly.
        variates: of the sources.
        positions: whether to return the edges' positions in `indices`.

    Returns:
        The drawn rows, each in CSR order.
    """
    fields = (rows.starts, rows.lengths, rows.degrees, rows.excluded, rows.first_excluded, limits)
    args = (tuple(field.numpy() for field in fields), indices.numpy(), tuple(variates))
    kernel = _keep_below if poisson else _keep_smallest
    indptr, (sources, kept_positions) = keep_edges(
        lambda lo, hi, slot, *out: kernel(lo, hi, slot, *args, *out),
        row_offsets(rows.degrees),
        [indices.dtype, torch.int64 if positions else None],
    )
    assert sources is not None
    return Drawn(indptr, sources, kept_positions)


@compiled
def _keep_below(lo, hi, slot, rows, indices, variates, counts, sources, positions):
    """Poisson sampling."""
    starts, lengths, degrees, excluded, first_excluded, limits = rows
    for i in range(lo, hi):
        prefetch_rows(i, hi, starts, lengths, indices)
        first, skip, whole = slot, first_excluded[i] if len(excluded) else 0, degrees[i] <= limits[i]
        threshold = 0.0 if whole else _threshold(np.float64(limits[i]) / np.float64(degrees[i]), variates)
        for position in range(starts[i], starts[i] + lengths[i], LANES):
            left = starts[i] + lengths[i] - position
            mask = first_lanes(left) if whole else _below(indices, position, left, variates, threshold)
            if len(excluded):
                mask, skip = without_excluded(mask, position, excluded, skip)
            slot = write_kept(mask, position, indices, sources, positions, slot)
        counts[i] = slot - first


@compiled_inline
def _threshold(probability, variates):
    """Return what variates are compared with.

    Normals are compared with Φ⁻¹(p), uniform variates in whole numbers: r ≤ p if r · 2⁵³ ≤ ⌊p · 2⁵³⌋.
    """
    if variates[3] != 0.0:
        return normal_quantile(probability)
    return np.floor(probability / TWO_TO_MINUS_53) if probability > 0.0 else -1.0


@compiled_inline
def _below(indices, position, count, variates, threshold):
    """Return which of eight sources have variates of at most the threshold."""
    key, next_key, cosine, sine = variates
    if sine == 0.0:
        return hash_below(indices, position, count, key, np.int64(threshold))
    mask = np.uint64(0)
    for b in range(min(count, LANES)):
        below = mixed_normal(key, next_key, cosine, sine, indices[position + b]) <= threshold
        mask |= np.uint64(below) << np.uint64(b)
    return mask


@compiled
def _keep_smallest(lo, hi, slot, rows, indices, variates, counts, sources, positions):
    """Sequential Poisson sampling."""
    starts, lengths, degrees, excluded, first_excluded, limits = rows
    longest = lengths[lo:hi].max() if hi > lo else 0
    most = min(longest, limits[lo:hi].max()) if hi > lo else 0
    keys, masks = np.empty(longest), np.empty(longest // LANES + 1, np.uint8)
    smallest, offsets = np.empty(most), np.empty(most, np.int64)
    for i in range(lo, hi):
        prefetch_rows(i, hi, starts, lengths, indices)
        counts[i], skip = min(degrees[i], limits[i]), first_excluded[i] if len(excluded) else 0
        if degrees[i] > limits[i]:
            _order_row(indices, starts[i], lengths[i], variates, excluded, skip, keys)
            mark_smallest(masks, keys, lengths[i], smallest[: counts[i]], offsets)
        for j in range(0, lengths[i], LANES):
            position, mask = starts[i] + j, np.uint64(masks[j // LANES])
            if degrees[i] <= limits[i]:
                mask, skip = without_excluded(first_lanes(lengths[i] - j), position, excluded, skip)
            slot = write_kept(mask, position, indices, sources, positions, slot)


@compiled_inline
def _order_row(indices, start, length, variates, excluded, skip, keys):
    """Write a number per edge that orders the sources as their variates r do; infinite if excluded."""
    key, next_key, cosine, sine = variates
    for j in range(length):
        source = indices[start + j]
        if sine == 0.0:
            keys[j] = unit_interval(hash_index(key, source))
        else:
            keys[j] = mixed_normal(key, next_key, cosine, sine, source)
    while skip < len(excluded) and excluded[skip] < start + length:
        keys[excluded[skip] - start] = np.inf
        skip += 1


def keep_uniform_torch(
    rows: Candidates, indices: Tensor, limits: Tensor, *, poisson: bool, variates: Variates
) -> tuple[Tensor, Tensor]:
    """Choose as `keep_uniform` does, in plain torch for any device; the oracle of the compiled kernels.

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
