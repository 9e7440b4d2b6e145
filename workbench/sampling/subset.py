"""Uniform draws from each row: a subset by Floyd's algorithm, or independent draws with replacement.

Draw `j` of the row of node `v` uses variate `j` of the stream of `v`, so a row depends on nothing but the key and `v`.
R. W. Floyd, in: Bentley, "Programming pearls: a sample of brilliance", CACM 30(9), 1987.
"""

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.hash import below, below_torch, hash_index, hash_index_torch
from workbench.kernels.jit import compiled
from workbench.kernels.prefetch import prefetch
from workbench.kernels.threads import parallel_edges
from workbench.sampling.layers import Candidates, Drawn, row_offsets

_GROUP = 32  # rows whose reads are under way at once
_SCAN_UP_TO = 64  # picks up to which comparing with all earlier ones beats a hash table


@compiled
def _pick_with_replacement(row_key, degree, picks):
    for j in range(len(picks)):
        picks[j] = below(hash_index(row_key, j), degree)


@compiled
def _pick_few(row_key, degree, picks):
    for j in range(len(picks)):
        top = degree - len(picks) + j
        pick = below(hash_index(row_key, j), top + 1)
        seen = False
        for earlier in range(j):  # no early exit: this way the loop is vectorised, and a repeat is rare
            seen |= picks[earlier] == pick
        picks[j] = top if seen else pick


@compiled
def _insert(table, used, count, pick):
    """Put `pick` into the open-addressing table; False if it was there."""
    slot = np.int64(hash_index(0, pick)) & (len(table) - 1)
    while table[slot] >= 0:
        if table[slot] == pick:
            return False
        slot = (slot + 1) & (len(table) - 1)
    table[slot] = pick
    used[count] = slot
    return True


@compiled
def _pick_many(row_key, degree, picks, table, used):
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
def _skip_excluded(picks, start, excluded, first):
    """Turn picks among the edges not excluded into offsets in the row; `first` is the row's first excluded edge."""
    for j in range(len(picks)):
        low, high = first, len(excluded)
        while low < high:
            middle = (low + high) // 2
            if excluded[middle] - start - (middle - first) <= picks[j]:
                low = middle + 1
            else:
                high = middle
        picks[j] += low - first


@compiled
def _copy_row(start, first, excluded, lo, hi, indices, sources, positions):
    """All edges of a row from CSR position `start` on that are not excluded, to places `lo` to `hi`."""
    position = start
    for e in range(lo, hi):
        while first < len(excluded) and excluded[first] == position:
            first += 1
            position += 1
        sources[e] = indices[position]
        if len(positions):
            positions[e] = position
        position += 1


@compiled
def _draw_rows(lo, hi, rows, excluded, first_excluded, indices, fanout, replace, key, sources, positions):
    """Draw rows `lo` to `hi`; a group's positions are all picked, and asked for, before the first is read.

    Views are kept out of the loops over edges: each costs a reference count.
    """
    nodes, starts, degrees, indptr = rows
    buffer = np.empty(_GROUP * fanout, np.int64)
    table = np.full(1 << (int(np.log2(fanout)) + 2) if fanout > _SCAN_UP_TO else 1, -1, np.int64)
    used = np.empty(fanout, np.int64)
    for group in range(lo, hi, _GROUP):
        end = min(group + _GROUP, hi)
        filled = 0
        for i in range(group, end):
            if degrees[i] == 0:
                continue
            if not replace and degrees[i] == indptr[i + 1] - indptr[i]:
                prefetch(indices, starts[i])
                continue
            picks = buffer[filled : filled + fanout]
            row_key = np.int64(hash_index(key, nodes[i]))
            if replace:
                _pick_with_replacement(row_key, degrees[i], picks)
            elif fanout <= _SCAN_UP_TO:
                _pick_few(row_key, degrees[i], picks)
            else:
                _pick_many(row_key, degrees[i], picks, table, used)
            if len(excluded):
                _skip_excluded(picks, starts[i], excluded, first_excluded[i])
            for j in range(fanout):
                picks[j] += starts[i]
                prefetch(indices, picks[j])
            filled += fanout
        filled = 0
        for i in range(group, end):
            offset, count = indptr[i], indptr[i + 1] - indptr[i]
            if not replace and degrees[i] == count:
                first = first_excluded[i] if len(excluded) else 0
                _copy_row(starts[i], first, excluded, offset, offset + count, indices, sources, positions)
                continue
            for j in range(count):
                sources[offset + j] = indices[buffer[filled + j]]
            if len(positions):
                for j in range(count):
                    positions[offset + j] = buffer[filled + j]
            filled += count


