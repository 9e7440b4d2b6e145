"""One-pass checks: the compiled and the torch implementation compared with plain Python."""

import pytest
import torch
from hypothesis import given, strategies as st

from workbench.kernels.csr import first_decrease, first_decrease_torch, first_repeat, first_repeat_torch

IDS = st.lists(st.one_of(st.integers(-3, 12), st.sampled_from([2**63 - 1, -(2**63), 2**40])), max_size=30)


def vector(values):
    return torch.tensor(values, dtype=torch.int64)


@pytest.mark.parametrize("check", [first_decrease, first_decrease_torch])
@given(values=IDS)
def test_first_decrease(check, values):
    expected = next((i for i in range(len(values) - 1) if values[i] > values[i + 1]), None)
    assert check(vector(values)) == expected


@pytest.mark.parametrize("check", [first_repeat, first_repeat_torch])
@given(values=IDS)
def test_first_repeat(check, values):
    expected = next((value for i, value in enumerate(values) if value in values[:i]), None)
    assert check(vector(values)) == expected


@pytest.mark.parametrize("check", [first_repeat, first_repeat_torch])
def test_many_ids_with_equal_residues(check):
    ids = torch.arange(5000) << 32
    assert check(ids) is None
    assert check(torch.cat([ids, ids[4321:4322]])) == 4321 << 32
