"""Stack distances: LRU at every capacity at once."""

import pytest
import torch
from hypothesis import given

import workbench as wb
from tests.features.cache.traces import one_by_one, skewed_trace, traces
from workbench.features.cache.simulate import stack_distances


def by_definition(ids: list[int]) -> list[int]:
    """Distinct rows from the previous access to the row until this one, both included; 0 for the first access."""
    last: dict[int, int] = {}
    found = []
    for i, row in enumerate(ids):
        found.append(len(set(ids[last[row] : i])) if row in last else 0)
        last[row] = i
    return found


@given(trace=traces(6, max_reads=4, max_read=9))
def test_distances_are_those_of_the_definition(trace: wb.AccessTrace) -> None:
    distances, distinct = stack_distances(trace)
    assert distances.tolist() == by_definition(trace.ids.tolist()) and distinct == len(trace.ids.unique())


def test_lru_misses_that_much_at_every_capacity_access_by_access() -> None:
    trace = one_by_one(skewed_trace(8, 60, 90))
    (distances, distinct), curve = stack_distances(trace), wb.features.miss_ratio_curve(trace)
    assert len(curve) == distinct + 1 and curve[0] == 1
    for capacity in range(1, distinct + 1):
        found = wb.features.simulate_cache(trace, capacity)
        assert torch.equal(found.hits == 1, (distances > 0) & (distances <= capacity))
        assert curve[capacity].item() == pytest.approx(found.miss_rate, abs=1e-15)


def test_a_warm_up_is_left_out() -> None:
    trace = skewed_trace(8, 60, 90)
    curve = wb.features.miss_ratio_curve(trace, warmup=0.5)
    assert curve[20].item() == pytest.approx(wb.features.simulate_cache(trace, 20, warmup=4).miss_rate, abs=1e-15)
    with pytest.raises(ValueError, match="no access is left of AccessTrace"):
        wb.features.miss_ratio_curve(trace, warmup=8)
