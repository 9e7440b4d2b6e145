"""What an error says would do is tried, and what a traced module may need is planned for."""

import pytest
import torch

from tests.memory.counting import FIXED, alone, batch, count, refusal, suggested
from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.memory.plan import plan_with
from workbench.memory.record import MemoryEstimate


def test_errors_give_what_is_needed_and_what_there_is():
    mb = batch()
    with pytest.raises(CapacityError, match=r"parameters and optimizer state alone take 1,000 bytes .* 900 bytes"):
        plan_with(count, mb, capacity_bytes=900)
    with pytest.raises(CapacityError, match=r"optimizer's step takes, into however many parts .* 1,020 bytes.*sgd"):
        plan_with(count, mb, capacity_bytes=1030)
    least = max(alone(mb))
    with pytest.raises(
        CapacityError, match=rf"output node \d+ alone, after other parts, needs {least:,} bytes"
    ) as error:
        plan_with(count, mb, capacity_bytes=least - 200)
    node = int(str(error.value).split()[2])
    assert alone(mb)[mb.seeds.tolist().index(node)] == least
    assert "1,020 with a margin of 2.0%" in refusal(mb, capacity_bytes=900)


def neediest_is_not_the_largest(mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
    """Some nodes need far more than their trees say."""
    rare = 700 * int((mb.seeds % 7 == 3).sum())
    made = count(mb, accumulating=accumulating)
    return MemoryEstimate(
        terms={**made.terms, "hidden": rare},
        phase_bytes={**made.phase_bytes, "forward": made.peak_bytes + rare},
        fixed_bytes=FIXED,
        kernels="none",
    )


@pytest.mark.parametrize("strategy", ["even", "split"])
@pytest.mark.parametrize("margin", [0.0, 0.02, 0.1])
@pytest.mark.parametrize(
    "options",
    [
        {"method": "range"},
        {"method": "reg"},
        {"method": "random", "max_parts": 3},
        {"method": "metis", "max_parts": 1},
        {"method": "cluster", "node_parts": torch.arange(400) % 5},
    ],
)
def test_what_an_error_suggests_is_enough(options, margin, strategy):
    mb, options = batch(), {"margin": margin, "strategy": strategy, **options}
    for estimator in (count, neediest_is_not_the_largest):
        enough = suggested(refusal(mb, estimator, capacity_bytes=1, **options))
        for capacity in (FIXED, int(FIXED * (1 + margin)) + 5, FIXED + 300, enough // 2, enough - 500):
            assert suggested(refusal(mb, estimator, capacity_bytes=capacity, **options)) <= enough
        made = plan_with(estimator, mb, capacity_bytes=enough, **options)
        assert all(estimate.peak_bytes * (1 + margin) <= enough for estimate in made.estimates)
        if "max_parts" not in options and "node_parts" not in options:
            needs = [estimator(m, accumulating=True).peak_bytes for m in mb.split(torch.arange(mb.num_seeds))]
            assert enough == -int(-max(needs) * (1 + margin) // 1)


@pytest.mark.parametrize("error", [0.1, 0.25])
@pytest.mark.parametrize("strategy", ["even", "split"])
def test_what_a_traced_module_is_measured_at_fits(error, strategy):
    """An error of 25 % of what is measured: that is a third more than the estimate."""

    def unsure(mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        return count(mb, accumulating=accumulating, error=error)

    def measured(estimate: MemoryEstimate) -> float:
        return FIXED + estimate.step_bytes / (1 - error)

    mb = batch()
    whole = measured(count(mb))
    assert plan_with(unsure, mb, capacity_bytes=int(whole) + 1, strategy=strategy).num_parts == 1
    for share in (0.99, 0.5, 0.3):
        made = plan_with(unsure, mb, capacity_bytes=int(whole * share), strategy=strategy)
        assert made.num_parts > 1 and all(measured(estimate) <= whole * share for estimate in made.estimates)
    assert plan_with(unsure, mb, capacity_bytes=int(whole), margin=0.6, strategy=strategy).num_parts > 1
    message = refusal(mb, unsure, capacity_bytes=FIXED + 100, strategy=strategy)
    assert f"an error of up to {error:.0%}" in message
    assert plan_with(unsure, mb, capacity_bytes=suggested(message), strategy=strategy).num_parts > 1
