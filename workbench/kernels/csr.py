"""Building and searching a CSR: edges grouped by row, both directions merged, pairs looked up."""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.jit import compiled
from workbench.kernels.threads import num_chunks, run_tasks

_MIN_EDGES = 1 << 16
_MOST_SCANS = 8  # every range scans the whole edge list: more would only share the memory bandwidth


class Csr(NamedTuple):
    """Edges by row.

    `order` is each edge's position in the caller's list; None: the list was in this order, or edges were merged.
    """

    indptr: Tensor
    indices: Tensor
    order: Tensor | None = None
    weight: Tensor | None = None


def index_dtype(num_nodes: int) -> torch.dtype:
    """int32 below 2³¹ nodes, else int64."""
    return torch.int32 if num_nodes < 2**31 else torch.int64


def distinct_rows(indptr: Tensor, indices: Tensor, num_columns: int, *, own: str = "keep") -> tuple[Tensor, Tensor]:
    """Every column once a row, in order of first appearance.

    Args:
        indptr: int64 [rows + 1].
        indices: int32 or int64 [edges], in [0, num_columns).
        num_columns: columns, as many as rows or more.
        own: the column of a row's own number: "keep" it where it is, "add" it first to every row, or "drop" it.

    Returns:
        `indptr` and `indices`.

    >>> distinct_rows(torch.tensor([0, 3]), torch.tensor([2, 0, 2]), 3, own="drop")[1].tolist()
    [2]
    """
    out_indptr = torch.empty_like(indptr)
    out = torch.empty(len(indices) + (own == "add") * (len(indptr) - 1), dtype=indices.dtype)
    seen = torch.full((num_columns,), -1, dtype=torch.int64)
    arrays = [t.numpy() for t in (indptr, indices, seen, out_indptr, out)]
    return out_indptr, out[: _distinct(*arrays, own == "add", own == "drop")]


@compiled
def _distinct(indptr, indices, seen, out_indptr, out, add_own, drop_own):
    kept = 0
    out_indptr[0] = 0
    for row in range(len(indptr) - 1):
        if add_own or drop_own:
            seen[row] = row
        if add_own:
            out[kept] = row
            kept += 1
        for e in range(indptr[row], indptr[row + 1]):
            if seen[indices[e]] != row:
                seen[indices[e]] = row
                out[kept] = indices[e]
                kept += 1
        out_indptr[row + 1] = kept
    return kept


@compiled
def _rises(values):
    at = 1
    while at < len(values) and values[at - 1] <= values[at]:
        at += 1
    return at >= len(values)


@compiled
def _count(row, col, both, lo, hi, counts):
    """Count the edges of rows [lo, hi); with `both`, an edge that is no loop counts for its column too."""
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
    """Write the edges of rows [lo, hi) to where `cursor` points, in the caller's order."""
    for e in range(len(row)):
        r = row[e]
        if lo <= r < hi:
            slot = cursor[r]
            cursor[r] = slot + 1
            indices[slot] = col[e]
            order[slot] = e


@compiled
def _place_both(row, col, weight, lo, hi, cursor, indices, out_weight):
    """Like `_place`, every edge that is no loop in both directions, with its weight instead of its position."""
    weighted = len(weight) > 0
    for e in range(len(row)):
        r, c = row[e], col[e]
        if lo <= r < hi:
            slot = cursor[r]
            cursor[r] = slot + 1
            indices[slot] = c
            if weighted:
                out_weight[slot] = weight[e]
        if c != r and lo <= c < hi:
            slot = cursor[c]
            cursor[c] = slot + 1
            indices[slot] = r
            if weighted:
                out_weight[slot] = weight[e]


@compiled
def _merge_row(columns, weight):
    """Sort a row and merge equal columns into its front, weights summed in the caller's order; entries kept."""
    weighted = len(weight) > 0
    if weighted:
        order = np.argsort(columns, kind="mergesort")
        columns[:] = columns[order]
        weight[:] = weight[order]
    else:
        columns.sort()
    kept = min(1, len(columns))
    for e in range(1, len(columns)):
        if columns[e] != columns[kept - 1]:
            columns[kept] = columns[e]
            if weighted:
                weight[kept] = weight[e]
            kept += 1
        elif weighted:
            weight[kept - 1] += weight[e]
    return kept


@compiled
def _merge_rows(indptr, indices, weight, lo, hi, kept):
    for row in range(lo, hi):
        begin, end = indptr[row], indptr[row + 1]
        kept[row] = _merge_row(indices[begin:end], weight[begin:end])


@compiled
def _copy_fronts(indptr, values, lo, hi, out_indptr, out):
    for row in range(lo, hi):
        shift = indptr[row] - out_indptr[row]
        for e in range(out_indptr[row], out_indptr[row + 1]):
            out[e] = values[e + shift]


def offsets(counts: Tensor) -> Tensor:
    """int64 [rows + 1]: where each row begins, from the entries of every row."""
    indptr = counts.new_zeros(counts.shape[0] + 1)
    torch.cumsum(counts, 0, out=indptr[1:])
    return indptr


def _run_ranges(kernel: Callable[[int, int], None], bounds: list[int]) -> None:
    run_tasks([lambda lo=lo, hi=hi: kernel(lo, hi) for lo, hi in pairwise(bounds)])


