"""Building a CSR (grouping edges by row, removing duplicate columns) and searching it: repeats, edges between pairs."""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.hash import mix64
from workbench.kernels.jit import compiled
from workbench.kernels.threads import num_chunks, parallel_rows, run_tasks

_MIN_EDGES = 1 << 16

_MAX_SCANS = 8  # every range scans the whole edge list, so more ranges only compete for memory bandwidth


class Csr(NamedTuple):
    """Edges grouped by row.

    Args:
        indptr: int64 [num_rows + 1].
        indices: int32 or int64 [num_edges], columns.
        order: int64 [num_edges], position of each edge in the caller's list; None if that order was kept or edges were
            merged.
        weight: floating point [num_edges], or None.
    """

    indptr: Tensor
    indices: Tensor
    order: Tensor | None = None
    weight: Tensor | None = None


def index_dtype(num_nodes: int) -> torch.dtype:
    """Return the dtype of `indices`: int32 below 2³¹ nodes, otherwise int64."""
    return torch.int32 if num_nodes < 2**31 else torch.int64


def offsets(counts: Tensor) -> Tensor:
    """Return the row offsets, int64 [num_rows + 1], from the number of entries per row, int64 [num_rows]."""
    indptr = counts.new_zeros(counts.shape[0] + 1)
    torch.cumsum(counts, 0, out=indptr[1:])
    return indptr


