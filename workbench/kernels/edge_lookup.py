"""Looking up the edges of a CSR between given pairs of nodes."""

import torch
from torch import Tensor

from workbench.kernels.csr import offsets
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows


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
