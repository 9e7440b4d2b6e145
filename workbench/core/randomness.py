"""Counter-based randomness: each variate is a hash of (seed, purpose, step, layer, ids), equal on every device."""

from enum import IntEnum

import torch
from torch import Tensor

from workbench.core.errors import check_seed
from workbench.kernels.hash import derive_key, hash_index_torch, unit_interval_torch


class Purpose(IntEnum):
    """Purposes of random streams: with one seed, streams of different purposes are independent."""

    SAMPLING = 1
    DROPOUT = 2
    SHUFFLE = 3
    PARTITION = 4
    SPLIT = 5
    FEATURES = 6
    NEGATIVES = 7
    ORDER = 8


def stream(seed: int, purpose: Purpose, step: int = 0, layer: int = 0) -> int:
    """Return the key of the random stream of (seed, purpose, step, layer).

    Args:
        seed: whole number in [-2**63, 2**63).
        purpose: use of the variates.
        step: number of the batch, in [-2**63, 2**63).
        layer: index of the layer, 0 for the input layer.

    Raises:
        ValueError: if `seed` or `step` is not a whole number of 64 bits.
    """
    return derive_key(check_seed(seed), purpose, check_seed(step, "step"), layer)


def uniform(key: int | Tensor, ids: Tensor) -> Tensor:
    """Draw one uniform variate per id, equal on every device.

    Args:
        key: key of the stream, or an int64 tensor of keys that broadcasts with `ids`.
        ids: integer tensor of any shape.

    Returns:
        float64 in [0, 1) with 53 random bits, in the broadcast shape.
    """
    return unit_interval_torch(hash_index_torch(key, ids))


def permutation(key: int, count: int) -> Tensor:
    """Return a random permutation of range(count); equal 64-bit variates keep their order.

    Args:
        key: key of the stream.
        count: length of the permutation.

    Returns:
        int64 [count].

    >>> sorted(permutation(7, 5).tolist())
    [0, 1, 2, 3, 4]
    """
    return torch.argsort(hash_index_torch(key, torch.arange(count)), stable=True)