def group_rows(row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Csr:
    """Group edges by row with a stable counting sort: a row's edges keep the caller's order.

    Args:
        row: int32 or int64 [num_edges], in [0, num_rows).
        col: int32 or int64 [num_edges], in [0, num_cols).
        num_cols: exclusive upper bound of `col`; it determines the dtype of `indices`.
    """
    if row.device.type != "cpu":
        return group_rows_torch(row, col, num_rows, num_cols)
    indptr, chunks = count_rows(row, col, num_rows, False)
    if _is_non_decreasing(row.numpy()):
        return Csr(indptr, col.to(index_dtype(num_cols), copy=True))
    indices, order = torch.empty(len(row), dtype=index_dtype(num_cols)), torch.empty(len(row), dtype=torch.int64)
    cursor = indptr[:-1].clone().numpy()
    r, c, i, o = row.numpy(), col.numpy(), indices.numpy(), order.numpy()
    run_ranges(lambda lo, hi: _place(r, c, lo, hi, cursor, i, o), ranges_by_edges(indptr, chunks))
    return Csr(indptr, indices, order)


def group_rows_torch(row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Csr:
    """Compute `group_rows` in plain torch, on any device."""
    indptr = offsets(torch.bincount(row, minlength=num_rows))
    if bool((row[1:] >= row[:-1]).all()):
        return Csr(indptr, col.to(index_dtype(num_cols), copy=True))
    order = torch.argsort(row, stable=True)
    return Csr(indptr, col[order].to(index_dtype(num_cols)), order)


def distinct_rows(
    indptr: Tensor, indices: Tensor, num_columns: int, *, diagonal: str = "keep"
) -> tuple[Tensor, Tensor]:
    """Remove duplicate columns from each row, keeping the order of first appearance.

    Args:
        indptr: int64 [num_rows + 1].
        indices: int32 or int64 [num_edges], in [0, num_columns).
        num_columns: number of columns, at least the number of rows.
        diagonal: "keep" the entries (row, row) that exist, "add" one at the start of each row, or "drop" them.

    Returns:
        The new `indptr` and `indices`.

    >>> distinct_rows(torch.tensor([0, 3]), torch.tensor([2, 0, 2]), 3, diagonal="drop")[1].tolist()
    [2]
    """
    out_indptr = torch.empty_like(indptr)
    out = torch.empty(len(indices) + (diagonal == "add") * (len(indptr) - 1), dtype=indices.dtype)
    seen = torch.full((num_columns,), -1, dtype=torch.int64)
    arrays = [t.numpy() for t in (indptr, indices, seen, out_indptr, out)]
    return out_indptr, out[: _distinct(*arrays, diagonal == "add", diagonal == "drop")]


@compiled
def _distinct(indptr, indices, seen, out_indptr, out, add_diagonal, drop_diagonal):
    count = 0
    out_indptr[0] = 0
    for row in range(len(indptr) - 1):
        if add_diagonal or drop_diagonal:
            seen[row] = row
        if add_diagonal:
            out[count] = row
            count += 1
        for e in range(indptr[row], indptr[row + 1]):
            if seen[indices[e]] != row:
                seen[indices[e]] = row
                out[count] = indices[e]
                count += 1
        out_indptr[row + 1] = count
    return count


def run_ranges(kernel: Callable[[int, int], None], bounds: list[int]) -> None:
    """Run `kernel(lo, hi)` for the consecutive ranges between `bounds` in parallel."""
    run_tasks([lambda lo=lo, hi=hi: kernel(lo, hi) for lo, hi in pairwise(bounds)])


def ranges_by_edges(indptr: Tensor, chunks: int) -> list[int]:
    """Return the bounds of row ranges with about the same number of edges each."""
    edges = int(indptr[-1])
    cuts = torch.searchsorted(indptr, torch.tensor([edges * i // chunks for i in range(1, chunks)], dtype=torch.int64))
    return [0, *(int(cut) for cut in cuts), indptr.shape[0] - 1]


def range_count(num_edges: int) -> int:
    """Return the number of row ranges that threads work on."""
    return min(_MAX_SCANS, num_chunks(num_edges, _MIN_EDGES))


def count_rows(row: Tensor, col: Tensor, num_rows: int, both: bool) -> tuple[Tensor, int]:
    """Return the `indptr` of the edges (and, with `both`, of their reverses) and the number of ranges to use."""
    counts = torch.zeros(num_rows, dtype=torch.int64)
    chunks = range_count(len(row))
    r, c, n = row.numpy(), col.numpy(), counts.numpy()
    run_ranges(lambda lo, hi: _count(r, c, both, lo, hi, n), [num_rows * i // chunks for i in range(chunks + 1)])
    return offsets(counts), chunks


@compiled
def _is_non_decreasing(values):
    at = 1
    while at < len(values) and values[at - 1] <= values[at]:
        at += 1
    return at >= len(values)


@compiled
def _count(row, col, both, lo, hi, counts):
    """Count the edges of rows [lo, hi); with `both`, an edge that is not a self loop also counts for its column."""
    for e in range(len(row)):
        r = row[e]
        if lo <= r < hi:
            counts[r] += 1
        if both:
            c = col[e]
            if c != r and lo <= c < hi:
                counts[c] += 1


@compiled
def _place(row, col, lo, hi, cursor, indices, order):
    """Write the edges of rows [lo, hi) to the positions in `cursor`, in the caller's order."""
    for e in range(len(row)):
        r = row[e]
        if lo <= r < hi:
            slot = cursor[r]
            cursor[r] = slot + 1
            indices[slot] = col[e]
            order[slot] = e


@compiled
def _first_decrease(values):
    for i in range(1, len(values)):
        if values[i] < values[i - 1]:
            return i - 1
    return -1


@compiled
def _first_repeat(ids, table, mask):
    """Linear probing in a table of positions + 1, where 0 marks a free slot."""
    for i in range(len(ids)):
        slot = mix64(np.uint64(ids[i])) & mask
        while table[slot] > 0:
            if ids[table[slot] - 1] == ids[i]:
                return i
            slot = (slot + np.uint64(1)) & mask
        table[slot] = i + 1
    return -1


def first_decrease(values: Tensor) -> int | None:
    """Return the position of the first value that is larger than its successor, or None if there is none.

    Args:
        values: int64 [any], on any device; on the CPU it is read once and nothing is allocated.

    >>> first_decrease(torch.tensor([0, 3, 3, 2]))
    2
    """
    if values.device.type != "cpu":
        return first_decrease_torch(values)
    position = _first_decrease(values.numpy())
    return None if position < 0 else int(position)


def first_decrease_torch(values: Tensor) -> int | None:
    """Compute `first_decrease` in plain torch, on any device."""
    decreases = (values[1:] < values[:-1]).nonzero()
    return int(decreases[0, 0]) if len(decreases) else None


def first_repeat(ids: Tensor) -> int | None:
    """Return the first id that occurs a second time, or None if all ids are distinct.

    Args:
        ids: int64 [any], on any device; on the CPU it uses a hash table of 8 to 16 bytes per id.

    >>> first_repeat(torch.tensor([4, 7, 9, 7, 4]))
    7
    """
    if ids.device.type != "cpu":
        return first_repeat_torch(ids)
    table = np.zeros(1 << max(1, (2 * len(ids) - 1).bit_length()), np.int32 if len(ids) < 2**31 else np.int64)
    position = _first_repeat(ids.detach().contiguous().numpy(), table, np.uint64(len(table) - 1))
    return None if position < 0 else int(ids[position])


def first_repeat_torch(ids: Tensor) -> int | None:
    """Compute `first_repeat` in plain torch, on any device."""
    order = torch.argsort(ids, stable=True)
    repeats = order[1:][ids[order][1:] == ids[order][:-1]]
    return int(ids[repeats.min()]) if len(repeats) else None


@compiled
def _count_pairs(indptr, indices, row, col, types, wanted, lo, hi, counts):
    for pair in range(lo, hi):
        count = 0
        for e in range(indptr[row[pair]], indptr[row[pair] + 1]):
            count += indices[e] == col[pair] and (types is None or types[e] == wanted[pair])
        counts[pair] = count


@compiled
def _write_pairs(indptr, indices, row, col, starts, lo, hi, positions):
    for pair in range(lo, hi):
        slot = starts[pair]
        if slot == starts[pair + 1]:
            continue
        for e in range(indptr[row[pair]], indptr[row[pair] + 1]):
            if indices[e] == col[pair]:
                positions[slot] = e
                slot += 1


def count_pairs(
    indptr: Tensor,
    indices: Tensor,
    row: Tensor,
    col: Tensor,
    types: Tensor | None = None,
    wanted: Tensor | None = None,
) -> Tensor:
    """Return the number of edges between each pair of nodes, int64 [num_pairs].

    Args:
        indptr: int64 [num_rows + 1].
        indices: int32 or int64 [num_edges].
        row: int64 [num_pairs], in [0, num_rows).
        col: int64 [num_pairs].
        types: integer [num_edges], or None to count edges of any type.
        wanted: integer [num_pairs], type of the edges to count; required with `types`.
    """
    if indptr.device.type != "cpu":
        return count_pairs_torch(indptr, indices, row, col, types, wanted)
    counts = torch.empty(len(row), dtype=torch.int64)
    args = [None if t is None else t.numpy() for t in (indptr, indices, row, col, types, wanted)]
    parallel_rows(lambda lo, hi: _count_pairs(*args, lo, hi, counts.numpy()), len(row), min_rows=256)
    return counts


def count_pairs_torch(
    indptr: Tensor,
    indices: Tensor,
    row: Tensor,
    col: Tensor,
    types: Tensor | None = None,
    wanted: Tensor | None = None,
) -> Tensor:
    """Compute `count_pairs` in plain torch, on any device."""
    pair, positions = _row_entries(indptr, row)
    matches = indices[positions] == col[pair]
    if types is not None and wanted is not None:
        matches &= types[positions] == wanted[pair]
    return torch.bincount(pair[matches], minlength=len(row))


def find_pairs(indptr: Tensor, indices: Tensor, row: Tensor, col: Tensor) -> Tensor:
    """Return the positions of all edges between pairs of nodes, grouped by pair, in row order within a pair.

    Args:
        indptr: int64 [num_rows + 1].
        indices: int32 or int64 [num_edges].
        row: int64 [num_pairs], in [0, num_rows).
        col: int64 [num_pairs].

    Returns:
        int64 [number of matches].
    """
    if indptr.device.type != "cpu":
        return find_pairs_torch(indptr, indices, row, col)
    starts = offsets(count_pairs(indptr, indices, row, col))
    positions = torch.empty(int(starts[-1]), dtype=torch.int64)
    p, i, r, c, s, o = (t.numpy() for t in (indptr, indices, row, col, starts, positions))
    parallel_rows(lambda lo, hi: _write_pairs(p, i, r, c, s, lo, hi, o), len(row), min_rows=256)
    return positions


def find_pairs_torch(indptr: Tensor, indices: Tensor, row: Tensor, col: Tensor) -> Tensor:
    """Compute `find_pairs` in plain torch, on any device."""
    pair, positions = _row_entries(indptr, row)
    return positions[indices[positions] == col[pair]]


def _row_entries(indptr: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
    """List the entries of some rows: the index in `row` and the position of each."""
    degrees = indptr[row + 1] - indptr[row]
    ends = torch.cumsum(degrees, 0)
    pair = torch.repeat_interleave(torch.arange(len(row), device=row.device), degrees)
    return pair, torch.arange(len(pair), device=row.device) + (indptr[row] - (ends - degrees))[pair]
