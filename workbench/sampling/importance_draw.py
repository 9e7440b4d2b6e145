"""LABOR-i's and LABOR-*'s choice: an edge t → s is kept if r_t ≤ c_s · π_t, and weighted by its inverse probability.

With ρ = 1/π and x = 1/c (`importance.py`), the key of a source is r_t · ρ_t, computed once: an edge is kept if
key · x ≤ 1 (Poisson sampling), or if its key is among the k smallest of the row (sequential Poisson sampling).
"""

import numpy as np
import torch
from torch import Tensor

from workbench.core.variates import Variates
from workbench.kernels.bits import lowest_bit, popcount
from workbench.kernels.jit import compiled
from workbench.kernels.normal import mixed_uniform_torch
from workbench.kernels.relabel import relabeler
from workbench.kernels.threads import parallel_edges
from workbench.sampling.candidates import Candidates, row_offsets
from workbench.sampling.importance import Importance, importance, importance_torch, sum_scale, sum_scales
from workbench.sampling.marked_rows import (
    WORD_BITS,
    MarkedRows,
    mark_smallest,
    unmarked_rows,
    write_marked,
)
from workbench.sampling.race import earliest_torch
from workbench.sampling.sampler import Drawn
from workbench.sampling.shared_variates import source_variates
from workbench.sampling.uniform import draw_uniform, draw_uniform_torch

_WORK_PER_WORD = 64
_ZERO, _ONE = np.uint64(0), np.uint64(1)


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
    moved = bool(len(rows.excluded))  # candidates are not consecutive: work on a copy of them
    full = draw_uniform(rows, indices, -1, replace=False, key=0, positions=moved and positions)
    with relabeler(num_nodes, full.indptr[:0]) as labels:
        local = labels(full.sources, overwrite=not moved)
        sources = labels.node_ids
        found = importance(full.indptr, local, len(sources), fanout, rounds)
        keys = source_variates(sources, variates).mul_(found.rho)
    marks = _mark(rows, full.indptr, local, fanout, keys, found.x, poisson=poisson)
    if moved:
        none = rows.excluded[:0]
        rows = rows._replace(starts=full.indptr[:-1], lengths=rows.degrees, excluded=none, first_excluded=none)
    drawn = write_marked(rows, marks, full.sources if moved else indices, positions=positions)
    weight = _weigh(drawn.indptr, full.indptr, local, fanout, found, marks)
    if full.positions is not None:
        assert drawn.positions is not None
        drawn = drawn._replace(positions=full.positions[drawn.positions])
    return drawn._replace(weight=weight)


def _mark(
    rows: Candidates, indptr: Tensor, local: Tensor, fanout: int, keys: Tensor, x: Tensor, *, poisson: bool
) -> MarkedRows:
    marks = unmarked_rows(rows._replace(lengths=rows.degrees), torch.full_like(rows.degrees, fanout))
    kernel = _mark_below if poisson else _mark_smallest
    args = (indptr.numpy(), local.numpy(), fanout, keys.numpy(), x.numpy(), *marks.arrays())
    parallel_edges(lambda lo, hi: kernel(lo, hi, *args), marks.offsets, _WORK_PER_WORD)
    return marks


@compiled
def _mark_below(lo, hi, indptr, local, fanout, keys, x, words, offsets, counts):
    for i in range(lo, hi):
        base, end, count = indptr[i], indptr[i + 1], 0
        counts[i] = end - base
        if offsets[i] == offsets[i + 1]:
            continue
        for w in range(offsets[i], offsets[i + 1]):
            word = _ZERO
            for b in range(min(WORD_BITS, end - base)):
                word |= np.uint64(keys[local[base + b]] * x[i] <= 1.0) << np.uint64(b)
            words[w] = word
            count += popcount(word)
            base += WORD_BITS
        counts[i] = count


@compiled
def _mark_smallest(lo, hi, indptr, local, fanout, keys, x, words, offsets, counts):
    longest = 0
    for i in range(lo, hi):
        longest = max(longest, indptr[i + 1] - indptr[i])
    buffer = np.empty(longest)
    smallest, slots = np.empty(min(fanout, longest)), np.empty(min(fanout, longest), np.int64)
    for i in range(lo, hi):
        degree = indptr[i + 1] - indptr[i]
        counts[i] = min(degree, fanout)
        if offsets[i] == offsets[i + 1]:
            continue
        for j in range(degree):
            buffer[j] = keys[local[indptr[i] + j]]
        mark_smallest(words[offsets[i] : offsets[i + 1]], buffer, degree, smallest, slots)


def _weigh(
    drawn_indptr: Tensor, indptr: Tensor, local: Tensor, fanout: int, found: Importance, marks: MarkedRows
) -> Tensor:
    """Return the weights of the kept edges, float32: 1 / min(1, c · π), divided by its mean over the row."""
    weight = torch.empty(int(drawn_indptr[-1]), dtype=torch.float32)
    words, offsets, _ = marks.arrays()
    args = tuple(t.numpy() for t in (drawn_indptr, indptr, local, found.rho, found.x))
    out = weight.numpy()
    parallel_edges(lambda lo, hi: _weigh_rows(lo, hi, *args, float(fanout), words, offsets, out), drawn_indptr)
    return weight


@compiled
def _weigh_rows(lo, hi, drawn_indptr, indptr, local, rho, x, fanout, words, offsets, out):
    longest = 0
    for i in range(lo, hi):
        longest = max(longest, drawn_indptr[i + 1] - drawn_indptr[i])
    inverse = np.empty(longest)
    for i in range(lo, hi):
        first, count = drawn_indptr[i], drawn_indptr[i + 1] - drawn_indptr[i]
        if offsets[i] == offsets[i + 1]:
            out[first : first + count] = 1.0
            continue
        base, filled, total = indptr[i], 0, np.int64(0)
        scale = sum_scale(indptr[i + 1] - base, fanout)
        for w in range(offsets[i], offsets[i + 1]):
            word = words[w]
            while word != _ZERO:
                inverse[filled] = max(rho[local[base + lowest_bit(word)]] * x[i], 1.0)
                total += np.int64(inverse[filled] * scale)
                filled += 1
                word &= word - _ONE
            base += WORD_BITS
        norm = np.float64(count) * scale / np.float64(total) if count else 0.0
        for j in range(count):
            out[first + j] = inverse[j] * norm


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
    found = importance_torch(full.indptr, local, len(sources), fanout, rounds)
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
