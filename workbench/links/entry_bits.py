"""Random bits of the entries of a matrix, keyed by row and column."""

import numpy as np
import torch
from torch import Tensor

from workbench.core.errors import INT64_MAX
from workbench.kernels.hash import hash_index, hash_index_torch
from workbench.kernels.jit import compiled

_POSITIVE = np.uint64(INT64_MAX)


def entry_bits(key: int, rows: int, columns: int, device: torch.device) -> Tensor:
    """Hash (key, row, column, 0) for every entry.

    Args:
        key: of the stream.
        rows: number of rows.
        columns: number of columns.
        device: of the result.

    Returns:
        int64 [rows · columns], not negative, row by row.
    """
    if device.type != "cpu":
        return attempt_bits(entry_keys(key, rows, columns, device), 0)
    out = torch.empty(rows * columns, dtype=torch.int64)
    _entry_bits(key, out.view(rows, columns).numpy())
    return out


def entry_keys(key: int, rows: int, columns: int, device: torch.device) -> Tensor:
    """Hash (key, row, column) for every entry: keys of the streams of its attempts, int64 [rows · columns]."""
    row = torch.arange(rows, device=device).repeat_interleave(columns)
    return hash_index_torch(hash_index_torch(key, row), torch.arange(columns, device=device).repeat(rows))


def attempt_bits(keys: Tensor, attempt: int) -> Tensor:
    """Hash an attempt of every entry: int64 like `keys`, not negative."""
    return hash_index_torch(keys, torch.tensor(attempt, device=keys.device)) & INT64_MAX


@compiled
def _entry_bits(key, out):
    for row in range(out.shape[0]):
        row_key = hash_index(key, row)
        for column in range(out.shape[1]):
            out[row, column] = np.int64(hash_index(hash_index(row_key, column), 0) & _POSITIVE)
