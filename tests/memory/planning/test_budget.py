"""Capacities suggested by errors suffice, and plans for traced modules account for the error of their estimates."""

import pytest
import torch

from tests.covering import pairwise
from tests.memory.counting import FIXED, alone, batch, count, refusal, suggested
from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.memory.estimate import MemoryEstimate
from workbench.memory.plan import plan_with


def test_errors_state_required_and_available_bytes():
    mb = batch()
    with pytest.raises(CapacityError, match=r"parameters and optimizer state alone need 1,000 bytes .* 900 bytes"):
        plan_with(count, mb, capacity_bytes=900)
    with pytest.raises(CapacityError, match=r"the optimizer step, for any number of parts, needs 1,020 bytes.*sgd"):
        plan_with(count, mb, capacity_bytes=1030)
    least = max(alone(mb))
    with pytest.raises(CapacityError, match=rf"seed \d+ alone, after other parts, needs {least:,} bytes") as error:
        plan_with(count, mb, capacity_bytes=least - 200)
    seed = int(str(error.value).split()[1])
    assert alone(mb)[mb.seeds.tolist().index(seed)] == least
    assert "1,020 with a margin of 2.0%" in refusal(mb, capacity_bytes=900)


def extra_bytes_of_some_seeds(mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
    """Some seeds need far more than the size of their computation tree suggests."""
    extra = 700 * int((mb.seeds % 7 == 3).sum())
    estimate = count(mb, accumulating=accumulating)
    return MemoryEstimate(
        terms={**estimate.terms, "hidden": extra},
        phase_bytes={**estimate.phase_bytes, "forward": estimate.peak_bytes + extra},
        fixed_bytes=FIXED,
        backend="none",
    )


@pytest.mark.parametrize(
    ("options", "margin", "strategy"),
    pairwise(
        [
            {"method": "range"},
            {"method": "reg"},
            {"method": "random", "max_parts": 3},
            {"method": "metis", "max_parts": 1},
            {"method": "cluster", "node_parts": torch.arange(400) % 5},
        ],
        [0.0, 0.02, 0.1],
        ["even", "split"],
    ),
)
def test_the_suggested_capacity_suffices(options, margin, strategy):
    mb, options = batch(), {"margin": margin, "strategy": strategy, **options}
    for estimator in (count, extra_bytes_of_some_seeds):
        sufficient = suggested(refusal(mb, estimator, capacity_bytes=1, **options))
        for capacity in (FIXED, int(FIXED * (1 + margin)) + 5, FIXED + 300, sufficient // 2, sufficient - 500):
            assert suggested(refusal(mb, estimator, capacity_bytes=capacity, **options)) <= sufficient
        plan = plan_with(estimator, mb, capacity_bytes=sufficient, **options)
        assert all(estimate.peak_bytes * (1 + margin) <= sufficient for estimate in plan.estimates)
        if "max_parts" not in options and "node_parts" not in options:
            peaks = [estimator(m, accumulating=True).peak_bytes for m in mb.split(torch.arange(mb.num_seeds))]
            assert sufficient == -int(-max(peaks) * (1 + margin) // 1)


@pytest.mark.parametrize("error", [0.1, 0.25])
@pytest.mark.parametrize("strategy", ["even", "split"])
def test_plans_fit_the_worst_case_of_traced_estimates(error, strategy):
    """A relative error of 25 % means that the measured peak may be a third above the estimate."""

    def inexact(mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        return count(mb, accumulating=accumulating, error=error)

    def measured(estimate: MemoryEstimate) -> float:
        return FIXED + estimate.step_bytes / (1 - error)

    mb = batch()
    whole = measured(count(mb))
    assert plan_with(inexact, mb, capacity_bytes=int(whole) + 1, strategy=strategy).num_parts == 1
    for fraction in (0.99, 0.5, 0.3):
        plan = plan_with(inexact, mb, capacity_bytes=int(whole * fraction), strategy=strategy)
        assert plan.num_parts > 1 and all(measured(estimate) <= whole * fraction for estimate in plan.estimates)
    assert plan_with(inexact, mb, capacity_bytes=int(whole), margin=0.6, strategy=strategy).num_parts > 1
    message = refusal(mb, inexact, capacity_bytes=FIXED + 100, strategy=strategy)
    assert f"an error of up to {error:.0%}" in message
    assert plan_with(inexact, mb, capacity_bytes=suggested(message), strategy=strategy).num_parts > 1
