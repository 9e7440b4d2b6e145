"""Copying rows of one CSR to their slots in another."""

import torch
from torch import Tensor

from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows

_MIN_ROWS = 1 << 14  # per thread
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def place_rows(values: Tensor, indptr: Tensor, slots: Tensor, out: Tensor, out_indptr: Tensor) -> None:
    """Copy row i of a CSR to row `slots[i]` of another, which has the same length.

    Args:
        values: [num_edges] of any dtype of at most 8 bytes.
        indptr: int64 [n + 1], offsets of the rows; the first may be any number, and is that of `values[0]`.
        slots: int64 [n], distinct rows of `out`.
        out: [num_out_edges] in the dtype and on the device of `values`.
        out_indptr: int64 [num_out_rows + 1], offsets of the rows of `out`, from 0.
    """
    if values.device.type != "cpu":
        place_rows_torch(values, indptr, slots, out, out_indptr)
        return
    words = _WORDS[values.element_size()]
    arrays = [t.numpy() for t in (values.contiguous().view(words), indptr, slots, out.view(words), out_indptr)]
    parallel_rows(lambda lo, hi: _place(lo, hi, *arrays), len(slots), _MIN_ROWS)


def place_rows_torch(values: Tensor, indptr: Tensor, slots: Tensor, out: Tensor, out_indptr: Tensor) -> None:
    """Do what `place_rows` does in plain torch, on any device."""
    lengths = indptr.diff()
    edges = torch.arange(len(values), device=values.device)
    moved = out_indptr[slots] - (indptr[:-1] - indptr[0])
    out[edges + moved.repeat_interleave(lengths)] = values


@compiled
def _place(lo, hi, values, indptr, slots, out, out_indptr):
    for row in range(lo, hi):
        to = out_indptr[slots[row]]
        for e in range(indptr[row] - indptr[0], indptr[row + 1] - indptr[0]):
            out[to] = values[e]
            to += 1
