"""Dropout masks by the ids of rows, which forward and backward passes compute instead of storing them."""

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.buffers import uninitialised
from workbench.kernels.hash import hash_index, hash_index_torch
from workbench.kernels.jit import compiled
from workbench.kernels.segment import edge_ranges
from workbench.kernels.threads import parallel_rows

_LEVELS = 1 << 16

CHANNELS_PER_WORD = 4

ROW_WORD_BYTES = 2 * 8 * CHANNELS_PER_WORD
"""Workspace of the torch implementation in bytes per row and word of variates: two integers per channel."""

_S16 = np.uint64(16)

_LOW_16 = np.uint64(_LEVELS - 1)


def drop_threshold(p: float) -> int:
    """Return the threshold, in units of 2⁻¹⁶, that drops a value with probability `p`."""
    threshold = round(p * _LEVELS) if 0 <= p < 1 else _LEVELS
    if threshold == _LEVELS:
        raise ValueError(f"dropout probability is {p}; it must be in [0, {1 - 1 / _LEVELS}]")
    return threshold


@compiled
def _apply_mask(x, ids, key, threshold, scale, out, lo, hi):
    for row in range(lo, hi):
        row_key = hash_index(key, ids[row])
        values, kept = x[row], out[row]
        for first in range(0, len(values), CHANNELS_PER_WORD):
            bits = hash_index(row_key, first // CHANNELS_PER_WORD)
            for c in range(first, min(first + CHANNELS_PER_WORD, len(values))):
                kept[c] = values[c] * scale if (bits & _LOW_16) >= threshold else values.dtype.type(0)
                bits >>= _S16


def keep_mask_torch(ids: Tensor, channels: int, key: int, threshold: int) -> Tensor:
    """Compute the mask of kept values, bool [num_ids, channels], in plain torch, on any device."""
    words = torch.arange(-(-channels // CHANNELS_PER_WORD), device=ids.device)
    bits = hash_index_torch(hash_index_torch(key, ids)[:, None], words)
    shifts = torch.arange(0, 64, 16, device=ids.device)
    levels = (bits[:, :, None] >> shifts) & (_LEVELS - 1)
    return (levels >= threshold).flatten(1)[:, :channels]


def apply_mask(x: Tensor, ids: Tensor, key: int, threshold: int, *, out: Tensor | None = None) -> Tensor:
    """Set dropped values of `x` to zero and divide the others by the probability of keeping a value.

    Args:
        x: floating point [num_rows, channels].
        ids: int64 [num_rows], id of each row.
        threshold: result of `drop_threshold`.
        out: contiguous memory for the result, which may be that of `x`; None to allocate it.
    """
    scale = _LEVELS / (_LEVELS - threshold)
    if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return _apply_mask_torch(x, ids, key, threshold, scale, out)
    out = uninitialised(x, *x.shape) if out is None else out
    values, rows, kept = x.detach().contiguous().numpy(), ids.numpy(), out.numpy()
    limit, factor = np.uint64(threshold), values.dtype.type(scale)
    parallel_rows(lambda lo, hi: _apply_mask(values, rows, key, limit, factor, kept, lo, hi), x.shape[0])
    return out


def _apply_mask_torch(
    x: Tensor, ids: Tensor, key: int, threshold: int, scale: float, out: Tensor | None = None
) -> Tensor:
    """Process ranges of rows, because the hash needs 16 bytes per value and more, several times the value's size."""
    out = torch.empty_like(x) if out is None else out
    for rows in edge_ranges(x.shape[0], ROW_WORD_BYTES * -(-x.shape[1] // CHANNELS_PER_WORD)):
        kept = keep_mask_torch(ids[rows], x.shape[1], key, threshold)
        out[rows] = torch.where(kept, x[rows] * scale, 0)
    return out
