"""Building the CSR of an undirected graph: every edge in both directions, rows sorted, duplicates merged."""

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.csr import (
    Csr,
    count_rows,
    group_rows,
    index_dtype,
    offsets,
    range_count,
    ranges_by_edges,
    run_ranges,
)
from workbench.kernels.jit import compiled


def symmetric_rows(row: Tensor, col: Tensor, weight: Tensor | None, num_rows: int) -> Csr:
    """Group edges and their reverses by row, sort rows, merge duplicates (summing weights) and keep self loops once.

    Besides the edge list it needs about twice the memory of the unmerged rows.

    Args:
        row: int32 or int64 [num_edges], in [0, num_rows).
        col: int32 or int64 [num_edges], in [0, num_rows).
        weight: floating point [num_edges] or None; half precision is summed in float32.
        num_rows: number of rows.
    """
    if row.device.type != "cpu":
        return symmetric_rows_torch(row, col, weight, num_rows)
    indptr, indices, values = _both_directions(row, col, _summable(weight), num_rows)
    return _merge_duplicates(indptr, indices, values, None if weight is None else weight.dtype)


def symmetric_rows_torch(row: Tensor, col: Tensor, weight: Tensor | None, num_rows: int) -> Csr:
    """Compute `symmetric_rows` in plain torch, on any device."""
    no_loop = row != col
    rows, cols = torch.cat([row, col[no_loop]]), torch.cat([col, row[no_loop]])
    both = None if weight is None else torch.cat([weight, weight[no_loop]])
    csr = _merge_duplicates_torch(rows, cols, both, num_rows)
    return csr._replace(indices=csr.indices.to(index_dtype(num_rows)))


def typed_symmetric_rows(
    row: Tensor, col: Tensor, types: Tensor, weight: Tensor | None, num_rows: int, num_types: int
) -> tuple[Csr, Tensor]:
    """Group edges and their reverses, of type r + num_types, by row; sort rows and merge duplicates of the same type.

    Args:
        row: int32 or int64 [num_edges], in [0, num_rows).
        col: int32 or int64 [num_edges], in [0, num_rows).
        types: integer [num_edges], in [0, num_types).
        weight: floating point [num_edges] or None; half precision is summed in float32.
        num_rows: number of rows; 2 · num_rows · num_types must be below 2⁶³.
        num_types: number of types.

    Returns:
        The CSR, rows sorted by column, then by type; and its types, int64.
    """
    if row.device.type != "cpu":
        return typed_symmetric_rows_torch(row, col, types, weight, num_rows, num_types)
    rows, keys, both = _with_reverses(row, col, types, weight, num_types)
    grouped = group_rows(rows, keys, num_rows, 2**63)
    values = _summable(both)
    values = values[grouped.order] if grouped.order is not None and len(values) else values
    csr = _merge_duplicates(grouped.indptr, grouped.indices, values, None if weight is None else weight.dtype)
    return _without_keys(csr, num_rows, num_types)


def typed_symmetric_rows_torch(
    row: Tensor, col: Tensor, types: Tensor, weight: Tensor | None, num_rows: int, num_types: int
) -> tuple[Csr, Tensor]:
    """Compute `typed_symmetric_rows` in plain torch, on any device."""
    rows, keys, both = _with_reverses(row, col, types, weight, num_types)
    return _without_keys(_merge_duplicates_torch(rows, keys, both, num_rows), num_rows, num_types)


