"""Sources of rows: tensors, arrays, memory-mapped files and minimal stores."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from workbench.features.memory_rows import MemoryRows, as_store, check_covers, read_rows
from workbench.features.protocols import check_store

X = torch.arange(12.0).view(6, 2)
IDS = torch.tensor([4, 0, 4])


class ReadOnly:
    """The minimum that a training step needs."""

    def read(self, ids: Tensor) -> Tensor:
        return X[ids]


@pytest.mark.parametrize("source", [X, X.numpy(), ReadOnly(), MemoryRows(X)])
def test_rows_by_id(source: Any) -> None:
    assert torch.equal(read_rows(source, IDS), X[IDS])
    assert read_rows(source, IDS[:0]).shape == (0, 2)


def test_stores_are_not_wrapped_again() -> None:
    for store in (ReadOnly(), MemoryRows(X)):
        assert as_store(store) is store


def test_memory_is_shared_and_kept_alive() -> None:
    array = np.zeros((6, 2))
    store = as_store(array)
    array[4] = 7
    del array  # the store keeps it alive
    assert store.read(IDS)[:, 0].tolist() == [7, 0, 7]


def test_memory_mapped_files(tmp_path: Path) -> None:
    """Read-only: without torch's warning, and without a way to write."""
    np.save(tmp_path / "x.npy", X.numpy())
    store = as_store(np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert torch.equal(store.read(IDS), X[IDS]) and not hasattr(store, "write")


@pytest.mark.parametrize(
    "array", [np.asfortranarray(X.numpy()), X.numpy()[::-1].copy()[::-1], X.numpy()[:, ::-1][:, ::-1]]
)
def test_arrays_of_any_layout(array: np.ndarray) -> None:
    assert torch.equal(read_rows(array, IDS.int()), X[IDS])
    with pytest.raises(IndexError, match="ids contains 6"):
        read_rows(array, IDS + 2)


def test_a_tensor_is_read_on_its_device() -> None:
    assert read_rows(X.to("meta"), IDS).device.type == "meta"


def test_gradients_reach_a_tensor() -> None:
    x = X.clone().requires_grad_()
    as_store(x).read(IDS).sum().backward()
    assert x.grad is not None and x.grad[:, 0].tolist() == [1, 0, 0, 0, 2, 0]


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ([[1.0]], TypeError, "y is a list; pass a tensor with a row per node"),
        (ReadOnly, TypeError, "y is a type; pass a tensor"),
        (torch.tensor(1.0), ValueError, "y is a single number"),
        (np.float64(1.0), TypeError, "y is a float64"),
        (np.zeros((3, 2), ">f4"), ValueError, "byte order"),
        (np.array(["a"]), TypeError, "numpy.str_"),
        (
            np.ma.masked_array(np.ones((3, 2)), mask=np.eye(3, 2, dtype=bool)),
            TypeError,
            r"y is a masked array, .* pass y\.filled\(value\)",
        ),
    ],
)
def test_other_sources_are_refused(source: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        as_store(source, "y")


@pytest.mark.parametrize("source", [X[:4], X[:4].numpy(), MemoryRows(X[:4])])
def test_too_few_rows_are_refused(source: object) -> None:
    with pytest.raises(IndexError, match="y has 4 rows, but the batch reads row 4"):
        check_covers("y", source, IDS)


@pytest.mark.parametrize("source", [X, ReadOnly()])
def test_enough_or_unknown_rows_are_accepted(source: object) -> None:
    check_covers("x", source, IDS)
    check_covers("x", X[:0], IDS[:0])


def test_wrappers_name_what_a_store_lacks() -> None:
    with pytest.raises(TypeError, match="store is a ReadOnly without row_shape, dtype, device, __len__; implement"):
        check_store("store", ReadOnly())


@pytest.mark.cuda
def test_reads_of_pinned_rows_are_pinned() -> None:
    assert MemoryRows(X, pin=True).read(IDS).is_pinned()


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_pinned_rows_require_cuda() -> None:
    with pytest.raises(ValueError, match="pin=True requires CUDA"):
        MemoryRows(X, pin=True)
