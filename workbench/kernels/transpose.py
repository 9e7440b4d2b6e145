"""Transposition of a CSR, one for all its row prefixes; and symmetric CSRs, of edges and their reverses."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.csr import (
    Csr,
    group_rows,
    index_dtype,
    offsets,
    range_count,
    ranges_by_edges,
    run_ranges,
    sort_by_row,
)
from workbench.kernels.jit import compiled

_MAX_INSERTED = 24  # columns of a row that are sorted by insertion, without a call per row


class Transposed(NamedTuple):
    """Edges grouped by source.

    Args:
        indptr: int64 [num_src + 1], offsets of each source's edges.
        ends: int64 [num_src], where each source's edges end; None: where those of the next source begin. Given in the
            transpose of a row prefix, whose other arrays are views of that of all rows: a source's edges are ordered by
            row, so those of the prefix come first.
        rows: [num_edges] in the dtype of `indices`, destinations.
        edges: int64 [num_edges], positions in the original CSR.
    """

    indptr: Tensor
    ends: Tensor | None
    rows: Tensor
    edges: Tensor


@compiled
def _count(indices, cursor):
    """Fill `cursor[1:]`, zeros of length num_src + 2, with the offsets of each source's edges.

    Offsets are computed one place too far right: placing an edge advances its source's offset, and the last edge
    leaves it where the offset of the next source belongs.
    """
    for e in range(len(indices)):
        cursor[indices[e] + 2] += 1
    for i in range(3, len(cursor)):
        cursor[i] += cursor[i - 1]


@compiled
def _place(lo, hi, indptr, indices, cursor, rows, edges):
    """Place the edges of rows [lo, hi)."""
    for row in range(lo, hi):
        for e in range(indptr[row], indptr[row + 1]):
            slot = cursor[indices[e] + 1]
            cursor[indices[e] + 1] = slot + 1
            rows[slot] = row
            if len(edges):
                edges[slot] = e


def transpose_torch(indptr: Tensor, indices: Tensor, num_src: int) -> Transposed:
    """Compute `transpose` in plain torch, on any device."""
    edges = torch.argsort(indices, stable=True)
    counts = torch.bincount(indices, minlength=num_src)
    rows = torch.arange(len(indptr) - 1, device=indices.device, dtype=indices.dtype).repeat_interleave(indptr.diff())
    return Transposed(offsets(counts), None, rows[edges], edges)


def transpose(indptr: Tensor, indices: Tensor, num_src: int) -> Transposed:
    """Group the edges of a CSR by source; each source's edges are ordered by destination.

    Args:
        indptr: int64 [num_dst + 1].
        indices: integer [num_edges], sources in [0, num_src).
    """
    if indices.device.type != "cpu":
        return transpose_torch(indptr, indices, num_src)
    offsets = torch.empty(num_src + 2, dtype=torch.int64)
    rows, edges = torch.empty_like(indices), torch.empty_like(indices, dtype=torch.int64)
    return transpose_into(indptr, indices, offsets, rows, edges)


def transpose_into(indptr: Tensor, indices: Tensor, offsets: Tensor, rows: Tensor, edges: Tensor) -> Transposed:
    """Compute `transpose` on the CPU in memory that the caller provides.

    Args:
        indptr: int64 [num_dst + 1].
        indices: integer [num_edges], sources in [0, num_src).
        offsets: int64 [num_src + 2], memory for the result's `indptr`.
        rows: [num_edges] in the dtype of `indices`.
        edges: int64 [num_edges], or empty if the edges' positions are not needed.
    """
    cursor, arrays = _counted(indices, offsets), (rows.numpy(), edges.numpy())
    _place(0, len(indptr) - 1, indptr.numpy(), indices.numpy(), cursor, *arrays)
    return Transposed(offsets[:-1], None, rows, edges)


def _counted(indices: Tensor, offsets: Tensor) -> np.ndarray:
    cursor = offsets.zero_().numpy()
    _count(indices.numpy(), cursor)
    return cursor


def transpose_prefixes(
    indptr: Tensor, indices: Tensor, num_src: int, prefixes: Sequence[tuple[int, int]]
) -> list[Transposed]:
    """Transpose row prefixes of a CSR at the price of the largest: their transposes share its arrays.

    While edges are placed row by row, the place where a source's next edge goes is where its edges end in the prefix of
    the rows so far.

    Args:
        indptr: int64 [num_dst + 1].
        indices: integer [num_edges], sources in [0, num_src).
        prefixes: numbers of rows and of their sources per prefix, ascending.

    Returns:
        The transpose of every prefix, then that of all rows.
    """
    if indices.device.type != "cpu":
        return transpose_prefixes_torch(indptr, indices, num_src, prefixes)
    offsets = torch.empty(num_src + 2, dtype=torch.int64)
    rows, edges = torch.empty_like(indices), torch.empty_like(indices, dtype=torch.int64)
    cursor, arrays = _counted(indices, offsets), (rows.numpy(), edges.numpy())
    found: list[Transposed] = []
    for (lo, _), (hi, sources) in pairwise([(0, 0), *prefixes, (len(indptr) - 1, num_src)]):
        _place(lo, hi, indptr.numpy(), indices.numpy(), cursor, *arrays)
        ends = None if len(found) == len(prefixes) else _copy(cursor[1 : sources + 1])
        found.append(Transposed(offsets[: sources + 1], ends, rows, edges))
    return found


def _copy(values: np.ndarray) -> Tensor:
    """Copy into torch's memory, which a memory meter counts."""
    out = torch.empty(len(values), dtype=torch.int64)
    out.numpy()[:] = values
    return out


