"""Eight array elements at a time, in vector instructions that are spelled out: hashes, sums and compressed writes.

The compiler vectorizes long loops, and leaves up to a dozen iterations over for scalar code; most rows of a graph are
no longer than that. Here the last elements are masked instead. Processors without masks get several instructions
for one.
"""

import numpy as np

from workbench.kernels import lane_instructions as instructions
from workbench.kernels.jit import compiled_inline

LANES = instructions.LANES
_ALL = np.uint64((1 << LANES) - 1)
_ONE = np.uint64(1)


@compiled_inline
def first_lanes(count):
    """Return a mask of the first `count` lanes, or of all if there are fewer."""
    return (_ONE << np.uint64(count)) - _ONE if count < LANES else _ALL


@compiled_inline
def hash_below(array, index, count, key, threshold):
    """Compare the hashes of eight ids.

    Args:
        array: int32 or int64, ids.
        index: of the first id.
        count: number of ids; those beyond the eighth are ignored, and memory beyond `count` ids is not read.
        threshold: int64, compared with the upper 53 bits of the hash; negative: below all.

    Returns:
        uint64, bit b set if the hash of `array[index + b]` is at most the threshold.
    """
    return instructions.hash_below(array, index, count, key, threshold)  # pyright: ignore[reportCallIssue]


@compiled_inline
def compress(array, index, mask, out, slot):
    """Copy the elements of `array[index : index + 8]` whose bits are set to consecutive places from `out[slot]` on."""
    instructions.compress(array, index, mask, out, slot)  # pyright: ignore[reportCallIssue]


@compiled_inline
def copy(array, index, count, out, slot):
    """Copy up to eight elements from `array[index]` on to `out[slot]` on; memory beyond `count` is not touched."""
    instructions.copy(array, index, count, out, slot)  # pyright: ignore[reportCallIssue]


@compiled_inline
def hash_units(array, index, count, key, out, slot):
    """Write eight ids' uniform variates, float64 in [0, 1), to `out[slot : slot + 8]`; unspecified from `count` on."""
    instructions.hash_units(array, index, count, key, out, slot)  # pyright: ignore[reportCallIssue]


@compiled_inline
def gather(table, array, index, count, out, slot):
    """Write `table[id]` of eight ids, float64, to `out[slot : slot + 8]`; zeros from `count` on."""
    instructions.gather(table, array, index, count, out, slot)  # pyright: ignore[reportCallIssue]


@compiled_inline
def multiply(array, index, other, factor):
    """Multiply eight float64 elements from `array[index]` on by those of `other`, then by `factor`."""
    instructions.multiply(array, index, other, factor)  # pyright: ignore[reportCallIssue]


@compiled_inline
def at_most_one(array, index, count):
    """Return a uint64 with bit b set if `array[index + b]` ≤ 1, for float64 and b below 8 and `count`."""
    return instructions.at_most_one(array, index, count)  # pyright: ignore[reportCallIssue]


@compiled_inline
def clamped_sum(array, blocks, factor, scale):
    """Add the whole numbers ⌊max(1, array · factor) · scale⌋ of the first `8 · blocks` elements, float64.

    Returns:
        The sum, and the number of products of at most 1; both int64.
    """
    return instructions.clamped_sum(array, blocks, factor, scale)  # pyright: ignore[reportCallIssue]
