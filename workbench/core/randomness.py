"""Randomness as a function: every variate is a hash of (seed, purpose, step, layer, ids), the same on any device."""

from enum import IntEnum

import torch
from torch import Tensor

from workbench.core.errors import check_seed
from workbench.kernels.hash import derive_key, hash_index_torch, unit_interval_torch


class Purpose(IntEnum):
    """What a stream is for, so that one seed serves all without their variates meeting."""

    SAMPLING = 1
    DROPOUT = 2
    SHUFFLE = 3
    PARTITION = 4
    SPLIT = 5
    FEATURES = 6


def stream(seed: int, purpose: Purpose, step: int = 0, layer: int = 0) -> int:
    """Key of the stream of one (seed, purpose, step, layer).

    Args:
        seed: any whole number of 64 bits.
        purpose: what the variates are for.
        step: number of the batch.
        layer: number of the layer, input layer first.

    Raises:
        ValueError: a seed or a step that is no whole number of 64 bits.
    """
    return derive_key(check_seed(seed), purpose, check_seed(step, "step"), layer)


def uniform(key: int | Tensor, ids: Tensor) -> Tensor:
    """float64 in [0, 1) for every id under a key: 53 bits, equal on every device.

    Args:
        key: of the stream, or int64 keys that broadcast with `ids`.
        ids: integer tensor of any shape.
    """
    return unit_interval_torch(hash_index_torch(key, ids))


def permutation(key: int, count: int) -> Tensor:
    """int64 [count]: a random order of range(count); ties of the 64-bit variates keep their order.

    >>> sorted(permutation(7, 5).tolist())
    [0, 1, 2, 3, 4]
    """
    return torch.argsort(hash_index_torch(key, torch.arange(count)), stable=True)