def transpose_prefixes_torch(
    indptr: Tensor, indices: Tensor, num_src: int, prefixes: Sequence[tuple[int, int]]
) -> list[Transposed]:
    """Compute `transpose_prefixes` in plain torch, on any device."""
    whole = transpose_torch(indptr, indices, num_src)
    found = []
    for num_rows, sources in prefixes:
        counts = torch.bincount(indices[: int(indptr[num_rows])], minlength=sources)
        starts = whole.indptr[: sources + 1]
        found.append(Transposed(starts, starts[:-1] + counts, whole.rows, whole.edges))
    return [*found, whole]


def symmetric_rows(row: Tensor, col: Tensor, weight: Tensor | None, num_rows: int) -> Csr:
    """Group edges and their reverses by row, sort rows, merge duplicates (summing weights) and keep self loops once.

    Besides the edge list it needs about twice the memory of the unmerged rows.

    Args:
        row: int32 or int64 [num_edges], in [0, num_rows).
        col: int32 or int64 [num_edges], in [0, num_rows).
        weight: floating point [num_edges] or None; half precision is summed in float32.
    """
    if row.device.type != "cpu":
        return symmetric_rows_torch(row, col, weight, num_rows)
    indptr, indices, values = sort_by_row(
        row, col, num_rows, index_dtype(num_rows), values=_summable(weight), both=True
    )
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

    Returns:
        The CSR, rows sorted by column, then by type; and its types, int64.
    """
    if row.device.type != "cpu":
        return typed_symmetric_rows_torch(row, col, types, weight, num_rows, num_types)
    rows, keys, both = _with_reverses(row, col, types, weight, num_types)
    grouped = group_rows(rows, keys, num_rows, 2**63)
    values = _summable(both)
    values = values[grouped.order] if grouped.order is not None and values is not None else values
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


def _summable(weight: Tensor | None) -> Tensor | None:
    """Convert weights to the dtype of sums."""
    return None if weight is None else weight.to(torch.promote_types(weight.dtype, torch.float32))


def _merge_duplicates(indptr: Tensor, indices: Tensor, values: Tensor | None, dtype: torch.dtype | None) -> Csr:
    """Sort the rows and merge equal columns, summing their values into weights of `dtype`; overwrites the arrays."""
    counts = torch.empty(len(indptr) - 1, dtype=torch.int64)
    bounds = ranges_by_edges(indptr, range_count(len(indices)))
    p, i, n = (t.numpy() for t in (indptr, indices, counts))
    v = None if values is None else values.numpy()
    run_ranges(lambda lo, hi: _merge_rows(p, i, v, lo, hi, n), bounds)
    out_indptr = offsets(counts)

    def compacted(all_values: Tensor) -> Tensor:
        if int(out_indptr[-1]) == len(all_values):
            return all_values
        out = torch.empty(int(out_indptr[-1]), dtype=all_values.dtype)
        source, target, q = all_values.numpy(), out.numpy(), out_indptr.numpy()
        run_ranges(lambda lo, hi: _copy_fronts(p, source, lo, hi, q, target), bounds)
        return out

    return Csr(out_indptr, compacted(indices), None, None if values is None else compacted(values).to(dtype))


def _merge_duplicates_torch(rows: Tensor, cols: Tensor, weight: Tensor | None, num_rows: int) -> Csr:
    """Group by row, sort and merge in plain torch, on any device."""
    order = torch.argsort(cols, stable=True)
    order = order[torch.argsort(rows[order], stable=True)]
    pairs, merged = torch.unique_consecutive(torch.stack([rows[order], cols[order]]), return_inverse=True, dim=1)
    indptr = offsets(torch.bincount(pairs[0], minlength=num_rows))
    if weight is None:
        return Csr(indptr, pairs[1])
    values = weight[order].to(torch.promote_types(weight.dtype, torch.float32))
    return Csr(indptr, pairs[1], None, values.new_zeros(pairs.shape[1]).index_add_(0, merged, values).to(weight.dtype))


@compiled
def _merge_row(columns, weight):
    """Sort a row, move its distinct columns to its front, sum weights in the caller's order; return their number.

    A weight of None, not an empty array, keeps a sort of pairs out of what is compiled, in a fifth of the time.
    """
    if weight is not None:
        _sort_both(columns, weight)
    else:
        _sort(columns)
    count = min(1, len(columns))
    for e in range(1, len(columns)):
        if columns[e] != columns[count - 1]:
            columns[count] = columns[e]
            if weight is not None:
                weight[count] = weight[e]
            count += 1
        elif weight is not None:
            weight[count - 1] += weight[e]
    return count


@compiled
def _sort(columns):
    if len(columns) > _MAX_INSERTED:
        columns.sort()
        return
    for e in range(1, len(columns)):
        column, at = columns[e], e
        while at > 0 and columns[at - 1] > column:
            columns[at] = columns[at - 1]
            at -= 1
        columns[at] = column


@compiled
def _sort_both(columns, weight):
    order = np.argsort(columns, kind="mergesort")
    columns_before, weight_before = columns.copy(), weight.copy()
    for e in range(len(order)):
        columns[e], weight[e] = columns_before[order[e]], weight_before[order[e]]


@compiled
def _merge_rows(indptr, indices, weight, lo, hi, counts):
    for row in range(lo, hi):
        begin, end = indptr[row], indptr[row + 1]
        if weight is None:
            counts[row] = _merge_row(indices[begin:end], None)
        else:
            counts[row] = _merge_row(indices[begin:end], weight[begin:end])


@compiled
def _copy_fronts(indptr, values, lo, hi, out_indptr, out):
    for row in range(lo, hi):
        shift = indptr[row] - out_indptr[row]
        for e in range(out_indptr[row], out_indptr[row + 1]):
            out[e] = values[e + shift]
