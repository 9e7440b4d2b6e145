"""Seeds that fit only in the first part, since all later parts find gradients."""

import pytest
import torch

from tests.memory.counting import batch, count, refusal, refuse, suggested
from workbench.core.minibatch import MiniBatch
from workbench.memory.estimate import MemoryEstimate
from workbench.memory.plan import plan_with
from workbench.memory.planning.lower_bound import Budget, lower_bound_exceeds
from workbench.memory.planning.search import CandidateBuilder
from workbench.partition.batch.partitioner import Partitioner, PreparedPartition


@pytest.mark.parametrize("strategy", ["even", "split"])
def test_the_first_part_finds_no_gradients(strategy):
    """The more expensive of two seeds fits as the first part but not as the second."""
    all_seeds = batch(num_seeds=60)
    by_id = torch.argsort(all_seeds.seeds)  # the order of range
    peaks = torch.tensor([count(m).peak_bytes for m in all_seeds.split(torch.arange(60))])[by_id]
    expensive = int(peaks[20:40].argmax()) + 20
    before, after = int(peaks[:20].argmin()), int(peaks[40:].argmin()) + 40
    (mb,) = all_seeds.select([by_id[[expensive, after]]])
    capacity = int(peaks[expensive])
    assert peaks[after] + 100 < capacity < count(mb).peak_bytes
    plan = plan_with(count, mb, capacity_bytes=capacity, margin=0.0, method="range", strategy=strategy)
    assert plan.num_parts == 2 and plan.peak_bytes == capacity
    refusal(mb, capacity_bytes=capacity - 1, margin=0.0, method="range", strategy=strategy)
    (reversed_order,) = all_seeds.select([by_id[[before, expensive]]])
    message = refusal(reversed_order, capacity_bytes=capacity, margin=0.0, method="range", strategy=strategy)
    assert suggested(message) == min(capacity + 100, count(reversed_order).peak_bytes)


def test_seeds_that_fit_together_cost_one_estimate():
    mb, sizes = batch(), []

    def estimator(mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        sizes.append(mb.num_seeds)
        return count(mb, accumulating=accumulating)

    builder = CandidateBuilder(estimator, Partitioner("range"), mb)
    assert not lower_bound_exceeds(builder, Budget(count(mb).peak_bytes - 1, 0.0))
    assert sizes == [32]


def test_seeds_that_only_fit_together_in_the_first_part_are_refused_before_partitioning(monkeypatch):
    monkeypatch.setattr(PreparedPartition, "cut", refuse)
    mb = batch()
    second_largest = sorted(count(m).peak_bytes for m in mb.split(torch.arange(mb.num_seeds)))[-2]
    assert "after other parts" in refusal(mb, capacity_bytes=second_largest + 50, margin=0.0)
