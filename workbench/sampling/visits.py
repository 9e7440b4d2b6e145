"""The nodes that walks visit most: visits counted by a small hash table per row, or by sorting in plain torch."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows
from workbench.sampling.candidates import row_offsets

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)
_MIN_ROWS = 4096  # per thread


class Neighbors(NamedTuple):
    """The neighbours of n nodes in rows of equal width, of which the first `kept[i]` are used.

    Args:
        kept: int64 [n], neighbours per row.
        sources: int32 or int64 [n, width], raw-graph ids, in descending order of their visits.
        counts: int32 [n, width], visits.
    """

    kept: Tensor
    sources: Tensor
    counts: Tensor


def table_size(num_visits: int) -> int:
    """Return the number of slots of a hash table for so many visits: a power of two, at least twice as many."""
    return 1 << num_visits.bit_length() + 1


@compiled
def rank_visits(visits, table, found, counts, slots, sources, source_counts):
    """Write the most visited nodes and their visits; ties precede in order of the first visit. Return their number.

    `table` contains -1 before and after; `found`, `counts` and `slots` are scratch memory for `len(visits)` nodes.
    """
    distinct = _count_visits(visits, table, found, counts, slots)
    kept = 0
    for j in range(distinct):
        table[slots[j]] = -1
        slot = min(kept, len(sources) - 1)
        if kept == len(sources) and source_counts[slot] >= counts[j]:
            continue
        while slot > 0 and source_counts[slot - 1] < counts[j]:
            sources[slot], source_counts[slot] = sources[slot - 1], source_counts[slot - 1]
            slot -= 1
        sources[slot], source_counts[slot] = found[j], counts[j]
        kept = min(kept + 1, len(sources))
    return kept


@compiled
def _count_visits(visits, table, found, counts, slots):
    """Number distinct nodes by first visit, and count their visits; `table` maps slots to numbers."""
    distinct, mask = 0, len(table) - 1
    for v in range(len(visits)):
        slot = np.int64((np.uint64(visits[v]) * _GAMMA) >> _SHIFT) & mask
        while table[slot] >= 0 and found[table[slot]] != visits[v]:
            slot = (slot + 1) & mask
        if table[slot] < 0:
            table[slot], slots[distinct], found[distinct], counts[distinct] = distinct, slot, visits[v], 0
            distinct += 1
        counts[table[slot]] += 1
    return distinct


def rank_visits_torch(visits: Tensor, num_nodes: int, width: int, dtype: torch.dtype) -> Neighbors:
    """Rank the visits of rows as `rank_visits` does, in plain torch for any device; its oracle.

    Args:
        visits: int64 [n, v], the nodes that each row's walks visit, in order; -1 for rows without visits.
        num_nodes: exclusive upper bound of the ids.
        width: neighbours to keep.
        dtype: dtype of the sources.
    """
    rows, per_row = visits.shape
    row = torch.arange(rows, device=visits.device).repeat_interleave(per_row)
    keys, order = torch.sort(row * (num_nodes + 1) + visits.flatten() + 1, stable=True)
    keys, runs, counts = _runs(keys)
    visited = keys % (num_nodes + 1) > 0
    first, counts, keys = (
        order[runs][visited],
        counts[visited],
        keys[visited],
    )  # a stable sort: the first visit is first
    row = keys // (num_nodes + 1)
    rank = torch.argsort((row * (per_row + 1) + per_row - counts) * per_row + first % per_row)
    distinct = torch.bincount(row, minlength=rows)
    kept = distinct.clamp(max=width)
    to_row, to_column = _slots(kept)
    chosen = rank[(distinct.cumsum(0) - distinct)[to_row] + to_column]
    sources = torch.zeros(rows, width, dtype=dtype, device=visits.device)
    visits_of = torch.zeros(rows, width, dtype=torch.int32, device=visits.device)
    sources[to_row, to_column] = (keys[chosen] % (num_nodes + 1) - 1).to(dtype)
    visits_of[to_row, to_column] = counts[chosen].to(torch.int32)
    return Neighbors(kept, sources, visits_of)


def _slots(kept: Tensor) -> tuple[Tensor, Tensor]:
    """Return the row and the column of every neighbour that is kept."""
    row = torch.arange(len(kept), device=kept.device).repeat_interleave(kept)
    return row, torch.arange(len(row), device=kept.device) - row_offsets(kept)[row]


def _runs(keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the distinct sorted keys, where each begins and how often it occurs."""
    distinct, counts = torch.unique_consecutive(keys, return_counts=True)
    return distinct, counts.cumsum(0) - counts, counts


def pack_rows(found: Neighbors, indptr: Tensor, *, weighted: bool) -> tuple[Tensor, Tensor | None]:
    """Pack the neighbours of all rows, and compute their weights.

    Args:
        found: the neighbours.
        indptr: int64 [n + 1], offsets of the packed rows.
        weighted: compute weights.

    Returns:
        The sources, and float32 weights (visits, scaled to sum to the number of neighbours of each row) or None.
    """
    if found.sources.device.type != "cpu":
        return pack_rows_torch(found, indptr, weighted=weighted)
    total = int(indptr[-1])
    sources = torch.empty(total, dtype=found.sources.dtype)
    weight = torch.empty(total if weighted else 0, dtype=torch.float32)
    arrays = [t.numpy() for t in (indptr, found.sources, found.counts, sources, weight)]
    parallel_rows(lambda lo, hi: _pack(lo, hi, *arrays), len(found.kept), _MIN_ROWS)
    return sources, weight if weighted else None


@compiled
def _pack(lo, hi, indptr, padded, counts, sources, weight):
    for i in range(lo, hi):
        kept, visits = indptr[i + 1] - indptr[i], 0
        for j in range(kept):
            sources[indptr[i] + j] = padded[i, j]
            visits += counts[i, j]
        if len(weight):
            for j in range(kept):
                weight[indptr[i] + j] = np.float64(counts[i, j] * kept) / np.float64(visits)


def pack_rows_torch(found: Neighbors, indptr: Tensor, *, weighted: bool) -> tuple[Tensor, Tensor | None]:
    """Pack as `pack_rows` does, in plain torch for any device."""
    row, column = _slots(found.kept)
    sources = found.sources[row, column]
    if not weighted:
        return sources, None
    scaled = found.counts.long() * found.kept[:, None]
    return sources, (scaled[row, column].double() / found.counts.sum(1)[row].double()).float()
