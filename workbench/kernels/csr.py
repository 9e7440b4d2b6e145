"""Building a CSR (grouping edges by row, removing duplicate columns) and searching it: repeats, edges between pairs."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.hash import mix64
from workbench.kernels.jit import compiled
from workbench.kernels.threads import num_chunks, parallel_rows, run_tasks

_MIN_EDGES = 1 << 16

_MAX_PLACED = 1 << 17  # edges whose rows fit into a cache, so that each is written to its row at once

_BUCKET_BITS = 8

_MAX_SHIFT = 16  # rows of a bucket are numbered in 16 bits


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
    r, c, is_sorted = row.numpy(), col.numpy(), _is_non_decreasing(row.numpy())
    if not is_sorted and len(row) > _MAX_PLACED:
        return Csr(*sort_by_row(row, col, num_rows, index_dtype(num_cols), values="positions"))
    counts = torch.zeros(num_rows, dtype=torch.int64)
    _count(r, counts.numpy())
    indptr = offsets(counts)
    if is_sorted:
        return Csr(indptr, col.to(index_dtype(num_cols), copy=True))
    indices, order = torch.empty(len(row), dtype=index_dtype(num_cols)), torch.empty(len(row), dtype=torch.int64)
    _place(r, c, indptr[:-1].clone().numpy(), indices.numpy(), order.numpy())
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
    return num_chunks(num_edges, _MIN_EDGES)


@compiled
def _is_non_decreasing(values):
    at = 1
    while at < len(values) and values[at - 1] <= values[at]:
        at += 1
    return at >= len(values)


@compiled
def _count(row, counts):
    for e in range(len(row)):
        counts[row[e]] += 1


@compiled
def _place(row, col, cursor, indices, order):
    for e in range(len(row)):
        slot = cursor[row[e]]
        cursor[row[e]] = slot + 1
        indices[slot], order[slot] = col[e], e


def sort_by_row(
    row: Tensor,
    col: Tensor,
    num_rows: int,
    dtype: torch.dtype,
    *,
    values: Tensor | Literal["positions"] | None = None,
    both: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sort edges by row, and with `both` their reverses; a row's edges keep the caller's order.

    Writing every edge to its row at once would wait for memory: rows are many, and the next place of each is in a cache
    line of its own. So edges are first written to buckets of consecutive rows, few enough that the places where these
    grow stay in the cache, and then each bucket, whose rows do, is sorted by itself.

    Args:
        row: int32 or int64 [num_edges], in [0, num_rows).
        col: int32 or int64 [num_edges].
        dtype: of the sorted columns.
        values: any [num_edges], sorted with the edges; "positions": those of the edges in the caller's list.
        both: add the reverse of every edge that is not a self loop, right behind it.

    Returns:
        The rows' offsets, int64 [num_rows + 1], the columns, and the values if there are any.
    """
    shift = min(_MAX_SHIFT, max(_MAX_SHIFT // 2, num_rows.bit_length() - _BUCKET_BITS))
    buckets, chunks = (num_rows >> shift) + 1, range_count(len(row))
    ranges = list(pairwise(len(row) * i // chunks for i in range(chunks + 1)))
    given = None if values is None or isinstance(values, str) else values
    r, c, v = row.numpy(), col.numpy(), None if given is None else given.numpy()
    counts = np.zeros((chunks, buckets), np.int64)
    run_tasks([partial(_count_buckets, *ranges[i], r, c, both, shift, counts[i]) for i in range(chunks)])
    ends = np.cumsum(counts.T).reshape(buckets, chunks).T
    slots, total = np.ascontiguousarray(ends - counts), int(counts.sum())
    starts = torch.from_numpy(np.append(slots[0], total))
    indptr, indices = torch.zeros(num_rows + 1, dtype=torch.int64), torch.empty(total, dtype=dtype)
    out = None if values is None else torch.empty(total, dtype=torch.int64 if given is None else given.dtype)
    within = torch.empty(total, dtype=torch.uint16)
    p, i, o, n, s = (None if t is None else t.numpy() for t in (indptr, indices, out, within, starts))
    run_tasks([partial(_fill_buckets, *ranges[k], r, c, v, both, shift, slots[k], n, i, o) for k in range(chunks)])
    run_ranges(lambda lo, hi: _sort_buckets(lo, hi, s, shift, n, i, o, p), ranges_by_edges(starts, 4 * chunks))
    return indptr, indices, out


@compiled
def _count_buckets(lo, hi, row, col, both, shift, counts):
    """Count the edges of [lo, hi), and with `both` their reverses, by bucket."""
    for e in range(lo, hi):
        counts[row[e] >> shift] += 1
        if both and row[e] != col[e]:
            counts[col[e] >> shift] += 1


@compiled
def _fill_buckets(lo, hi, row, col, values, both, shift, slots, within, columns, out):
    """Write edges [lo, hi) from the slot of their bucket on, with their values or positions unless `out` is None."""
    low = (1 << shift) - 1
    for e in range(lo, hi):
        r, c = row[e], col[e]
        for _ in range(1 + (both and r != c)):
            slot = slots[r >> shift]
            slots[r >> shift] = slot + 1
            within[slot], columns[slot] = r & low, c
            if out is not None:
                out[slot] = e if values is None else values[e]
            r, c = c, r


@compiled
def _sort_buckets(lo, hi, starts, shift, within, columns, out, indptr):
    """Sort buckets [lo, hi) by the rows' numbers `within` them."""
    cursor = np.empty((1 << shift) + 1, np.int64)
    for b in range(lo, hi):
        first, end, row = starts[b], starts[b + 1], b << shift
        num_rows, numbers = min(1 << shift, len(indptr) - 1 - row), within[first:end]
        cursor[: num_rows + 1] = 0
        for e in range(len(numbers)):
            cursor[numbers[e] + 1] += 1
        for i in range(num_rows):
            cursor[i + 1] += cursor[i]
            indptr[row + i + 1] = first + cursor[i + 1]
        _move(columns[first:end], numbers, cursor.copy())
        if out is not None:
            _move(out[first:end], numbers, cursor)


@compiled
def _move(values, numbers, cursor):
    before = values.copy()
    for e in range(len(numbers)):
        values[cursor[numbers[e]]] = before[e]
        cursor[numbers[e]] += 1


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
