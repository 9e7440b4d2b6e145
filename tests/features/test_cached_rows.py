"""`CachedRows`: the right rows, the counts of the simulation, and a consistent cache after errors and interrupts."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

import workbench as wb
from tests.features.cache.traces import skewed_trace, traces
from workbench.features.cache.policies import CACHE_POLICIES
from workbench.features.protocols import FeatureStore
from workbench.features.stage import StagedRows, stage_ids

NUM_ROWS = 40
X = torch.arange(NUM_ROWS * 3).view(NUM_ROWS, 3).float()


class Faulty:
    """A writable store whose next call fails, after it did half of its work."""

    def __init__(self, rows: Tensor) -> None:
        self.inner = wb.MemoryRows(rows)
        self.fail_with: BaseException | None = None

    row_shape = property(lambda self: self.inner.row_shape)
    dtype = property(lambda self: self.inner.dtype)
    device = property(lambda self: self.inner.device)

    def __len__(self) -> int:
        return len(self.inner)

    def _fail(self) -> None:
        error, self.fail_with = self.fail_with, None
        if error is not None:
            raise error

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        self._fail()
        return self.inner.read(ids, out=out)

    def write(self, ids: Tensor, rows: Tensor) -> None:
        self.inner.write(ids[: len(ids) // 2], rows[: len(ids) // 2])
        self._fail()
        self.inner.write(ids, rows)


def cached(policy: str, trace: wb.AccessTrace, capacity: int, store: Any = X, **options: Any) -> wb.CachedRows:
    needs = {"rows": torch.arange(NUM_ROWS)} if policy == "static" else {}
    needs |= {"trace": trace} if policy.startswith("belady") else {}
    return wb.CachedRows(store, capacity, policy=policy, **needs, **options)


def simulated(policy: str, trace: wb.AccessTrace, capacity: int) -> wb.features.CacheSimulation:
    rows = torch.arange(NUM_ROWS) if policy == "static" else None
    return wb.features.simulate_cache(trace, capacity, policy=policy, semantics="batch", rows=rows, num_rows=NUM_ROWS)


@pytest.mark.parametrize("policy", CACHE_POLICIES)
@given(trace=traces(NUM_ROWS, max_reads=6, max_read=25), capacity=st.integers(1, 20))
def test_rows_are_right_and_counts_are_the_simulations(policy: str, trace: wb.AccessTrace, capacity: int) -> None:
    """Reads larger than the cache, with repeats, and rows that are evicted within the read that inserted them."""
    below, above = wb.Traffic(), wb.Traffic()
    inner = cached(policy, trace, capacity, wb.MemoryRows(X, traffic=below), traffic=above)
    filled = below.snapshot().count("host")
    store = wb.features.RecordedRows(inner)
    expected = simulated(policy, trace, capacity).hits.tolist()
    for ids, hits in zip(trace, expected, strict=True):
        before = inner.counts
        assert torch.equal(store.read(ids), X[ids])
        assert inner.counts.hits - before.hits == hits and sum(inner.counts) - sum(before) == len(ids)
    assert torch.equal(store.trace.ids, trace.ids)
    assert above.snapshot().count("host") == inner.counts.hits
    assert above.snapshot().nbytes("host") == 12 * inner.counts.hits
    assert below.snapshot().count("host") - filled == inner.counts.misses


def test_only_misses_reach_the_store_and_a_static_cache_is_filled_at_once() -> None:
    store = wb.features.RecordedRows(X)
    cache = wb.CachedRows(store, 3, policy="static", rows=torch.tensor([7, 2, 9, 11]))
    cache.read(torch.tensor([2, 3, 9, 3]))
    cache.read(torch.tensor([2]))
    assert [ids.tolist() for ids in store.trace] == [[7, 2, 9], [3, 3]]
    assert cache.counts == (3, 2) and cache.counts.miss_rate == 0.4


@pytest.mark.parametrize("policy", ["lru", "fifo", "clock", "sieve", "s3-fifo", "static"])
def test_written_rows_are_in_the_store_and_in_the_cache(policy: str) -> None:
    trace, rows = skewed_trace(30, 12, NUM_ROWS), X.clone()
    store = wb.MemoryRows(rows.clone())
    cache = cached(policy, trace, 9, store)
    for step, ids in enumerate(trace):
        changed = ids.unique()[::2]
        rows[changed] += step
        cache.write(changed, rows[changed])
        assert torch.equal(cache.read(ids), rows[ids])
    assert torch.equal(store.read(torch.arange(NUM_ROWS)), rows)
    assert cache.counts.hits == int(simulated(policy, trace, 9).hits.sum()), "a write changes no order"


def test_threads_that_read_and_write() -> None:
    cache, ids = wb.CachedRows(X.clone(), 5, policy="sieve"), torch.arange(NUM_ROWS)

    def work(number: int) -> bool:
        own = ids[number::8]
        cache.write(own, X[own] + number)
        found = cache.read(ids[::3])
        return torch.equal(cache.read(own), X[own] + number) and bool((found >= X[::3]).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))
    assert torch.equal(cache.read(ids), X + (ids % 8)[:, None])


@pytest.mark.parametrize("error", [OSError("disk"), KeyboardInterrupt()], ids=["error", "interrupt"])
@pytest.mark.parametrize("policy", CACHE_POLICIES)
def test_a_failed_read_changes_nothing(policy: str, error: BaseException) -> None:
    trace = skewed_trace(10, 9, NUM_ROWS)
    store = Faulty(X)
    cache = cached(policy, trace, 6, store)
    for ids in trace:
        store.fail_with = error
        missed = cache.counts.misses
        try:
            cache.read(ids)
        except (OSError, KeyboardInterrupt):
            assert cache.counts.misses == missed
            assert torch.equal(cache.read(ids), X[ids])
        store.fail_with = None
    assert cache.counts.hits == int(simulated(policy, trace, 6).hits.sum())


@pytest.mark.parametrize("error", [OSError("disk"), KeyboardInterrupt()], ids=["error", "interrupt"])
@pytest.mark.parametrize("policy", ["lru", "static"])
def test_after_a_failed_write_rows_are_those_of_the_store(policy: str, error: BaseException) -> None:
    store = Faulty(X.clone())
    cache = cached(policy, skewed_trace(), 20, store)
    ids = torch.arange(20)
    cache.read(ids)
    store.fail_with = error
    with pytest.raises(type(error)):
        cache.write(ids, X[ids] + 100)
    assert torch.equal(cache.read(ids), X[ids] + 100 * (ids < 10)[:, None])


@pytest.mark.parametrize("policy", CACHE_POLICIES)
def test_an_interrupt_between_the_slots_and_the_buffer_leaves_no_wrong_row(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = skewed_trace(6, 9, NUM_ROWS)
    cache = cached(policy, trace, 6)
    moved: Callable[..., Any] = cache._moved

    def interrupted(*_: Any) -> None:
        monkeypatch.setattr(cache, "_moved", moved)
        raise KeyboardInterrupt

    for ids in trace:
        monkeypatch.setattr(cache, "_moved", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cache.read(ids)
        assert torch.equal(cache.read(ids), X[ids])


def test_clear_empties_the_cache_and_begins_the_trace_again() -> None:
    trace = skewed_trace(3, 9, NUM_ROWS)
    for policy in CACHE_POLICIES:
        cache = cached(policy, trace, 6)
        passes = []
        for _ in range(2):
            before = cache.counts.hits
            for ids in trace:
                cache.read(ids)
            passes.append(cache.counts.hits - before)
            cache.clear()
        assert passes[0] == passes[1] == int(simulated(policy, trace, 6).hits.sum())


class Collective:
    """A store that serves rows only if they were staged, and records the calls."""

    def __init__(self) -> None:
        self.staged: list[list[int]] = []

    row_shape, dtype, device = (3,), torch.float32, torch.device("cpu")

    def __len__(self) -> int:
        return NUM_ROWS

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        raise AssertionError("stage first")

    def stage(self, ids: Tensor, *, traffic: wb.Traffic | None = None) -> FeatureStore:
        self.staged.append(ids.tolist())
        return stage_ids(wb.MemoryRows(X), ids)


def test_staging_fetches_what_is_not_cached_by_the_store_s_own_stage_on_every_call() -> None:
    store, links = Collective(), wb.Traffic()
    cache = wb.CachedRows(store, 4)
    for ids in ([3, 1, 3], [1, 7], [7, 3], []):
        staged = stage_ids(cache, torch.tensor(ids, dtype=torch.int64), traffic=links)
        assert isinstance(staged, StagedRows) and torch.equal(staged.ids, torch.tensor(sorted({*ids})))
        assert torch.equal(staged.read(staged.ids), X[staged.ids])
    assert store.staged == [[1, 3], [7], [], []], "all ranks call it equally often"
    assert cache.counts == (3, 3) and links.snapshot().count("host") == 6


def test_windows_of_batches_go_through_the_cache() -> None:
    graph = wb.Graph.from_edges(*torch.randint(NUM_ROWS, (2, 200)), num_nodes=NUM_ROWS)
    cache = wb.CachedRows(X, 10)
    batches = wb.batches(graph, torch.arange(NUM_ROWS), sampler=wb.NeighborSampler([2]), batch_size=8, epoch=0)
    for window in wb.windows(batches, size=2):
        rows = wb.stage(cache, window)
        assert all(torch.equal(rows.read(mb.node_ids), X[mb.node_ids]) for _, mb in window)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"policy": "belady"}, ValueError, 'policy="belady" needs trace=, a wb.AccessTrace of all reads to come'),
        (
            {"trace": wb.AccessTrace.of([])},
            ValueError,
            'trace= is for belady and belady-bypass alone, but policy is "lru"',
        ),
        ({"policy": "static"}, ValueError, 'policy="static" needs rows='),
        ({"policy": "random"}, ValueError, "policy 'random' is not known; choose from belady"),
        ({"capacity_rows": 0}, ValueError, "capacity_rows is 0"),
        ({"store": object()}, TypeError, "read"),
        (
            {"capacity_rows": 1 << 30, "store": torch.zeros(1, 1).expand(1 << 30, 1 << 16)},
            wb.CapacityError,
            "rows needs 256.00 TiB",
        ),
    ],
)
def test_what_it_refuses(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wb.CachedRows(**({"store": X, "capacity_rows": 2} | given))


def test_stores_and_reads_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="rows that require a gradient can't be cached"):
        wb.CachedRows(X.clone().requires_grad_(), 2).read(torch.tensor([1]))
    learnt, rows = X.clone().requires_grad_(), torch.tensor([1])
    with pytest.raises(ValueError, match="rows that require a gradient can't be cached"):
        wb.CachedRows(learnt, 1, policy="static", rows=rows).read(rows)
    with pytest.raises(TypeError, match="RecordedRows can't be written; cache a store with a write method"):
        wb.CachedRows(wb.features.RecordedRows(X), 2).write(torch.tensor([1]), X[:1])
    trace = wb.AccessTrace.of([torch.tensor([1, 2])])
    cache = wb.CachedRows(X, 2, policy="belady", trace=trace)
    with pytest.raises(ValueError, match="read 0 differs from that of the trace given to belady"):
        cache.read(torch.tensor([2, 1]))
    cache.read(torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="read 1 is beyond the trace of 1 reads"):
        cache.read(torch.tensor([1, 2]))
    assert repr(cache).startswith("CachedRows(2 of 40 rows, 24 B on cpu, policy='belady'")


@pytest.mark.cuda
@pytest.mark.parametrize("policy", CACHE_POLICIES)
def test_a_buffer_on_a_gpu(policy: str) -> None:
    trace, above = skewed_trace(20, 9, NUM_ROWS), wb.Traffic()
    cache = cached(policy, trace, 6, device="cuda", traffic=above)
    for ids in trace:
        found = cache.read(ids)
        assert found.device.type == "cuda" and torch.equal(found.cpu(), X[ids])
    assert above.snapshot().count("device") == cache.counts.hits == int(simulated(policy, trace, 6).hits.sum())
