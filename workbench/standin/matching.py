"""The configuration model (Molloy, Reed, 1995): every node has a stub per edge, and a random bijection matches stubs.

It meets degrees exactly except for self loops and duplicates; the Chung-Lu model of BTER's phase 2 meets them only in
expectation.
"""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from workbench.kernels.csr import offsets
from workbench.kernels.hash import hash_index
from workbench.kernels.jit import compiled
from workbench.kernels.threads import parallel_rows
from workbench.standin.node_pairs import Pairs

_ROUNDS = 4
_MIN_PAIRS = 1 << 14


@compiled
def shuffled(key, index, count, low_bits, high_bits):
    """Map `index` by a pseudo-random bijection of [0, count).

    A Feistel network of alternating halves, iterated until the result is in range (cycle walking; Black, Rogaway,
    "Ciphers with arbitrary finite domains", CT-RSA 2002).
    """
    low_mask, high_mask = (np.int64(1) << low_bits) - 1, (np.int64(1) << high_bits) - 1
    while True:
        high, low = index >> low_bits, index & low_mask
        for turn in range(_ROUNDS):
            high = (high ^ np.int64(hash_index(key + 2 * turn, low))) & high_mask
            low = (low ^ np.int64(hash_index(key + 2 * turn + 1, high))) & low_mask
        index = (high << low_bits) | low
        if index < count:
            return index


@compiled
def _pair(owners, first, count, key, low_bits, high_bits, lo, hi, left, right):
    for pair in range(lo, hi):
        left[pair] = owners[first + shuffled(key, 2 * pair, count, low_bits, high_bits)]
        right[pair] = owners[first + shuffled(key, 2 * pair + 1, count, low_bits, high_bits)]


def halves(count: int) -> tuple[int, int]:
    """Return the bits of the low and the high half of numbers below `count`."""
    bits = max(2, (count - 1).bit_length())
    return bits // 2, bits - bits // 2


def match_stubs(stubs: Tensor, group_starts: Tensor, key: int) -> Pairs:
    """Match the stubs of every group of nodes at random; self loops and duplicates occur, an odd stub remains.

    Args:
        stubs: int64 [nodes], number of stubs per node.
        group_starts: int64 [groups + 1], where every group of nodes begins.
        key: key of the random stream.

    Returns:
        The pairs, group after group.
    """
    owners = torch.arange(len(stubs), dtype=torch.int32).repeat_interleave(stubs)
    bounds = offsets(stubs)[group_starts].tolist()
    total = sum((end - first) // 2 for first, end in pairwise(bounds))
    left, right = (torch.empty(total, dtype=torch.int32) for _ in range(2))
    o, at = owners.numpy(), 0
    for group, (first, end) in enumerate(pairwise(bounds)):
        count, pairs = end - first, (end - first) // 2
        low, high = halves(count)
        group_key = int(np.int64(key) ^ np.int64(group << 32))
        a, b = left[at : at + pairs].numpy(), right[at : at + pairs].numpy()

        def kernel(lo: int, hi: int, first=first, count=count, key=group_key, low=low, high=high, a=a, b=b) -> None:
            _pair(o, first, count, key, low, high, lo, hi, a, b)

        parallel_rows(kernel, pairs, _MIN_PAIRS)
        at += pairs
    return Pairs(left, right)


@compiled
def _choose(key, count, low_bits, high_bits, lo, hi, chosen):
    for i in range(lo, hi):
        chosen[i] = shuffled(key, i, count, low_bits, high_bits)


def random_subset(count: int, size: int, key: int) -> Tensor:
    """Draw distinct numbers below `count`.

    Args:
        count: exclusive upper bound.
        size: how many numbers to draw, at most `count`.
        key: key of the random stream.

    Returns:
        int64 [size].
    """
    low, high = halves(count)
    chosen = torch.empty(size, dtype=torch.int64)
    c = chosen.numpy()
    parallel_rows(lambda lo, hi: _choose(key, count, low, high, lo, hi, c), size, _MIN_PAIRS)
    return chosen
