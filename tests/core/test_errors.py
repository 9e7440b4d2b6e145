"""The checks at the boundary: what passes, and a message that names value, limit and remedy."""

import numpy as np
import pytest
import torch

from workbench.core import errors as e


def test_errors_are_kinds_of_the_builtin_ones():
    assert issubclass(e.CapacityError, MemoryError)
    assert issubclass(e.CorruptFileError, ValueError)


def test_check_ids_returns_a_contiguous_int64_vector():
    ids = e.check_ids("seeds", torch.arange(10, dtype=torch.int32)[::3], 10, unique=True)
    assert ids.dtype == torch.int64
    assert ids.is_contiguous()
    assert ids.tolist() == [0, 3, 6, 9]
    assert e.check_ids("seeds", torch.empty(0, dtype=torch.int64), 0).tolist() == []
    assert e.check_ids("seeds", torch.tensor([1, 1]), 2).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        ([1, 2], TypeError, r"seeds must be an int64 or int32 tensor, not list; .*torch.as_tensor"),
        (torch.ones(2), TypeError, r"not torch.float32"),
        (torch.tensor([True]), TypeError, r"not torch.bool"),
        (torch.zeros(2, 2, dtype=torch.int64), ValueError, r"seeds must be a vector, not of shape \(2, 2\)"),
        (torch.tensor(3), ValueError, r"not of shape \(\)"),
        (torch.tensor([0, 5]), IndexError, r"seeds holds 5; ids must lie in \[0, 5\)"),
        (torch.tensor([7, -1]), IndexError, r"seeds holds -1; ids must lie in \[0, 5\)"),
        (torch.tensor([3, 1, 3]), ValueError, r"seeds holds 3 more than once; pass each id once"),
    ],
)
def test_check_ids_refuses(ids, error, message):
    with pytest.raises(error, match=message):
        e.check_ids("seeds", ids, 5, unique=True)


def test_check_vector_passes():
    e.check_vector("labels", None, 3, (torch.int64,))
    e.check_vector("labels", torch.zeros(3), 3, (torch.int64, torch.float32))
    e.check_vector("labels", torch.zeros(3, 2), 3, (torch.float32,), columns=True)
    e.check_vector("labels", torch.zeros(3), None, (torch.float32,))


@pytest.mark.parametrize(
    ("values", "length", "error", "message"),
    [
        ([0, 1], 2, TypeError, "labels must be a tensor of torch.int64 or torch.int32, not list"),
        (torch.zeros(2), 2, TypeError, "not torch.float32"),
        (torch.arange(3), 2, ValueError, r"labels has shape \(3,\); its first dimension must be 2"),
        (torch.tensor(0), 2, ValueError, r"shape \(\); it must have one dimension"),
        (torch.zeros(2, 2, dtype=torch.int64), 2, ValueError, r"shape \(2, 2\); it must have one dimension"),
        (torch.zeros(2, 1, dtype=torch.int64), None, ValueError, r"shape \(2, 1\); it must have one dimension"),
        (torch.tensor(0), None, ValueError, r"shape \(\); it must have one dimension"),
    ],
)
def test_check_vector_refuses(values, length, error, message):
    with pytest.raises(error, match=message):
        e.check_vector("labels", values, length, e.ID_DTYPES)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_check_finite_names_value_and_place(value):
    e.check_finite("edge_weight", torch.tensor([[0.0, -1.5]]))
    with pytest.raises(ValueError, match=f"edge_weight holds {value} at position 2; replace or drop"):
        e.check_finite("edge_weight", torch.tensor([[0, 1], [value, 3]]))


def test_check_choice_lists_what_is_known():
    e.check_choice("method", "reg", ["reg", "metis"])
    with pytest.raises(ValueError, match="method 'rag' is not known; choose from metis, reg"):
        e.check_choice("method", "rag", ["reg", "metis"])


@pytest.mark.parametrize("value", [1, 5, np.int64(3)])
def test_check_at_least_passes(value):
    e.check_at_least("num_parts", value, 1)


@pytest.mark.parametrize("value", [0, -3, 2.0, "4", True, None])
def test_check_at_least_refuses(value):
    with pytest.raises(ValueError, match=f"num_parts is {value!r}; it must be a whole number of at least 1"):
        e.check_at_least("num_parts", value, 1)
