"""Candidates: prepared once, estimated largest part first, and made by the method that the plan reports."""

from dataclasses import replace
from types import ModuleType

import pytest
import torch

from tests.memory.counting import alone, batch, count
from workbench.core.minibatch import MiniBatch
from workbench.memory.estimate import MemoryEstimate
from workbench.memory.plan import plan_with
from workbench.memory.planning.search import CandidateBuilder
from workbench.partition.batch import baselines as star, prepared_batch
from workbench.partition.batch.partitioner import Partitioner


@pytest.mark.parametrize(("asked", "method"), [("auto", "star_refined"), ("fast", "star")])
def test_the_plan_reports_the_resolved_method(asked: str, method: str) -> None:
    pytest.importorskip("pymetis")
    mb = batch(200, 200)
    capacity = max(max(alone(mb)), count(mb).peak_bytes // 2)
    made = plan_with(count, mb, capacity_bytes=capacity, method=asked)
    assert (made.method, made.asked, made.method_name) == (method, asked, f"{asked} ({method})")
    assert f"parts by {asked} ({method})" in repr(made)
    same = plan_with(count, mb, capacity_bytes=capacity, method=method)
    assert same.method_name == method and torch.equal(same.assignment, made.assignment)
    assert plan_with(count, mb, capacity_bytes=10**9, method=asked).method_name == asked
    clusters = plan_with(count, mb, capacity_bytes=capacity, method=asked, node_parts=torch.arange(400))
    assert clusters.method_name == f"{asked} (cluster)"


def test_auto_falls_back_to_star_when_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `partition_batch`: without memory for the refinement, star is used."""
    pytest.importorskip("pymetis")
    mb = batch(200, 200)
    capacity = max(max(alone(mb)), count(mb).peak_bytes // 2)
    expected = plan_with(count, mb, capacity_bytes=capacity, method="star")
    monkeypatch.setattr("workbench.partition.refine.available_bytes", lambda: 0)
    made = plan_with(count, mb, capacity_bytes=capacity)
    assert torch.equal(made.assignment, expected.assignment)
    assert made.method == "star" and made.method_name == "auto (star)"


def counted(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[str]:
    """Record the calls of a function."""
    calls, real = [], getattr(module, name)
    monkeypatch.setattr(module, name, lambda *a, **options: calls.append(name) or real(*a, **options))
    return calls


def test_a_plan_prepares_once_and_cuts_many_times(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pymetis")
    mb = batch(200, 200)
    unrolled, cut = (counted(monkeypatch, *f) for f in ((prepared_batch, "computation_graph"), (star, "metis")))
    made = plan_with(count, mb, capacity_bytes=max(*alone(mb), count(mb).peak_bytes // 5))
    assert len(unrolled) == 1 and len(cut) == len(made.tried) - 1 > 1


def test_a_search_estimates_the_three_largest_parts() -> None:
    mb = batch()
    builder = CandidateBuilder(count, Partitioner("random"), mb)
    all_parts, some = builder.partitioned(9), builder.largest_parts(9)
    assert len(some.micro) == 3 and not some.complete and all_parts.complete
    assert some.peak_bytes == all_parts.peak_bytes and some.methods == ("random",)
    assert builder.largest_parts(3).estimates == builder.partitioned(3).estimates


def test_a_partition_whose_other_parts_do_not_fit_is_no_plan() -> None:
    """One part has few bytes and a high estimate: the search sees it only when it estimates all parts."""
    mb = batch(200, 200)
    capacity = max(*alone(mb), count(mb).peak_bytes // 5)
    first = plan_with(count, mb, capacity_bytes=capacity, method="random")
    smallest = min(first.micro, key=lambda micro: count(micro).peak_bytes)

    def estimate(micro: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        estimate = count(micro, accumulating=accumulating)
        if torch.equal(micro.seeds, smallest.seeds):
            return replace(estimate, terms={"more": capacity + 1})
        return estimate

    second = plan_with(estimate, mb, capacity_bytes=capacity, method="random")
    assert second.peak_bytes <= capacity and second.num_parts != first.num_parts
    assert dict(second.tried)[first.num_parts] > capacity
