"""What newcomers get wrong with caches: every error names the value, the limit and the remedy."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import workbench
from tests.strategies import random_graph

wb: Any = workbench  # mistakes that a type checker would find
X = torch.arange(40 * 3).view(40, 3).float()
TRACE = wb.AccessTrace.of([torch.tensor([1, 2, 3]), torch.tensor([2, 3, 4])])
HASHED = wb.AccessTrace.of([torch.tensor([1 << 45])])
BATCH = wb.NeighborSampler([2]).sample(random_graph(5, 20), torch.tensor([0]))
IDS = torch.tensor([5, 6])


def cache(**options: Any) -> Any:
    return wb.CachedRows(X.clone(), 4, **options)


MISTAKES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "a share as capacity": (lambda: wb.CachedRows(X, 0.1), ValueError, "capacity_rows is 0.1; it must be a whole"),
    "no capacity": (lambda: wb.CachedRows(X, 0), ValueError, "capacity_rows is 0; it must be a whole number of at le"),
    "an upper-case policy": (lambda: cache(policy="LRU"), ValueError, "policy 'LRU' is not known; choose from belady"),
    "a mask of static rows": (
        lambda: cache(policy="static", rows=torch.ones(40, dtype=torch.bool)),
        TypeError,
        r"convert a mask with torch.as_tensor\(rows\).nonzero\(\)",
    ),
    "an unknown device": (lambda: cache(device="gpu"), ValueError, "device is 'gpu', which can't be used here: .*cpu"),
    "a sparse store": (
        lambda: wb.CachedRows(X.to_sparse(), 2),
        ValueError,
        r"rows is sparse \(torch.sparse_coo\); pass rows.to_dense\(\)",
    ),
    "ids as a list": (lambda: cache().read([1]), TypeError, r"not list; convert with torch.as_tensor\(ids\).long"),
    "ids as int16": (
        lambda: cache().read(IDS.short()),
        TypeError,
        "ids must be an int64 or int32 tensor, not torch.int16",
    ),
    "no ids at all": (lambda: cache().read(torch.tensor([])), TypeError, "not torch.float32; convert with"),
    "ids of the last row + 1": (
        lambda: cache().read(IDS + 34),
        IndexError,
        r"ids contains 40; ids must be in \[0, 40\)",
    ),
    "a buffer with a gradient": (
        lambda: cache().read(IDS, out=torch.empty(2, 3, requires_grad=True)),
        ValueError,
        r"out requires a gradient, .* pass out.detach\(\)",
    ),
    "an expanded buffer": (
        lambda: cache().read(IDS, out=torch.empty(1, 3).expand(2, 3)),
        ValueError,
        r"out is expanded: several of its rows .* pass out.clone\(\)",
    ),
    "an array of rows": (
        lambda: cache().write(IDS, X[:2].numpy()),
        TypeError,
        "rows is an? ndarray; pass a tensor of sh",
    ),
    "one row for one id": (
        lambda: cache().write(IDS[:1], X[0]),
        ValueError,
        r"rows has shape \(3,\); 1 ids give \(1, 3\)",
    ),
    "a store that can't be written": (
        lambda: wb.CachedRows(X.numpy(), 2).write(IDS, X[:2]),
        TypeError,
        "ArrayRows can't be written; cache a store with a write method",
    ),
    "reads as a vector": (
        lambda: wb.AccessTrace.of(IDS),
        TypeError,
        r"reads is one vector of ids; .*\[ids\] for a single",
    ),
    "batches as reads": (
        lambda: wb.AccessTrace.of([BATCH]),
        TypeError,
        r"a read is a MiniBatch; pass .*\[mb.node_ids for",
    ),
    "steps and batches": (lambda: wb.AccessTrace.of([(0, BATCH)]), TypeError, r"a read is a tuple; pass .*mb.node_ids"),
    "ids of a trace as int32": (
        lambda: wb.AccessTrace(IDS.int(), torch.tensor([0, 2])),
        TypeError,
        r"ids must be a tensor of torch.int64, not torch.int32; convert it with .to\(torch.int64\)",
    ),
    "hashes as ids, ranked": (
        lambda: wb.features.rank_by_frequency(HASHED),
        wb.CapacityError,
        "a ranking of 35,184,372,088,833 rows",
    ),
    "hashes as ids, LRU": (
        lambda: wb.features.miss_ratio_curve(HASHED),
        wb.CapacityError,
        "accesses of 35,184,372,088,833 rows",
    ),
    "hashes as ids": (
        lambda: wb.features.simulate_cache(HASHED, 2),
        wb.CapacityError,
        "of 35,184,372,088,833 rows needs 128.00 TiB",
    ),
    "a warm-up as text": (
        lambda: wb.features.simulate_cache(TRACE, 2, warmup="1"),
        ValueError,
        "warmup is '1'; pass a number of",
    ),
    "a tensor as graph": (lambda: wb.features.rank_by_degree(X), TypeError, "graph is a Tensor; pass a wb.Graph"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_explained(mistake: str) -> None:
    call, error, message = MISTAKES[mistake]
    with pytest.raises(error, match=message):
        call()


def test_a_device_that_is_missing_here() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ValueError, match=r"device is 'cuda', which can't be used here: .* pass \"cpu\""):
        cache(device="cuda")


def test_a_buffer_with_a_gradient_is_written_where_gradients_are_off() -> None:
    out = torch.empty(2, 3, requires_grad=True)
    with torch.no_grad():
        assert torch.equal(cache().read(IDS, out=out), X[IDS])


def test_a_rank_of_reads_given_as_a_matrix() -> None:
    assert len(wb.AccessTrace.of(torch.tensor([[1, 2], [3, 4]]))) == 2
