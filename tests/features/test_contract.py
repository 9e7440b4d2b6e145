"""The contract of all feature stores: they equal indexing of the tensor of their rows."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.features.stores import STORES, WRITABLE
from workbench.features.protocols import FeatureStore, WritableStore

X = torch.arange(7 * 3).view(7, 3).float() / 4
IDS = torch.tensor([5, 0, 5, 6])


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FeatureStore:
    return STORES[request.param](X, tmp_path)


@pytest.fixture(params=WRITABLE)
def writable(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return WRITABLE[request.param](X, tmp_path)


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize(
    "rows",
    [
        X,
        torch.arange(7),
        torch.arange(7) % 2 == 0,
        torch.arange(7 * 8).view(7, 2, 4).to(torch.float16),
        torch.zeros(7, 0),
        torch.zeros(0, 3, dtype=torch.int32),
    ],
    ids=lambda rows: f"{list(rows.shape)} {rows.dtype}",
)
def test_rows_of_any_shape_and_dtype(name: str, rows: Tensor, tmp_path: Path) -> None:
    store = STORES[name](rows, tmp_path)
    assert (len(store), store.row_shape, store.dtype) == (len(rows), rows.shape[1:], rows.dtype)
    ids = IDS[len(rows) > IDS]
    assert torch.equal(store.read(ids), rows[ids])


@pytest.mark.parametrize(
    "ids",
    [IDS, IDS.int(), IDS[:0], torch.arange(7), torch.arange(14)[::2] % 7],
    ids=["repeated", "int32", "none", "all", "strided"],
)
def test_equals_indexing(store: FeatureStore, ids: Tensor) -> None:
    expected = X[ids.long()]
    found, out = store.read(ids), torch.full_like(expected, -1)
    assert torch.equal(found, expected) and found.device == store.device
    assert store.read(ids, out=out) is out and torch.equal(out, expected)


def test_a_read_is_a_copy(store: FeatureStore) -> None:
    store.read(torch.arange(7)).zero_()
    assert torch.equal(store.read(IDS), X[IDS])


def test_threads_read_the_same(store: FeatureStore) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: store.read((IDS + i) % 7), range(40)))
    assert all(torch.equal(rows, X[(IDS + i) % 7]) for i, rows in enumerate(found))


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        (torch.tensor([3, 7, 9]), IndexError, r"ids contains 9; ids must be in \[0, 7\)"),
        (torch.tensor([3, -1]), IndexError, "ids contains -1"),
        (torch.tensor([1.0]), TypeError, "ids must be an int64 or int32 tensor, not torch.float32"),
        ([1, 2], TypeError, "ids must be an int64 or int32 tensor, not list"),
        (torch.tensor([[1]]), ValueError, "ids must be a vector"),
    ],
)
def test_wrong_ids_are_refused(store: FeatureStore, ids: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        store.read(ids)


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        (torch.empty(4, 3, dtype=torch.float64), TypeError, "out is torch.float64, but the rows are torch.float32"),
        (torch.empty(5, 3), ValueError, r"out has shape \(5, 3\); 4 ids give \(4, 3\)"),
        (torch.empty(4, 3, device="meta"), ValueError, "out is on meta, but the rows are on cpu"),
        ([0.0] * 4, TypeError, "out is a list; pass a tensor of shape"),
    ],
)
def test_wrong_buffers_are_refused(store: FeatureStore, out: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        store.read(IDS, out=out)


def test_written_rows_are_read(writable: WritableStore) -> None:
    ids, new = torch.tensor([6, 2], dtype=torch.int32), torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    writable.write(ids, new)
    expected = X.clone()
    expected[[6, 2]] = new
    assert torch.equal(writable.read(torch.arange(7)), expected)
    writable.write(ids[:0], new[:0])
    assert torch.equal(writable.read(torch.arange(7)), expected)


@pytest.mark.parametrize(
    ("ids", "rows", "error", "message"),
    [
        ([2, 4, 2], X[:3], ValueError, "ids contains 2 more than once"),
        ([2, 7], X[:2], IndexError, "ids contains 7"),
        ([2, 4], X[:3], ValueError, r"rows has shape \(3, 3\); 2 ids give \(2, 3\)"),
        ([2, 4], X[:2].double(), TypeError, "rows is torch.float64"),
    ],
)
def test_wrong_writes_change_nothing(
    writable: WritableStore, ids: list[int], rows: Tensor, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        writable.write(torch.tensor(ids), rows)
    assert torch.equal(writable.read(torch.arange(7)), X)
