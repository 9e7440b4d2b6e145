"""`cache_costs`: every entry is what one simulation counts."""

from typing import Any

import pytest
import torch

import workbench as wb
from tests.features.cache.traces import skewed_trace

TRACES = {"a": skewed_trace(12, 80, 200), ("b", 2): skewed_trace(10, 60, 150, seed=1)}
POLICIES = ("lru", "fifo", "sieve", "static", "belady-bypass")


@pytest.mark.parametrize("semantics", ["access", "batch"])
@pytest.mark.parametrize("warmup", [4, 0.25])
def test_every_entry_is_one_simulation(semantics: str, warmup: float) -> None:
    rows = torch.arange(200).flip(0)
    options: dict[str, Any] = {"semantics": semantics, "warmup": warmup}
    found = wb.features.cache_costs(TRACES, [5, 40, 1000], row_bytes=12, policies=POLICIES, rows=rows, **options)
    assert len({cost[:3] for cost in found}) == len(found) == 2 * 3 * len(POLICIES)
    for cost in found:
        trace = TRACES[cost.reads]  # type: ignore[index]
        needed = rows if cost.policy == "static" else None
        one = wb.features.simulate_cache(trace, cost.capacity_rows, policy=cost.policy, rows=needed, **options)
        counted = len(trace) - one.warmup_reads
        assert cost.miss_rate == pytest.approx(one.miss_rate, abs=1e-15)
        assert cost.rows_per_read == pytest.approx(one.num_accesses / counted)
        assert cost.bytes_per_read == pytest.approx(12 * one.num_misses / counted)
    assert [cost.reads for cost in found] == [name for name in TRACES for _ in range(3 * len(POLICIES))]


def test_a_static_cache_is_chosen_by_the_warm_up_alone() -> None:
    before, after = torch.tensor([7, 3, 7, 5, 3, 7]), torch.tensor([7, 3, 5, 9])
    trace = wb.AccessTrace.of([before, after])
    rates = {
        cost.capacity_rows: cost.miss_rate
        for cost in wb.features.cache_costs({"": trace}, [1, 2, 3, 9], row_bytes=1, policies=["static"], warmup=1)
    }
    assert rates == {1: 0.75, 2: 0.5, 3: 0.25, 9: 0.25}, "row 9 is not known before"


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"traces": [TRACES["a"]]}, TypeError, "traces is a list; pass a dictionary: name → wb.AccessTrace"),
        ({"traces": {"a": [torch.tensor([1])]}}, TypeError, "trace 'a' is a list; pass wb.AccessTrace.of"),
        ({"capacities": [0]}, ValueError, "a capacity is 0"),
        ({"policies": ["lru", "mru"]}, ValueError, "a policy 'mru' is not known; choose from belady"),
        ({"semantics": "read"}, ValueError, "semantics 'read' is not known"),
        ({"row_bytes": 0}, ValueError, "row_bytes is 0"),
        ({"policies": ["static"], "rows": torch.tensor([3, 3])}, ValueError, "contains 3 more than once"),
        ({"policies": ["static"], "rows": torch.tensor([3, -1])}, IndexError, "contains -1"),
        ({"warmup": 12}, ValueError, "trace 'a' has no access after a warm-up of 12; pass a longer trace"),
        (
            {"policies": ["static"], "warmup": 0},
            ValueError,
            "by the warm-up, but a warm-up of 0 reads none; .* wb.features.rank_by_deg",
        ),
    ],
)
def test_what_it_refuses(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wb.features.cache_costs(**({"traces": {"a": TRACES["a"]}, "capacities": [3], "row_bytes": 4} | given))


def test_nothing_to_compare() -> None:
    assert wb.features.cache_costs({}, [3], row_bytes=4) == wb.features.cache_costs(TRACES, [], row_bytes=4) == []
