"""LABOR-i's and LABOR-*'s choice: an edge t → s is kept if r_t ≤ c_s · π_t, and weighted by its inverse probability.

With ρ = 1/π and x = 1/c (`importance.py`), the key of a source is r_t · ρ_t, computed once: an edge is kept if
key · x ≤ 1 (Poisson sampling), or if its key is among the k smallest of the row (sequential Poisson sampling).
"""

import numpy as np
import torch
from torch import Tensor

from workbench.core.variates import Variates
from workbench.kernels.jit import compiled, compiled_inline
from workbench.kernels.lanes import LANES, at_most_one, compress, first_lanes, gather, hash_units, multiply
from workbench.kernels.normal import mixed_uniform, mixed_uniform_torch
from workbench.kernels.threads import parallel_rows
from workbench.sampling.bipartite_layer import BipartiteLayer, bipartite_layer
from workbench.sampling.candidates import Candidates, row_offsets
from workbench.sampling.importance import (
    Importance,
    clamped_total,
    importance_torch,
    optimise,
    solve_row,
    sum_scale,
    sum_scales,
)
from workbench.sampling.kept_rows import keep_edges, mark_smallest, prefetch_rows, write_kept
from workbench.sampling.race import earliest_torch
from workbench.sampling.sampler import Drawn
from workbench.sampling.uniform import draw_uniform_torch


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
    """Draw rows by LABOR-i or LABOR-*.

    Args:
        rows: the candidates, consecutive in `indices`.
        indices: int32 or int64 [num_edges], the graph's sources by CSR position.
        fanout: k, at least 1.
        rounds: i; None: until convergence.
        poisson: keep edges with their probabilities; otherwise min(fanout, degree) per row.
        variates: of the sources.
        positions: whether to return the edges' CSR positions.
        num_nodes: number of nodes of the graph.

    Returns:
        The drawn rows, each in CSR order, with float32 weights whose mean is 1 in every row.
    """
    options = {"rounds": rounds, "poisson": poisson, "variates": variates, "positions": positions}
    if indices.device.type != "cpu":
        return draw_important_torch(rows, indices, fanout, **options)
    layer = bipartite_layer(rows, indices, num_nodes, positions=positions)
    return draw_layer(layer, fanout, rounds=rounds, poisson=poisson, variates=variates, positions=positions)[0]


def draw_layer(
    layer: BipartiteLayer, fanout: int, *, rounds: int | None, poisson: bool, variates: Variates, positions: bool
) -> tuple[Drawn, Importance]:
    """Draw all rows of a layer.

    Args:
        layer: all candidates.
        fanout: k, at least 1.
        rounds: i; None: until convergence.
        poisson: keep edges with their probabilities; otherwise min(fanout, degree) per row.
        variates: of the sources.
        positions: whether to return the edges' CSR positions.

    Returns:
        The drawn rows, with raw ids, and their inclusion probabilities.
    """
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
    sources, local = torch.unique(full.sources.long(), return_inverse=True)
    found = importance_torch(BipartiteLayer.of_csr(full.indptr, local, sources), fanout, rounds)
    keys = mixed_uniform_torch(*variates, sources) * found.rho
    row = torch.repeat_interleave(torch.arange(len(rows.degrees), device=indices.device), rows.degrees)
    limits = rows.degrees.clamp(max=fanout)
    whole = rows.degrees <= fanout
    if poisson:
        kept = ((keys[local] * found.x[row] <= 1) | whole[row]).nonzero()[:, 0]
    else:
        kept = earliest_torch(keys[local], row, limits).sort().values
    row = row[kept]
    counts = torch.bincount(row, minlength=len(limits))
    inverse = (found.rho[local[kept]] * found.x[row]).clamp(min=1)
    scale = sum_scales(rows.degrees, fanout)
    total = torch.zeros_like(limits).index_add_(0, row, (inverse * scale[row]).long())
    norm = counts.double() * scale / total.double()
    weight = torch.where(whole[row], 1.0, inverse * norm[row]).float()
    assert full.positions is not None
    position = full.positions[kept]
    return Drawn(row_offsets(counts), indices[position], position if positions else None, weight)
