"""Sums of rows by position, in the order of the rows: gradients of rows that were gathered more than once."""

import torch
from torch import Tensor

from workbench.kernels.buffers import uninitialised
from workbench.kernels.jit import compiled
from workbench.kernels.segment import use_compiled
from workbench.kernels.threads import parallel_rows

_MIN_ROWS_PER_THREAD = 1 << 14
_COMPILED = (torch.float32, torch.float64)


def scatter_rows(positions: Tensor, rows: Tensor, size: int) -> Tensor:
    """Compute `out[positions[i]] += rows[i]` in the order of i, for any number of threads.

    Args:
        positions: int64 or int32 [n], in [0, size), which is not checked.
        rows: floating [n, width].
        size: number of rows of the result.

    Returns:
        [size, width], zeros where no position points.
    """
    if not use_compiled(rows) or rows.dtype not in _COMPILED:
        return scatter_rows_torch(positions, rows, size)
    out, rows = uninitialised(rows, size, rows.shape[1]).zero_(), rows.contiguous()
    views = positions.numpy(), rows.numpy(), out.numpy()
    parallel_rows(lambda lo, hi: _scatter_rows(*views, lo, hi), size, _MIN_ROWS_PER_THREAD)
    return out


def scatter_rows_torch(positions: Tensor, rows: Tensor, size: int) -> Tensor:
    """Compute `scatter_rows` in plain torch: sorted sums, since atomic additions come in any order."""
    positions, order = torch.sort(positions, stable=True)
    distinct, counts = torch.unique_consecutive(positions, return_counts=True)
    out = rows.new_zeros(size, rows.shape[1])
    if len(distinct):
        out[distinct] = torch.segment_reduce(rows[order], "sum", lengths=counts)
    return out


@compiled
def _scatter_rows(positions, rows, out, lo, hi):
    """Add the rows whose position is in [lo, hi): every thread reads all positions, and adds to rows of its own."""
    for i in range(len(positions)):
        if lo <= positions[i] < hi:
            total, row = out[positions[i]], rows[i]
            for c in range(len(row)):
                total[c] += row[c]
