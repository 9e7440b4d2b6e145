"""`CachedRows` beside a plain tensor under random sequences of reads, writes, staging, clearing and failures."""

import os
import pickle
import threading
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

import workbench as wb
from tests.features.test_cached_rows import NUM_ROWS, Faulty, X

POLICIES = ("lru", "fifo", "clock", "sieve", "s3-fifo", "static")

ids = st.lists(st.integers(0, NUM_ROWS - 1), max_size=25)
operations = st.lists(
    st.tuples(st.sampled_from(["read", "read into", "write", "stage", "clear", "fail read", "fail write"]), ids),
    max_size=30,
)


def make(policy: str, capacity: int, store: Any) -> wb.CachedRows:
    return wb.CachedRows(store, capacity, policy=policy, rows=torch.arange(NUM_ROWS) if policy == "static" else None)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("nested", [False, True], ids=["", "over another cache"])
@given(sequence=operations, capacity=st.integers(1, 50), int32=st.booleans())
def test_any_sequence_reads_what_a_tensor_would(
    policy: str, nested: bool, sequence: list[tuple[str, list[int]]], capacity: int, int32: bool
) -> None:
    store: Any = Faulty(X.clone())
    expected = X.clone()
    cache = make(policy, capacity, wb.CachedRows(store, 7, policy="sieve") if nested else store)
    for number, (operation, drawn) in enumerate(sequence):
        wanted = torch.tensor(drawn, dtype=torch.int32 if int32 else torch.int64)
        once, before = wanted.unique(), cache.counts
        new = expected[once.long()] + number + 0.5
        if operation == "clear":
            cache.clear()
        elif operation == "write":
            cache.write(once, new)
            expected[once.long()] = new
        elif operation == "fail write":
            store.fail_with = OSError("disk")
            with pytest.raises(OSError, match="disk"):
                cache.write(once, new)
            expected[once.long()] = store.inner.read(once)  # half of them were written
        elif operation == "fail read":
            store.fail_with = OSError("disk")
            try:  # succeeds if all rows are cached
                assert torch.equal(cache.read(wanted), expected[wanted.long()])
            except OSError:
                assert cache.counts == before
            store.fail_with = None
        elif operation == "stage":
            staged = cache.stage(wanted)
            assert torch.equal(staged.read(wanted), expected[wanted.long()])
        else:
            out = torch.full((3, len(drawn)), -1.0).t() if operation == "read into" else None
            assert torch.equal(cache.read(wanted, out=out), expected[wanted.long()])
            assert out is None or torch.equal(out, expected[wanted.long()])
            assert sum(cache.counts) - sum(before) == len(drawn)
    assert torch.equal(cache.read(torch.arange(NUM_ROWS)), expected)
    assert torch.equal(store.inner.read(torch.arange(NUM_ROWS)), expected), "written through"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_cache_larger_than_its_store_allocates_no_more_than_the_store(policy: str) -> None:
    cache = make(policy, 1 << 30, X)
    assert cache.capacity_rows == NUM_ROWS and repr(cache).startswith("CachedRows(40 of 40 rows, 480 B on cpu")
    for _ in range(2):
        assert torch.equal(cache.read(torch.arange(NUM_ROWS)), X)
    assert cache.counts.misses == (0 if policy == "static" else NUM_ROWS), "each row once"
    trace = wb.AccessTrace.of([torch.arange(NUM_ROWS)] * 2)
    if policy != "static":
        assert wb.features.simulate_cache(trace, 1 << 30, policy=policy).num_misses == NUM_ROWS


@pytest.mark.parametrize("policy", ["lru", "static"])
def test_a_pickled_cache_is_empty_elsewhere(policy: str) -> None:
    cache = make(policy, 6, X.clone())
    cache.read(torch.arange(12))
    other = pickle.loads(pickle.dumps(cache))
    assert repr(other) == repr(cache) and other.counts == (0, 0)
    assert torch.equal(other.read(torch.arange(NUM_ROWS)), X)
    assert other.counts.hits == (6 if policy == "static" else 0)


class Slow:
    """A store whose reads wait until they are released."""

    row_shape, dtype, device = (3,), X.dtype, X.device

    def __init__(self) -> None:
        self.reading, self.released = threading.Event(), threading.Event()

    def __len__(self) -> int:
        return NUM_ROWS

    def read(self, ids: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        self.reading.set()
        self.released.wait(30)
        return X[ids]


def test_a_child_forked_while_another_thread_reads_does_not_wait_for_it() -> None:
    store = Slow()
    cache = wb.CachedRows(store, 4)
    reader = threading.Thread(target=lambda: cache.read(torch.tensor([1])))
    reader.start()
    assert store.reading.wait(30)
    child = os.fork()
    if not child:
        store.released.set()
        os._exit(0 if (cache.read(torch.tensor([5, 1])).numpy() == X.numpy()[[5, 1]]).all() else 1)
    store.released.set()
    reader.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert torch.equal(cache.read(torch.tensor([5, 1])), X[[5, 1]]) and cache.counts == (1, 2)