def _with_reverses(
    row: Tensor, col: Tensor, types: Tensor, weight: Tensor | None, num_types: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """List edges and reverses by row and by a key of column and type, which sorts and merges like a column."""
    types = types.long()
    keys = torch.cat([col, row]).long() * (2 * num_types) + torch.cat([types, types + num_types])
    return torch.cat([row, col]), keys, None if weight is None else torch.cat([weight, weight])


def _without_keys(csr: Csr, num_rows: int, num_types: int) -> tuple[Csr, Tensor]:
    columns = (csr.indices // (2 * num_types)).to(index_dtype(num_rows))
    return csr._replace(indices=columns), csr.indices % (2 * num_types)


def _summable(weight: Tensor | None) -> Tensor:
    """Convert weights to the dtype of sums; an empty tensor stands for None in the kernels."""
    return torch.empty(0) if weight is None else weight.to(torch.promote_types(weight.dtype, torch.float32))


def _merge_duplicates(indptr: Tensor, indices: Tensor, values: Tensor, dtype: torch.dtype | None) -> Csr:
    """Sort the rows and merge equal columns, summing their values into weights of `dtype`; overwrites the arrays."""
    counts = torch.empty(len(indptr) - 1, dtype=torch.int64)
    bounds = ranges_by_edges(indptr, range_count(len(indices)))
    p, i, v, n = (t.numpy() for t in (indptr, indices, values, counts))
    run_ranges(lambda lo, hi: _merge_rows(p, i, v, lo, hi, n), bounds)
    out_indptr = offsets(counts)

    def compacted(all_values: Tensor) -> Tensor:
        if int(out_indptr[-1]) == len(all_values):
            return all_values
        out = torch.empty(int(out_indptr[-1]), dtype=all_values.dtype)
        source, target, q = all_values.numpy(), out.numpy(), out_indptr.numpy()
        run_ranges(lambda lo, hi: _copy_fronts(p, source, lo, hi, q, target), bounds)
        return out

    return Csr(out_indptr, compacted(indices), None, None if dtype is None else compacted(values).to(dtype))


def _merge_duplicates_torch(rows: Tensor, cols: Tensor, weight: Tensor | None, num_rows: int) -> Csr:
    """Group by row, sort and merge in plain torch, on any device."""
    order = torch.argsort(cols, stable=True)
    order = order[torch.argsort(rows[order], stable=True)]
    pairs, merged = torch.unique_consecutive(torch.stack([rows[order], cols[order]]), return_inverse=True, dim=1)
    indptr = offsets(torch.bincount(pairs[0], minlength=num_rows))
    if weight is None:
        return Csr(indptr, pairs[1])
    values = _summable(weight[order])
    return Csr(indptr, pairs[1], None, values.new_zeros(pairs.shape[1]).index_add_(0, merged, values).to(weight.dtype))


def _both_directions(row: Tensor, col: Tensor, weight: Tensor, num_rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Group all edges and their reverses by row, in the caller's order."""
    indptr, chunks = count_rows(row, col, num_rows, True)
    num_entries = int(indptr[-1])
    indices = torch.empty(num_entries, dtype=index_dtype(num_rows))
    out_weight = torch.empty(num_entries if len(weight) else 0, dtype=weight.dtype)
    cursor = indptr[:-1].clone().numpy()
    r, c, w, i, o = (t.numpy() for t in (row, col, weight, indices, out_weight))
    run_ranges(lambda lo, hi: _place_both(r, c, w, lo, hi, cursor, i, o), ranges_by_edges(indptr, chunks))
    return indptr, indices, out_weight


@compiled
def _place_both(row, col, weight, lo, hi, cursor, indices, out_weight):
    """Write the edges of rows [lo, hi) and, unless they are self loops, their reverses, with their weights."""
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
    """Sort a row, move its distinct columns to its front, sum weights in the caller's order; return their number."""
    weighted = len(weight) > 0
    if weighted:
        order = np.argsort(columns, kind="mergesort")
        columns[:] = columns[order]
        weight[:] = weight[order]
    else:
        columns.sort()
    count = min(1, len(columns))
    for e in range(1, len(columns)):
        if columns[e] != columns[count - 1]:
            columns[count] = columns[e]
            if weighted:
                weight[count] = weight[e]
            count += 1
        elif weighted:
            weight[count - 1] += weight[e]
    return count


@compiled
def _merge_rows(indptr, indices, weight, lo, hi, counts):
    for row in range(lo, hi):
        begin, end = indptr[row], indptr[row + 1]
        counts[row] = _merge_row(indices[begin:end], weight[begin:end])


@compiled
def _copy_fronts(indptr, values, lo, hi, out_indptr, out):
    for row in range(lo, hi):
        shift = indptr[row] - out_indptr[row]
        for e in range(out_indptr[row], out_indptr[row + 1]):
            out[e] = values[e + shift]