def _ranges_by_edges(indptr: Tensor, chunks: int) -> list[int]:
    """Bounds of row ranges with about equally many edges each."""
    edges = int(indptr[-1])
    cuts = torch.searchsorted(indptr, torch.tensor([edges * i // chunks for i in range(1, chunks)], dtype=torch.int64))
    return [0, *(int(cut) for cut in cuts), indptr.shape[0] - 1]


def _count_rows(row: Tensor, col: Tensor, num_rows: int, both: bool) -> tuple[Tensor, int]:
    """`indptr` of the edges, and the number of row ranges worth a thread each."""
    counts = torch.zeros(num_rows, dtype=torch.int64)
    chunks = min(_MOST_SCANS, num_chunks(len(row), _MIN_EDGES))
    r, c, n = row.numpy(), col.numpy(), counts.numpy()
    _run_ranges(lambda lo, hi: _count(r, c, both, lo, hi, n), [num_rows * i // chunks for i in range(chunks + 1)])
    return offsets(counts), chunks


def group_rows(row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Csr:
    """Group edges by row with a stable counting sort: a row's edges keep the caller's order.

    Args:
        row: int32 or int64 [num_edges], in [0, num_rows).
        col: int32 or int64 [num_edges], in [0, num_cols).
        num_rows: rows.
        num_cols: what `col` may hold; its size decides the dtype of `indices`.
    """
    if row.device.type != "cpu":
        return group_rows_torch(row, col, num_rows, num_cols)
    indptr, chunks = _count_rows(row, col, num_rows, False)
    if _rises(row.numpy()):
        return Csr(indptr, col.to(index_dtype(num_cols), copy=True))
    indices, order = torch.empty(len(row), dtype=index_dtype(num_cols)), torch.empty(len(row), dtype=torch.int64)
    cursor = indptr[:-1].clone().numpy()
    r, c, i, o = row.numpy(), col.numpy(), indices.numpy(), order.numpy()
    _run_ranges(lambda lo, hi: _place(r, c, lo, hi, cursor, i, o), _ranges_by_edges(indptr, chunks))
    return Csr(indptr, indices, order)


def group_rows_torch(row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Csr:
    """`group_rows` in plain torch, for any device."""
    indptr = offsets(torch.bincount(row, minlength=num_rows))
    if bool((row[1:] >= row[:-1]).all()):
        return Csr(indptr, col.to(index_dtype(num_cols), copy=True))
    order = torch.argsort(row, stable=True)
    return Csr(indptr, col[order].to(index_dtype(num_cols)), order)


def _both_directions(row: Tensor, col: Tensor, weight: Tensor, num_rows: int) -> tuple[Tensor, Tensor, Tensor, int]:
    """All edges and their reverses grouped by row, in the caller's order."""
    indptr, chunks = _count_rows(row, col, num_rows, True)
    stored = int(indptr[-1])
    indices = torch.empty(stored, dtype=index_dtype(num_rows))
    out_weight = torch.empty(stored if len(weight) else 0, dtype=weight.dtype)
    cursor = indptr[:-1].clone().numpy()
    r, c, w, i, o = (t.numpy() for t in (row, col, weight, indices, out_weight))
    _run_ranges(lambda lo, hi: _place_both(r, c, w, lo, hi, cursor, i, o), _ranges_by_edges(indptr, chunks))
    return indptr, indices, out_weight, chunks


def symmetric_rows(row: Tensor, col: Tensor, weight: Tensor | None, num_rows: int) -> Csr:
    """Group edges and their reverses by row; rows are sorted, duplicates merged (weights summed), loops kept once.

    Needs about twice the bytes of what it stores before merging, beside the edge list.

    Args:
        row: int32 or int64 [num_edges], in [0, num_rows).
        col: int32 or int64 [num_edges], in [0, num_rows).
        weight: floating [num_edges] or None; half precision is summed in float32.
        num_rows: rows.
    """
    if row.device.type != "cpu":
        return symmetric_rows_torch(row, col, weight, num_rows)
    values = torch.empty(0) if weight is None else weight.to(torch.promote_types(weight.dtype, torch.float32))
    indptr, indices, values, chunks = _both_directions(row, col, values, num_rows)
    kept = torch.empty(num_rows, dtype=torch.int64)
    bounds = _ranges_by_edges(indptr, chunks)
    p, i, v, k = (t.numpy() for t in (indptr, indices, values, kept))
    _run_ranges(lambda lo, hi: _merge_rows(p, i, v, lo, hi, k), bounds)
    out_indptr = offsets(kept)

    def fronts(all_values: Tensor) -> Tensor:
        if int(out_indptr[-1]) == len(all_values):
            return all_values
        out = torch.empty(int(out_indptr[-1]), dtype=all_values.dtype)
        source, target, q = all_values.numpy(), out.numpy(), out_indptr.numpy()
        _run_ranges(lambda lo, hi: _copy_fronts(p, source, lo, hi, q, target), bounds)
        return out

    merged_weight = None if weight is None else fronts(values).to(weight.dtype)
    return Csr(out_indptr, fronts(indices), None, merged_weight)


def symmetric_rows_torch(row: Tensor, col: Tensor, weight: Tensor | None, num_rows: int) -> Csr:
    """`symmetric_rows` in plain torch, for any device."""
    proper = row != col
    rows, cols = torch.cat([row, col[proper]]), torch.cat([col, row[proper]])
    order = torch.argsort(cols, stable=True)
    order = order[torch.argsort(rows[order], stable=True)]
    pairs, merged = torch.unique_consecutive(torch.stack([rows[order], cols[order]]), return_inverse=True, dim=1)
    indptr = offsets(torch.bincount(pairs[0], minlength=num_rows))
    indices = pairs[1].to(index_dtype(num_rows))
    if weight is None:
        return Csr(indptr, indices)
    values = torch.cat([weight, weight[proper]])[order].to(torch.promote_types(weight.dtype, torch.float32))
    return Csr(indptr, indices, None, values.new_zeros(len(indices)).index_add_(0, merged, values).to(weight.dtype))
