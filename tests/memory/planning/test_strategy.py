"""Both planning strategies on batches whose parts are known, and the cases that they refuse."""

import pytest
import torch

from tests.memory.counting import FIXED, alone, batch, check, count, refusal
from tests.strategies import random_graph, random_minibatch
from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.memory.estimate import MemoryEstimate
from workbench.memory.plan import plan_with
from workbench.partition.batch import partition_batch


def test_split_does_not_change_parts_that_fit():
    mb = batch()
    least = max(alone(mb))
    capacity = int(least + 0.2 * (count(mb).peak_bytes - least))
    made = plan_with(count, mb, capacity_bytes=capacity, method="range", strategy="split", margin=0.0)
    check(made, mb, 0.0)
    first = made.tried[1][0]
    coarse = partition_batch(mb, first, method="range")
    for label, part in enumerate(mb.split(coarse)):
        inside = made.assignment[coarse == label].unique()
        assert not torch.isin(made.assignment[coarse != label], inside).any()
        fits = count(part, accumulating=label > 0).peak_bytes <= capacity
        assert (len(inside) == 1) == fits
    assert made.num_parts > first and [k for k, _ in made.tried] == sorted(k for k, _ in made.tried)


@pytest.mark.parametrize("strategy", ["even", "split"])
def test_an_expensive_seed_that_fits_only_in_the_first_part(strategy):
    """As a part of its own it finds gradients and does not fit; of nine numbers of parts, two fit."""

    def estimator(mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        need = 50 * mb.num_seeds + 500 * int((mb.seeds == 3).sum()) + 300 * accumulating
        terms = {"parameters": FIXED, "hidden": need}
        phases = {"forward": FIXED + need, "backward": FIXED, "step": FIXED + 20}
        return MemoryEstimate(terms=terms, phase_bytes=phases, fixed_bytes=FIXED, backend="none")

    mb = random_minibatch(random_graph(40, 0), range(10))
    made = plan_with(estimator, mb, capacity_bytes=FIXED + 750, margin=0.0, method="range", strategy=strategy)
    assert made.num_parts == 2 and made.estimates[0].peak_bytes == FIXED + 750
    refusal(mb, estimator, capacity_bytes=FIXED + 699, margin=0.0, method="range", strategy=strategy)


def test_up_to_one_part_per_seed():
    """All seeds need equally many bytes and share no inputs."""

    def estimator(mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        return count(mb)

    mb = random_minibatch(random_graph(40, 0), num_seeds=30)
    for strategy in ("even", "split"):
        made = plan_with(estimator, mb, capacity_bytes=FIXED + 64, margin=0.0, strategy=strategy)
        assert made.num_parts == 30


def test_max_parts():
    mb = batch()
    capacity = max(alone(mb)) + 1000
    made = plan_with(count, mb, capacity_bytes=capacity, method="range")
    same = plan_with(count, mb, capacity_bytes=capacity, method="range", max_parts=made.num_parts)
    assert same.num_parts == made.num_parts
    for strategy in ("even", "split"):
        with pytest.raises(CapacityError, match=r"with max_parts=2 the largest part needs .*raise max_parts"):
            plan_with(count, mb, capacity_bytes=capacity, method="range", max_parts=2, strategy=strategy)


def test_inaccurate_estimates_are_refused():
    """A module with an error of 70 % on held-out sub-batches has measured at nine times its estimate."""

    def inaccurate(mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        return count(mb, accumulating=accumulating, error=0.7)

    for capacity in (10**4, 10**9):
        with pytest.raises(ValueError, match=r"off by up to 70% .*more than the 25% .*recover=Recovery"):
            plan_with(inaccurate, batch(), capacity_bytes=capacity)
