"""The hash compared with published values, and numba with torch bit for bit."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from workbench.kernels import hash as h

INT64 = st.integers(-(2**63), 2**63 - 1)
ID_LISTS = st.lists(INT64, min_size=1, max_size=20)
BOUNDS = st.integers(1, 2**31 - 1)
# First outputs of SplitMix64 for seed 1234567, from its authors' C code.
SPLITMIX = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]


def unsigned(words: torch.Tensor) -> list[int]:
    return [word & (2**64 - 1) for word in words.tolist()]


def test_is_splitmix64():
    assert unsigned(h.hash_index_torch(1234567, torch.arange(5))) == SPLITMIX
    assert [int(h.hash_index(1234567, i)) for i in range(5)] == SPLITMIX


@given(key=INT64, ids=ID_LISTS)
def test_numba_equals_torch(key, ids):
    assert [int(h.hash_index(key, i)) for i in ids] == unsigned(h.hash_index_torch(key, torch.tensor(ids)))


@given(keys=ID_LISTS, index=INT64)
def test_keys_may_be_a_tensor(keys, index):
    words = h.hash_index_torch(torch.tensor(keys), torch.tensor(index))
    assert words.tolist() == [h.hash_index_torch(key, torch.tensor(index)).item() for key in keys]


@given(ids=ID_LISTS)
def test_int32_ids_hash_like_int64(ids):
    narrow = torch.tensor(ids).to(torch.int32)
    assert torch.equal(h.hash_index_torch(7, narrow), h.hash_index_torch(7, narrow.long()))
    assert int(h.hash_index(7, np.int32(narrow[0]))) == int(h.hash_index(7, np.int64(narrow[0])))


@given(words=ID_LISTS)
def test_unit_interval_is_the_upper_53_bits(words):
    bits = torch.tensor(words)
    expected = [(word >> 11) / 2**53 for word in unsigned(bits)]
    assert h.unit_interval_torch(bits).tolist() == expected
    assert [h.unit_interval(np.uint64(word)) for word in unsigned(bits)] == expected
    assert all(0 <= value < 1 for value in expected)


@given(words=ID_LISTS, bound=BOUNDS)
def test_below_is_the_scaled_word(words, bound):
    """Exact arithmetic: floor(word · bound / 2⁶⁴), in which the probabilities differ by at most 2⁻⁶⁴."""
    bits = torch.tensor(words)
    expected = [word * bound >> 64 for word in unsigned(bits)]
    assert h.below_torch(bits, bound).tolist() == expected
    assert h.below_torch(bits, torch.tensor(bound, dtype=torch.int32)).tolist() == expected
    assert [int(h.below(np.uint64(word), bound)) for word in unsigned(bits)] == expected


@pytest.mark.parametrize("bound", [1, 2, 2**31 - 1])
def test_below_reaches_both_ends(bound):
    assert h.below_torch(torch.tensor([0, -1]), bound).tolist() == [0, bound - 1]


@given(words=ID_LISTS)
def test_exponential_equals_torch_and_approximates_the_logarithm(words):
    bits = torch.tensor(words)
    variates = h.exponential_torch(bits)
    assert [h.exponential(np.uint64(word)) for word in unsigned(bits)] == variates.tolist()
    expected = [-math.log(((word >> 12) + 0.5) / 2**52) for word in unsigned(bits)]
    assert variates.tolist() == pytest.approx(expected, abs=2e-7)
    assert bool((variates > 0).all())


@given(parts=st.lists(st.integers(-(2**70), 2**70), max_size=4), index=INT64)
def test_a_key_of_one_more_part_is_a_variate_of_the_shorter_key(parts, index):
    assert h.derive_key(*parts, index) == h.hash_index_torch(h.derive_key(*parts), torch.tensor(index)).item()


def test_keys_are_distinct():
    grid = torch.cartesian_prod(*(torch.arange(n) for n in (12, 5, 40, 8)))
    assert len({h.derive_key(*cell) for cell in grid.tolist()}) == len(grid)