def _row_offsets(degrees: Tensor, fanout: int, replace: bool) -> Tensor:
    """`indptr` of the rows drawn."""
    if fanout < 0:
        return row_offsets(degrees)
    if replace:
        return row_offsets(torch.where(degrees > 0, fanout, 0))
    return row_offsets(degrees, fanout)


def draw_uniform(rows: Candidates, indices: Tensor, fanout: int, *, replace: bool, key: int, positions: bool) -> Drawn:
    """Draw each row's edges with equal probability.

    Args:
        rows: what may be drawn.
        indices: sources by CSR position.
        fanout: edges a row; a row that has no more keeps them all in CSR order; -1: all.
        replace: draw `fanout` edges independently.
        key: of the stream.
        positions: whether the CSR positions are wanted too.
    """
    if indices.device.type != "cpu":
        return draw_uniform_torch(rows, indices, fanout, replace=replace, key=key, positions=positions)
    indptr = _row_offsets(rows.degrees, fanout, replace)
    if not replace and len(rows.degrees):
        fanout = min(fanout, int(rows.degrees.numpy().max()))  # buffers are as large as the fanout
    sources = torch.empty(int(indptr[-1]), dtype=indices.dtype)
    kept = torch.empty(len(sources) if positions else 0, dtype=torch.int64)
    row_arrays = (rows.nodes.numpy(), rows.starts.numpy(), rows.degrees.numpy(), indptr.numpy())
    excluded = (rows.excluded.numpy(), rows.first_excluded.numpy())
    out = (sources.numpy(), kept.numpy())
    replace = replace and fanout >= 0

    def kernel(lo: int, hi: int) -> None:
        _draw_rows(lo, hi, row_arrays, *excluded, indices.numpy(), max(fanout, 1), replace, key, *out)

    parallel_edges(kernel, indptr)
    return Drawn(indptr, sources, kept if positions else None)


def _picks_torch(row_keys: Tensor, degrees: Tensor, fanout: int, replace: bool) -> Tensor:
    """int64 [rows, fanout]: what `_pick_row` picks."""
    picks = torch.empty(len(degrees), fanout, dtype=torch.int64, device=degrees.device)
    for j in range(fanout):
        bits = hash_index_torch(row_keys, torch.full_like(degrees, j))
        if replace:
            picks[:, j] = below_torch(bits, degrees)
            continue
        top = degrees - fanout + j
        pick = below_torch(bits, top + 1)
        picks[:, j] = torch.where((picks[:, :j] == pick[:, None]).any(1), top, pick)
    return picks


def _skip_excluded_torch(picks: Tensor, starts: Tensor, excluded: Tensor, first: Tensor) -> Tensor:
    """Positions of picks: move on by the excluded edges passed, until none are passed any more."""
    positions = starts + picks
    while True:
        moved = starts + picks + torch.searchsorted(excluded, positions, right=True) - first
        if torch.equal(moved, positions):
            return positions
        positions = moved


def draw_uniform_torch(
    rows: Candidates, indices: Tensor, fanout: int, *, replace: bool, key: int, positions: bool
) -> Drawn:
    """`draw_uniform` in plain torch, for any device."""
    indptr = _row_offsets(rows.degrees, fanout, replace)
    counts = indptr.diff()
    row = torch.repeat_interleave(torch.arange(len(counts), device=indices.device), counts)
    pick = torch.arange(len(row), device=indices.device) - indptr[row]
    drawn = (counts > 0) & (replace | (counts < rows.degrees)) & (fanout >= 0)
    if bool(drawn.any()):
        row_keys = hash_index_torch(key, rows.nodes[drawn])
        pick[drawn[row]] = _picks_torch(row_keys, rows.degrees[drawn], fanout, replace).flatten()
    if len(rows.excluded):
        where = _skip_excluded_torch(pick, rows.starts[row], rows.excluded, rows.first_excluded[row])
    else:
        where = rows.starts[row] + pick
    return Drawn(indptr, indices[where], where if positions else None)
