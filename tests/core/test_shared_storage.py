"""Tensors that share storage are counted and copied once, and their copies share storage too."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.simulated_cuda import SimulatedDevice
from workbench.core.shared_storage import move_all, pack, storage_bytes, total_bytes


def shares(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


def test_a_tensor_counts_its_elements():
    assert total_bytes([torch.zeros(10), None, torch.zeros(3, dtype=torch.int64), torch.empty(0)]) == 64
    assert total_bytes([torch.zeros(100)[:10]]) == 40
    assert total_bytes([]) == 0


def test_shared_storage_counts_once_and_whole():
    whole = torch.zeros(100, dtype=torch.int64)
    assert total_bytes([whole, whole[:10], whole[50:]]) == 800
    assert total_bytes([whole[:10], whole[50:60]]) == 800
    assert total_bytes([whole, whole.view(torch.int32), torch.zeros(1)]) == 804


def test_views_of_one_storage_stay_views_of_one_storage():
    whole = torch.arange(100)
    views = {"prefix": whole[:40], "rest": whole[40:], "steps": whole[10:90:5], "table": whole.view(10, 10).T}
    moved: dict[str, Any] = move_all(views, "meta")
    for name, view in views.items():
        assert moved[name].device.type == "meta"
        assert (moved[name].shape, moved[name].stride()) == (view.shape, view.stride())
        assert moved[name].storage_offset() == view.storage_offset()
    assert total_bytes(moved.values()) == total_bytes(views.values()) == 800


def test_values_are_kept():
    whole = torch.arange(12)
    tensors = {"a": whole[:5], "b": whole[3:9], "c": torch.ones(2), "d": None, "e": torch.empty(0)}
    moved: dict[str, Any] = move_all(tensors, "cpu")
    assert moved["d"] is None
    for name in "abce":
        assert torch.equal(moved[name], tensors[name])
        assert moved[name].dtype == tensors[name].dtype
    assert shares(moved["a"], moved["b"])


def test_one_storage_viewed_as_two_dtypes():
    words = torch.arange(6, dtype=torch.int64)
    moved: dict[str, Any] = move_all({"words": words, "halves": words.view(torch.int32)[3:]}, "cpu")
    assert torch.equal(moved["words"], words)
    assert torch.equal(moved["halves"], words.view(torch.int32)[3:])


def test_arrays_at_the_same_address_are_distinct_storages():
    """Two arrays over one memory map may have the same address but different lengths."""
    array = np.arange(10)
    short, long = torch.from_numpy(array[:3]), torch.from_numpy(array)
    moved: dict[str, Any] = move_all({"short": short, "long": long}, "cpu")
    assert torch.equal(moved["long"], long)
    assert total_bytes([short, long]) == 8 * 13


def test_tensors_that_share_storage_keep_their_gradients():
    whole = torch.ones(5, requires_grad=True)
    moved = move_all({"a": whole[:2], "b": whole[2:]}, "cpu")
    torch.cat([t for t in moved.values() if t is not None]).sum().backward()
    assert whole.grad is not None and whole.grad.tolist() == [1.0] * 5


@pytest.mark.cuda
def test_tensors_are_packed_into_one_pinned_buffer(gpu: SimulatedDevice | None) -> None:
    whole, odd = torch.arange(100), torch.tensor([True, False, True])
    grad = torch.ones(2, requires_grad=True)
    tensors = {
        "prefix": whole[:40], "steps": whole[10:90:5], "half": whole.view(torch.int32)[7:9],
        "slice": torch.arange(9)[2:5], "table": torch.arange(6.0).view(2, 3).T,
        "odd": odd, "empty": torch.empty(0, 2), "none": None, "grad": grad,
    }  # fmt: skip
    packed = pack(tensors)
    assert set(packed) == set(tensors) - {"empty", "none", "grad"}
    assert all(t.is_pinned() and torch.equal(t, tensors[name]) for name, t in packed.items())
    assert total_bytes(packed.values()) == sum(-(-n // 512) * 512 for n in storage_bytes(map(tensors.get, packed)))
    assert shares(packed["prefix"], packed["steps"]) and shares(packed["prefix"], packed["odd"])
    packed["prefix"].zero_()
    assert packed["half"].tolist() == [0, 0] and whole[1] == 1 and packed["slice"].tolist() == [2, 3, 4]
    assert not pack(packed) and not pack({"none": None}) and pack(tensors)["half"].tolist() == [0, 4]
    moved: dict[str, Any] = move_all(pack(tensors), "cuda", non_blocking=True)
    back: dict[str, Any] = move_all(moved, "cpu")
    for name, tensor in back.items():
        assert moved[name].is_cuda and torch.equal(tensor, tensors[name])
