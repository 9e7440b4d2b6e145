"""All partitions of a plan use the same method, which the plan reports."""

import pytest
import torch

from tests.memory.counting import alone, batch, count
from workbench.memory.plan import plan_with


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
