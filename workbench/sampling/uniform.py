"""Uniform draws from each row: a subset by Floyd's algorithm, or independent draws with replacement.

Floyd's algorithm draws k of d edges: for j = d - k, …, d - 1 it draws t uniformly from 0, …, j and picks t, or j if t
has been picked already. Draw j of node v uses variate j of v's stream, so a row depends on the key and v alone.

R. W. Floyd, in: Bentley, "Programming pearls: a sample of brilliance", CACM 30(9), 1987.
"""

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.hash import below, below_torch, hash_index, hash_index_torch
from workbench.kernels.jit import compiled
from workbench.kernels.prefetch import prefetch
from workbench.kernels.threads import parallel_edges
from workbench.sampling.candidates import (
    Candidates,
    drawn_offsets,
    draws_with_replacement,
    skip_excluded,
    skip_excluded_torch,
)
from workbench.sampling.sampler import Drawn

_GROUP = 32  # rows whose reads overlap
_SCAN_UP_TO = 64  # fanout up to which comparing with all earlier picks beats a hash table
_WIDE = 1024  # fanout from which the largest degree is computed, to allocate smaller buffers
_NO_POSITIONS, _NEVER = np.empty(0, np.int64), np.empty(0, np.bool_)


def draw_uniform(
    rows: Candidates, indices: Tensor, fanout: int | Tensor, *, replace: bool, key: int, positions: bool
) -> Drawn:
    """Draw each row's edges with equal probability.

    Args:
        rows: the candidates.
        indices: int32 or int64 [num_edges], the graph's sources by CSR position.
        fanout: edges to draw, for all rows or int64 [n]; a row with no more candidates keeps them all, in CSR order;
            -1: all.
        replace: draw `fanout` edges independently, with replacement.
        key: key of the random stream.
        positions: whether to return the edges' CSR positions.

    Returns:
        The drawn rows.
    """
    if rows.positions is not None:
        grouped = rows._replace(positions=None)
        drawn = draw_uniform(grouped, rows.positions, fanout, replace=replace, key=key, positions=False)
        return Drawn(drawn.indptr, indices[drawn.sources], drawn.sources if positions else None)
    if indices.device.type != "cpu":
        return draw_uniform_torch(rows, indices, fanout, replace=replace, key=key, positions=positions)
    indptr = drawn_offsets(rows.degrees, fanout, replace)
    sources = torch.empty(int(indptr.numpy()[-1]), dtype=indices.dtype)
    drawn_positions = torch.empty(sources.numel(), dtype=torch.int64) if positions else None
    replaced = draws_with_replacement(rows.nodes.numel(), fanout, replace).numpy() if replace else _NEVER
    nodes, starts, degrees, offsets = (t.numpy() for t in (rows.nodes, rows.starts, rows.degrees, indptr))
    excluded, first_excluded, by_position = (t.numpy() for t in (rows.excluded, rows.first_excluded, indices))
    row_arrays, width = (nodes, starts, degrees, replaced, offsets), _buffer_width(rows, fanout, replace)
    out = sources.numpy(), _NO_POSITIONS if drawn_positions is None else drawn_positions.numpy()

    def kernel(lo: int, hi: int) -> None:
        _draw_rows(lo, hi, row_arrays, excluded, first_excluded, by_position, width, key, *out)

    parallel_edges(kernel, indptr)
    return Drawn(indptr, sources, drawn_positions)


def _buffer_width(rows: Candidates, fanout: int | Tensor, replace: bool) -> int:
    """Return the number of picks per row that buffers need."""
    if isinstance(fanout, int) and 0 < fanout <= _WIDE:
        return fanout
    return max(1, _largest(fanout) if replace else min(_largest(fanout), _largest(rows.degrees)))


def _largest(values: int | Tensor) -> int:
    if isinstance(values, int):
        return values
    return int(values.numpy().max(initial=0))  # torch would wake OpenMP threads, whose spinning slows kernels


@compiled
def _pick_few(row_key, degree, picks):
    """Floyd's algorithm with a linear scan for repetitions."""
    for j in range(len(picks)):
        top = degree - len(picks) + j
        pick = below(hash_index(row_key, j), top + 1)
        repeated = False
        for earlier in range(j):  # no early exit: the loop is vectorized, and a repetition is rare
            repeated |= picks[earlier] == pick
        picks[j] = top if repeated else pick


@compiled
def _pick_many(row_key, degree, picks, table, used):
    """Floyd's algorithm with a hash table for repetitions; `table` is empty before and after."""
    for j in range(len(picks)):
        top = degree - len(picks) + j
        pick = below(hash_index(row_key, j), top + 1)
        if not _insert(table, used, j, pick):
            pick = top
            _insert(table, used, j, top)
        picks[j] = pick
    for j in range(len(picks)):
        table[used[j]] = -1


