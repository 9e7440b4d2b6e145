"""Argument checks: valid values pass; otherwise the message names the value, the limit and the remedy."""

import pickle

import numpy as np
import pytest
import torch

from workbench.core import errors as e


def test_errors_subclass_builtin_exceptions():
    assert issubclass(e.CapacityError, MemoryError)
    assert issubclass(e.CorruptFileError, ValueError)


@pytest.mark.parametrize("name", ["CapacityError", "CorruptFileError", "PartitionError", "RankError", "DataError"])
def test_errors_cross_processes(name):
    """`concurrent.futures` pickles them; one that can't be read breaks its pool."""
    error = e.RankError("rank 1 failed", 1, "start") if name == "RankError" else getattr(e, name)("too large")
    error.add_note("a note")
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is type(error) and str(found) == str(error) and vars(found) == vars(error)


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
        (torch.ones(2), TypeError, r"convert with torch\.as_tensor\(seeds\)\.long\(\)"),
        (torch.tensor([True]), TypeError, r"not torch.bool; convert a mask with .*\(seeds\)\.nonzero\(\)\[:, 0\]$"),
        (np.array([True]), TypeError, r"not ndarray; convert a mask with .*\.nonzero\(\)\[:, 0\]$"),
        ([True, False], TypeError, r"not list; convert a mask with .*\.nonzero\(\)\[:, 0\]$"),
        (torch.tensor([1], dtype=torch.uint8), TypeError, r"mask with .*\.nonzero\(\)\[:, 0\], ids with .*\.long\(\)"),
        (torch.zeros(2, 2, dtype=torch.int64), ValueError, r"seeds must be a vector, not of shape \(2, 2\)"),
        (torch.tensor(3), ValueError, r"not of shape \(\)"),
        (torch.tensor([0, 5]), IndexError, r"seeds contains 5; ids must be in \[0, 5\)"),
        (torch.tensor([7, -1]), IndexError, r"seeds contains -1; ids must be in \[0, 5\)"),
        (torch.tensor([3, 1, 3]), ValueError, r"seeds contains 3 more than once; pass each id once"),
    ],
)
def test_check_ids_rejects(ids, error, message):
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
def test_check_vector_rejects(values, length, error, message):
    with pytest.raises(error, match=message):
        e.check_vector("labels", values, length, e.ID_DTYPES)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_check_finite_names_value_and_position(value):
    e.check_finite("edge_weight", torch.tensor([[0.0, -1.5]]))
    with pytest.raises(ValueError, match=f"edge_weight contains {value} at position 2; replace or drop"):
        e.check_finite("edge_weight", torch.tensor([[0, 1], [value, 3]]))


def test_check_choice_lists_known_names():
    e.check_choice("method", "reg", ["reg", "metis"])
    with pytest.raises(ValueError, match="method 'rag' is not known; choose from metis, reg"):
        e.check_choice("method", "rag", ["reg", "metis"])


@pytest.mark.parametrize("value", [1, 5, np.int64(3)])
def test_check_at_least_passes(value):
    e.check_at_least("num_parts", value, 1)


@pytest.mark.parametrize("value", [0, -3, 2.0, "4", True, None])
def test_check_at_least_rejects(value):
    with pytest.raises(ValueError, match=f"num_parts is {value!r}; it must be a whole number of at least 1"):
        e.check_at_least("num_parts", value, 1)


@pytest.mark.parametrize("mask", [torch.tensor([True, False]), np.array([True, False])])
def test_the_message_for_a_mask_says_how_to_convert_it(mask):
    with pytest.raises(TypeError, match=r"convert a mask with torch\.as_tensor\(train\)\.nonzero\(\)\[:, 0\]"):
        e.check_ids("train", mask, 5)


@pytest.mark.parametrize("limit", [2**31, 2**40, 2**63 - 1])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int16, torch.uint8])
def test_limits_wider_than_the_dtype_do_not_wrap(dtype, limit):
    values = torch.tensor([0, 7, 3], dtype=dtype)
    assert e.find_out_of_range(values, -1, limit) is None
    assert e.find_out_of_range(values, 0, 7) == 7
    assert e.find_out_of_range(values, 1, limit) == 0
    assert e.find_out_of_range(values[:0], 0, 0) is None


@pytest.mark.parametrize("seed", [0, -1, 2**63 - 1, -(2**63), np.int32(7)])
def test_check_seed_passes(seed):
    assert e.check_seed(seed) == seed


@pytest.mark.parametrize("seed", [1.5, 1.0, "7", True, None, torch.tensor(3)])
def test_check_seed_rejects_other_types(seed):
    with pytest.raises(ValueError, match=r"step is .*; it must be a whole number, such as step=0"):
        e.check_seed(seed, "step")


@pytest.mark.parametrize("seed", [2**63, 2**64, -(2**63) - 1])
def test_check_seed_rejects_more_than_64_bits(seed):
    with pytest.raises(ValueError, match=rf"seed is {seed}; it must be in \[-2\*\*63, 2\*\*63\)"):
        e.check_seed(seed)


def test_check_at_least_has_an_upper_bound():
    e.check_at_least("depth", 7, 1, most=7)
    with pytest.raises(ValueError, match="depth is 8; it must be a whole number from 1 to 7"):
        e.check_at_least("depth", 8, 1, most=7)


def test_check_bytes_accepts_numbers_and_text():
    assert e.check_bytes("capacity_bytes", 1) == 1
    assert e.check_bytes("capacity_bytes", "64MiB") == 64 * 2**20
    with pytest.raises(ValueError, match="capacity_bytes: '64 QiB' is not a number of bytes; write 8GiB"):
        e.check_bytes("capacity_bytes", "64 QiB")
    with pytest.raises(ValueError, match="capacity_bytes is 0; it must be a whole number of at least 1"):
        e.check_bytes("capacity_bytes", "0 GiB")
    with pytest.raises(ValueError, match=r"capacity_bytes is 1\.5; it must be a whole number of at least 1"):
        e.check_bytes("capacity_bytes", 1.5)  # pyright: ignore[reportArgumentType]


def test_check_type_names_type_and_remedy():
    e.check_type("mb", [], (list, tuple), "pass a list")
    with pytest.raises(TypeError, match="mb is an int; pass a list"):
        e.check_type("mb", 3, list, "pass a list")
