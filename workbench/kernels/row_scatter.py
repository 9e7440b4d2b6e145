"""Sums of rows by position, in the order of the rows: gradients of rows that were gathered more than once."""

import torch
from torch import Tensor

from workbench.kernels.jit import compiled
from workbench.kernels.segment import compute_dtype, use_compiled
from workbench.kernels.threads import parallel_rows

_MIN_ROWS_PER_THREAD = 1 << 14
_COMPILED = (torch.float32, torch.float64)


def add_rows(out: Tensor, positions: Tensor, rows: Tensor) -> None:
    """Compute `out[positions[i]] += rows[i]` in the order of i, for any number of threads.

    Args:
        out: floating [size, width], contiguous; half precision is summed in float32 and rounded once per call.
        positions: int64 or int32 [n], in [0, size), which is not checked.
        rows: [n, width] in the dtype of `out`.
    """
    if not use_compiled(out) or out.dtype not in _COMPILED:
        add_rows_torch(out, positions, rows)
        return
    views = positions.contiguous().numpy(), rows.contiguous().numpy(), out.numpy()
    parallel_rows(lambda lo, hi: _add_rows(*views, lo, hi), len(out), _MIN_ROWS_PER_THREAD)


def add_rows_torch(out: Tensor, positions: Tensor, rows: Tensor) -> None:
    """Compute `add_rows` in plain torch: sorted sums, since atomic additions come in any order."""
    positions, order = torch.sort(positions, stable=True)
    distinct, counts = torch.unique_consecutive(positions, return_counts=True)
    if len(distinct):
        sums = torch.segment_reduce(rows[order].to(compute_dtype(out)), "sum", lengths=counts)
        out[distinct] = (out[distinct] + sums).to(out.dtype)


@compiled
def _add_rows(positions, rows, out, lo, hi):
    """Add the rows whose position is in [lo, hi): every thread reads all positions, and adds to rows of its own."""
    for i in range(len(positions)):
        if lo <= positions[i] < hi:
            total, row = out[positions[i]], rows[i]
            for c in range(len(row)):
                total[c] += row[c]
