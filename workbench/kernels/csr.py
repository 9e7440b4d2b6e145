"""Building a CSR: grouping edges by row, and removing duplicate columns."""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from workbench.kernels.jit import compiled
from workbench.kernels.threads import num_chunks, run_tasks

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
        num_rows: number of rows.
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
