"""Reads from tensors, arrays, memory-mapped files and stores."""

import numpy as np
import pytest
import torch
from torch import Tensor

from workbench.features.store import check_covers, read_rows

X = torch.arange(12.0).view(6, 2)
IDS = torch.tensor([4, 0, 4])


class StoreWithoutLength:
    """The minimal feature store."""

    def read(self, ids: Tensor) -> Tensor:
        return X[ids]


@pytest.mark.parametrize("source", [X, X.numpy(), StoreWithoutLength()])
def test_rows_by_id(source: object) -> None:
    assert torch.equal(read_rows(source, IDS), X[IDS])
    assert read_rows(source, IDS[:0]).shape == (0, 2)


def test_memory_mapped_files(tmp_path: object) -> None:
    np.save(f"{tmp_path}/x.npy", X.numpy())
    assert torch.equal(read_rows(np.load(f"{tmp_path}/x.npy", mmap_mode="r"), IDS), X[IDS])


def test_a_tensor_is_read_on_its_device() -> None:
    assert read_rows(X.to("meta"), IDS).device.type == "meta"


@pytest.mark.parametrize("source", [X[:4], X[:4].numpy()])
def test_too_few_rows_are_refused(source: object) -> None:
    with pytest.raises(IndexError, match="y has 4 rows, but the batch reads row 4"):
        check_covers("y", source, IDS)


@pytest.mark.parametrize("source", [X, StoreWithoutLength()])
def test_enough_or_unknown_rows_are_accepted(source: object) -> None:
    check_covers("x", source, IDS)
    check_covers("x", X[:0], IDS[:0])
