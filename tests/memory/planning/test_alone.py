"""Seeds that fit first but not after others: only the first part finds no gradients."""

import pytest
import torch

from tests.memory.counting import batch, count, refusal, refuse, suggested
from workbench.core.split import select_seeds
from workbench.memory.plan import plan_with
from workbench.memory.planning import partitioner


@pytest.mark.parametrize("strategy", ["even", "split"])
def test_the_first_part_finds_no_gradients(strategy):
    """The needier of two seeds fits first but not second."""
    everyone = batch(num_seeds=60)
    by_id = torch.argsort(everyone.seeds)  # the order of range
    need = torch.tensor([count(m).peak_bytes for m in everyone.split(torch.arange(60))])[by_id]
    needy = int(need[20:40].argmax()) + 20
    first, last = int(need[:20].argmin()), int(need[40:].argmin()) + 40
    (mb,) = select_seeds(everyone, [by_id[[needy, last]]])
    capacity = int(need[needy])
    assert need[last] + 100 < capacity < count(mb).peak_bytes
    made = plan_with(count, mb, capacity_bytes=capacity, margin=0.0, method="range", strategy=strategy)
    assert made.num_parts == 2 and made.peak_bytes == capacity
    refusal(mb, capacity_bytes=capacity - 1, margin=0.0, method="range", strategy=strategy)
    (turned,) = select_seeds(everyone, [by_id[[first, needy]]])
    message = refusal(turned, capacity_bytes=capacity, margin=0.0, method="range", strategy=strategy)
    assert suggested(message) == min(capacity + 100, count(turned).peak_bytes)


def test_seeds_that_must_all_come_first_are_refused_before_partitioning(monkeypatch):
    monkeypatch.setattr(partitioner, "partition_batch", refuse)
    mb = batch()
    second_neediest = sorted(count(m).peak_bytes for m in mb.split(torch.arange(mb.num_seeds)))[-2]
    assert "after other parts" in refusal(mb, capacity_bytes=second_neediest + 50, margin=0.0)
