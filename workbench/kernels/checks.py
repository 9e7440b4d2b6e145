"""Checks of ids and offsets in one pass, without copies: foreign structure is read before any kernel trusts it."""

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.hash import mix64
from workbench.kernels.jit import compiled


@compiled
def _first_fall(values):
    for i in range(1, len(values)):
        if values[i] < values[i - 1]:
            return i - 1
    return -1


@compiled
def _first_repeat(ids, table, mask):
    """Linear probing in a table of positions + 1; 0 is free."""
    for i in range(len(ids)):
        slot = mix64(np.uint64(ids[i])) & mask
        while table[slot] > 0:
            if ids[table[slot] - 1] == ids[i]:
                return i
            slot = (slot + np.uint64(1)) & mask
        table[slot] = i + 1
    return -1


def first_fall(values: Tensor) -> int | None:
    """Position of the first value that is larger than the next one; None: the values never decrease.

    Args:
        values: int64 vector, on any device; on the CPU it is read once and nothing is allocated.

    >>> first_fall(torch.tensor([0, 3, 3, 2]))
    2
    """
    if values.device.type != "cpu":
        return first_fall_torch(values)
    position = _first_fall(values.numpy())
    return None if position < 0 else int(position)


def first_fall_torch(values: Tensor) -> int | None:
    """`first_fall` in plain torch, for any device."""
    falls = (values[1:] < values[:-1]).nonzero()
    return int(falls[0, 0]) if len(falls) else None


def first_repeat(ids: Tensor) -> int | None:
    """The first id that occurred before; None: all differ.

    Args:
        ids: int64 vector, on any device; on the CPU a hash table of 8 to 16 bytes per id is filled.

    >>> first_repeat(torch.tensor([4, 7, 9, 7, 4]))
    7
    """
    if ids.device.type != "cpu":
        return first_repeat_torch(ids)
    table = np.zeros(1 << max(1, (2 * len(ids) - 1).bit_length()), np.int32 if len(ids) < 2**31 else np.int64)
    position = _first_repeat(ids.detach().contiguous().numpy(), table, np.uint64(len(table) - 1))
    return None if position < 0 else int(ids[position])


def first_repeat_torch(ids: Tensor) -> int | None:
    """`first_repeat` in plain torch, for any device."""
    order = torch.argsort(ids, stable=True)
    repeats = order[1:][ids[order][1:] == ids[order][:-1]]
    return int(ids[repeats.min()]) if len(repeats) else None
