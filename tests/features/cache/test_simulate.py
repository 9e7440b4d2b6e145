"""`simulate_cache`: what a simulation says, and what it refuses."""

import math
from typing import Any

import pytest
import torch

import workbench as wb
from tests.features.cache.traces import skewed_trace
from workbench.core.errors import CapacityError

TRACE = wb.AccessTrace.of([torch.tensor([0, 1, 0]), torch.tensor([1, 2]), torch.tensor([], dtype=torch.int64)])


def test_batch_semantics_queries_all_and_then_replaces() -> None:
    by_access, by_batch = (wb.features.simulate_cache(TRACE, 2, semantics=s) for s in ("access", "batch"))
    assert by_access.hits.tolist() == [1, 1, 0] and by_batch.hits.tolist() == [0, 1, 0]
    assert by_batch.accesses.tolist() == [3, 2, 0]
    assert (by_batch.num_hits, by_batch.num_misses, by_batch.miss_rate) == (1, 4, 0.8)


@pytest.mark.parametrize(("warmup", "reads"), [(1, 1), (0.34, 1), (0.0, 0), (3, 3), (1.0, 3)])
def test_a_warm_up_is_left_out(warmup: float, reads: int) -> None:
    found = wb.features.simulate_cache(TRACE, 2, warmup=warmup)
    assert found.warmup_reads == reads and found.hits.tolist() == [1, 1, 0]
    assert found.num_accesses == (5, 2, 0, 0)[reads]
    assert math.isnan(found.miss_rate) == (reads == 3)


def test_a_trace_without_accesses_and_a_cache_larger_than_the_store() -> None:
    assert math.isnan(wb.features.simulate_cache(wb.AccessTrace.of([]), 4).miss_rate)
    for policy in ("lru", "fifo", "clock", "sieve", "s3-fifo", "belady"):
        assert wb.features.simulate_cache(TRACE, 100, policy=policy).num_misses == 3


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (
            {"policy": "mru"},
            ValueError,
            "choose from belady, belady-bypass, clock, fifo, lru, s3",
        ),
        ({"capacity_rows": 0}, ValueError, "capacity_rows is 0; it must be a whole number of at least 1"),
        ({"capacity_rows": 1 << 40}, ValueError, "capacity_rows is 1099511627776"),
        ({"semantics": "read"}, ValueError, "semantics 'read' is not known; choose from access, batch"),
        ({"num_rows": 2}, IndexError, r"trace.ids contains 2; ids must be in \[0, 2\)"),
        ({"policy": "static"}, ValueError, 'policy="static" needs rows=.*rank_by_degree'),
        ({"rows": torch.arange(2)}, ValueError, 'rows= is for policy="static" alone, but policy is "lru"'),
        ({"policy": "static", "rows": torch.tensor([1, 1])}, ValueError, "rows contains 1 more than once"),
        ({"policy": "static", "rows": torch.tensor([-1])}, IndexError, "rows contains -1"),
        ({"warmup": 4}, ValueError, "warmup is 4"),
        ({"warmup": 1.5}, ValueError, "warmup is 1.5; pass a number of reads, or their share"),
        ({"trace": [1, 2]}, TypeError, "trace is a list; pass wb.AccessTrace.of"),
    ],
)
def test_what_it_refuses(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wb.features.simulate_cache(**({"trace": TRACE, "capacity_rows": 2} | given))


def test_a_state_that_does_not_fit_is_refused() -> None:
    with pytest.raises(CapacityError, match=r"the state of a cache of 2 of 1,000,000,000,000 rows needs"):
        wb.features.simulate_cache(TRACE, 2, num_rows=10**12)


def test_rankings() -> None:
    graph = wb.Graph.from_edges(torch.tensor([2, 2, 1, 2, 1]), torch.tensor([0, 1, 0, 3, 3]), num_nodes=4)
    assert wb.features.rank_by_degree(graph).tolist() == [2, 1, 0, 3]
    assert wb.features.rank_by_frequency(TRACE).tolist() == [0, 1, 2]
    assert wb.features.rank_by_frequency(TRACE, num_rows=5).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(IndexError, match=r"trace.ids contains 2; ids must be in \[0, 2\)"):
        wb.features.rank_by_frequency(TRACE, num_rows=2)


def test_presampled_frequency_is_the_best_static_cache() -> None:
    trace = skewed_trace(10, 100, 200)
    best = wb.features.simulate_cache(trace, 20, policy="static", rows=wb.features.rank_by_frequency(trace)).num_hits
    assert best == int(torch.bincount(trace.ids).sort(descending=True).values[:20].sum())
