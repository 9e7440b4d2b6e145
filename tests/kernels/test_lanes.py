"""Vector instructions of eight lanes: each against NumPy, for every number of elements and at the end of an array."""

import numpy as np
import pytest

from workbench.kernels import lanes
from workbench.kernels.hash import hash_index
from workbench.kernels.jit import compiled

KEY = -(2**62) - 12345


@compiled
def masks_of(array, index, count, key, threshold):
    return lanes.hash_below(array, index, count, key, threshold)


@compiled
def first_lanes_of(count):
    return lanes.first_lanes(count)


@compiled
def compressed(array, index, mask, out, slot):
    lanes.compress(array, index, mask, out, slot)


@compiled
def copied(array, index, count, out, slot):
    lanes.copy(array, index, count, out, slot)


@compiled
def units_of(array, index, count, key, out, slot):
    lanes.hash_units(array, index, count, key, out, slot)


@compiled
def gathered(table, array, index, count, out, slot):
    lanes.gather(table, array, index, count, out, slot)


@compiled
def few(array, index, count):
    return lanes.at_most_one(array, index, count)


@compiled
def clamped(array, blocks, factor, scale):
    return lanes.clamped_sum(array, blocks, factor, scale)


@compiled
def multiplied(array, index, other, factor):
    lanes.multiply(array, index, other, factor)


def bits(flags: np.ndarray) -> int:
    return sum(1 << b for b, flag in enumerate(flags) if flag)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_hashes(dtype: type) -> None:
    """Equal to the scalar hash, up to the last element of the array and with negative ids."""
    ids = np.random.default_rng(0).integers(-(2**31), 2**31, 21).astype(dtype)
    upper = np.array([int(hash_index(KEY, i)) >> 11 for i in ids])
    units = upper / 2.0**53
    for start, count in [(0, 21), (5, 8), *((21 - c, c) for c in range(9))]:
        present = slice(start, start + min(count, 8))
        for threshold in (-1, 2**51, int(upper[7]), 2**53):
            found = masks_of(ids, start, count, KEY, threshold)
            assert int(found) == bits(upper[present] <= threshold)
        out = np.full(12, -1.0)
        units_of(ids, start, count, KEY, out, 3)
        assert (out[3 : 3 + min(count, 8)] == units[present]).all() and (out[[0, 1, 2, 11]] == -1).all()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_compressed_writes(dtype: type) -> None:
    values = np.arange(1, 14).astype(dtype)
    for mask in (0, 1, 0b10000000, 0b1011, 0b11111111):
        chosen = [b for b in range(8) if mask >> b & 1]
        out = np.zeros(len(chosen) + 2, dtype)
        compressed(values, 5, np.uint64(mask), out, 1)
        assert out.tolist() == [0, *(values[5 + b] for b in chosen), 0]
    assert [int(first_lanes_of(count)) for count in (0, 1, 3, 8, 9)] == [0, 1, 7, 255, 255]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_copies(dtype: type) -> None:
    values = np.arange(1, 14).astype(dtype)
    for count in range(11):
        out = np.zeros(10, dtype)
        copied(values, 13 - min(count, 8), count, out, 1)
        assert out.tolist() == [0, *values[13 - min(count, 8) :], *[0] * (9 - min(count, 8))]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_gathered_values(dtype: type) -> None:
    table, ids = np.random.default_rng(1).random(50), np.random.default_rng(2).integers(0, 50, 11).astype(dtype)
    for count in range(10):
        out = np.full(9, -1.0)
        gathered(table, ids, 11 - min(count, 8), count, out, 0)
        assert out[:8].tolist() == [*table[ids[11 - min(count, 8) :]], *[0.0] * (8 - min(count, 8))]
        assert out[8] == -1


def test_comparisons_and_sums() -> None:
    values = np.random.default_rng(3).random(24) * 4
    values[4] = 1.0
    for count in range(10):
        assert int(few(values, 24 - count, count)) == bits(values[24 - count :][:8] <= 1)
    assert int(few(values, 0, 8)) == bits(values[:8] <= 1)
    for blocks in range(4):
        products = values[: 8 * blocks] * 0.7
        terms = (np.maximum(products, 1.0) * 2.0**40).astype(np.int64)
        assert clamped(values, blocks, 0.7, 2.0**40) == (terms.sum(), (products <= 1).sum())


def test_products() -> None:
    values, other = np.random.default_rng(4).random((2, 20))
    expected = values.copy()
    expected[7:15] = values[7:15] * other[7:15] * 0.3
    multiplied(values, 7, other, 0.3)
    assert (values == expected).all()
