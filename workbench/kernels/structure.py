"""One-pass checks of ids and offsets, without copies, before kernels trust them."""

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.hash import mix64
from workbench.kernels.jit import compiled


@compiled
def _first_decrease(values):
    for i in range(1, len(values)):
        if values[i] < values[i - 1]:
            return i - 1
    return -1


@compiled
def _first_repeat(ids, table, mask):
    """Linear probing in a table of positions + 1, where 0 marks a free slot."""
    for i in range(len(ids)):
        slot = mix64(np.uint64(ids[i])) & mask
        while table[slot] > 0:
            if ids[table[slot] - 1] == ids[i]:
                return i
            slot = (slot + np.uint64(1)) & mask
        table[slot] = i + 1
    return -1


def first_decrease(values: Tensor) -> int | None:
    """Return the position of the first value that is larger than its successor, or None if there is none.

    Args:
        values: int64 [any], on any device; on the CPU it is read once and nothing is allocated.

    >>> first_decrease(torch.tensor([0, 3, 3, 2]))
    2
    """
    if values.device.type != "cpu":
        return first_decrease_torch(values)
    position = _first_decrease(values.numpy())
    return None if position < 0 else int(position)


def first_decrease_torch(values: Tensor) -> int | None:
    """Compute `first_decrease` in plain torch, on any device."""
    decreases = (values[1:] < values[:-1]).nonzero()
    return int(decreases[0, 0]) if len(decreases) else None


def first_repeat(ids: Tensor) -> int | None:
    """Return the first id that occurs a second time, or None if all ids are distinct.

    Args:
        ids: int64 [any], on any device; on the CPU it uses a hash table of 8 to 16 bytes per id.

    >>> first_repeat(torch.tensor([4, 7, 9, 7, 4]))
    7
    """
    if ids.device.type != "cpu":
        return first_repeat_torch(ids)
    table = np.zeros(1 << max(1, (2 * len(ids) - 1).bit_length()), np.int32 if len(ids) < 2**31 else np.int64)
    position = _first_repeat(ids.detach().contiguous().numpy(), table, np.uint64(len(table) - 1))
    return None if position < 0 else int(ids[position])


def first_repeat_torch(ids: Tensor) -> int | None:
    """Compute `first_repeat` in plain torch, on any device."""
    order = torch.argsort(ids, stable=True)
    repeats = order[1:][ids[order][1:] == ids[order][:-1]]
    return int(ids[repeats.min()]) if len(repeats) else None