@compiled
def _insert(table, used, count, pick):
    """Insert `pick` into the open-addressing table; return False if it was present."""
    slot = np.int64(hash_index(0, pick)) & (len(table) - 1)
    while table[slot] >= 0:
        if table[slot] == pick:
            return False
        slot = (slot + 1) & (len(table) - 1)
    table[slot] = pick
    used[count] = slot
    return True


@compiled
def _pick_with_replacement(row_key, degree, picks):
    for j in range(len(picks)):
        picks[j] = below(hash_index(row_key, j), degree)


@compiled
def _draw_rows(lo, hi, rows, excluded, first_excluded, indices, width, key, sources, positions):
    """Draw rows [lo, hi); all positions of a group are picked and prefetched before the first is read.

    The loops over edges create no views: each would cost a reference count.
    """
    nodes, starts, degrees, replaced, indptr = rows
    buffer = np.empty(_GROUP * width, np.int64)
    table = np.full(1 << (int(np.log2(width)) + 2) if width > _SCAN_UP_TO else 1, -1, np.int64)
    used = np.empty(width, np.int64)
    for group in range(lo, hi, _GROUP):
        end = min(group + _GROUP, hi)
        filled = 0
        for i in range(group, end):
            count = indptr[i + 1] - indptr[i]
            repeats = len(replaced) > 0 and replaced[i]
            if count == 0:
                continue
            if not repeats and degrees[i] == count:
                prefetch(indices, starts[i])
                continue
            picks = buffer[filled : filled + count]
            row_key = np.int64(hash_index(key, nodes[i]))
            if repeats:
                _pick_with_replacement(row_key, degrees[i], picks)
            elif count <= _SCAN_UP_TO:
                _pick_few(row_key, degrees[i], picks)
            else:
                _pick_many(row_key, degrees[i], picks, table, used)
            if len(excluded):
                for j in range(count):
                    picks[j] = skip_excluded(picks[j], starts[i], excluded, first_excluded[i])
            for j in range(count):
                picks[j] += starts[i]
                prefetch(indices, picks[j])
            filled += count
        filled = 0
        for i in range(group, end):
            offset, count = indptr[i], indptr[i + 1] - indptr[i]
            if degrees[i] == count and not (len(replaced) > 0 and replaced[i]):
                first = first_excluded[i] if len(excluded) else 0
                copy_row(starts[i], first, excluded, offset, offset + count, indices, sources, positions)
                continue
            for j in range(count):
                sources[offset + j] = indices[buffer[filled + j]]
            if len(positions):
                for j in range(count):
                    positions[offset + j] = buffer[filled + j]
            filled += count


@compiled
def copy_row(start, first, excluded, lo, hi, indices, sources, positions):
    """Copy all edges of a row that are not excluded, from CSR position `start` on, to slots [lo, hi)."""
    position = start
    for e in range(lo, hi):
        while first < len(excluded) and excluded[first] == position:
            first += 1
            position += 1
        sources[e] = indices[position]
        if len(positions):
            positions[e] = position
        position += 1


def _picks_torch(row_keys: Tensor, degrees: Tensor, count: int, replaced: Tensor) -> Tensor:
    """Return int64 [rows, count], the picks of `_pick_few`, `_pick_many` or `_pick_with_replacement`."""
    picks = torch.empty(len(degrees), count, dtype=torch.int64, device=degrees.device)
    for j in range(count):
        bits = hash_index_torch(row_keys, torch.full_like(degrees, j))
        top = degrees - count + j
        pick = below_torch(bits, top + 1)
        repeated = (picks[:, :j] == pick[:, None]).any(1)
        picks[:, j] = torch.where(replaced, below_torch(bits, degrees), torch.where(repeated, top, pick))
    return picks


def draw_uniform_torch(
    rows: Candidates, indices: Tensor, fanout: int | Tensor, *, replace: bool, key: int, positions: bool
) -> Drawn:
    """Draw as `draw_uniform` does, in plain torch for any device; the oracle of the compiled kernel."""
    indptr = drawn_offsets(rows.degrees, fanout, replace)
    counts = indptr.diff()
    row = torch.repeat_interleave(torch.arange(len(counts), device=indices.device), counts)
    pick = torch.arange(len(row), device=indices.device) - indptr[row]
    replaced = draws_with_replacement(len(counts), fanout, replace).to(indices.device)
    random = replaced | (counts < rows.degrees)
    for count in torch.unique(counts[random]).tolist():  # one per fanout
        chosen = random & (counts == count)
        row_keys = hash_index_torch(key, rows.nodes[chosen])
        pick[chosen[row]] = _picks_torch(row_keys, rows.degrees[chosen], count, replaced[chosen]).flatten()
    if len(rows.excluded):
        edges = skip_excluded_torch(pick, rows.starts[row], rows.excluded, rows.first_excluded[row])
    else:
        edges = rows.starts[row] + pick
    return Drawn(indptr, indices[edges], edges if positions else None)
