"""`smallest_fitting` against exhaustive search, on exact and noisy utilization curves."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import pytest
import torch
from hypothesis import given, strategies as st

from tests.covering import pairwise
from tests.memory.counting import FIXED, alone, batch, count, refusal, refuse, suggested
from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.memory.estimate import MemoryEstimate
from workbench.memory.plan import plan_with
from workbench.memory.search import REFINED, UNREFINED, Budget, CandidateBuilder, lower_bound_exceeds, smallest_fitting
from workbench.partition.batch import baselines as star, prepared_batch
from workbench.partition.batch.partitioner import Partitioner, PreparedPartition


def traced(load: Callable[[int], float], upper: int) -> tuple[int | None, list[int]]:
    """The result, and the numbers tried in order."""
    tried = []

    def traced_load(number: int) -> float:
        tried.append(number)
        return load(number)

    return smallest_fitting(traced_load, upper), tried


def exhaustive(load: Callable[[int], float], upper: int) -> int | None:
    return next((number for number in range(1, upper + 1) if load(number) <= 1), None)


def noisy_curve(seed: int, noise: float = 0.05) -> Callable[[int], float]:
    """A power law that crosses 1 between 2 and 64, with a few per cent of noise, as partitions have."""
    rng = random.Random(seed)
    slope, crossing = rng.uniform(0.55, 0.95), math.exp(rng.uniform(math.log(2), math.log(64)))
    off = [math.exp(rng.gauss(0, noise)) for _ in range(400)]
    return lambda number: (number / crossing) ** -slope * (off[number] if number > 1 else 1)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=60))
def test_any_curve(loads):
    found, tried = traced(lambda number: loads[number - 1], len(loads))
    assert len(set(tried)) == len(tried) and all(1 <= number <= len(loads) for number in tried)
    assert tried[0] == 1
    if found is None:
        assert tried[-1] == len(loads) and loads[-1] > 1
    else:
        assert found in tried and loads[found - 1] <= 1
        assert found == min(number for number in tried if loads[number - 1] <= 1)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=60))
def test_after_one_fits_only_smaller_numbers_are_tried(loads):
    _, tried = traced(lambda number: loads[number - 1], len(loads))
    fitting = [number for number in tried if loads[number - 1] <= 1]
    assert fitting == sorted(fitting, reverse=True)
    assert all(number < fitting[0] for number in tried[tried.index(fitting[0]) + 1 :]) if fitting else True


@given(st.floats(1.01, 200), st.floats(0.4, 1.0), st.floats(0, 0.3))
def test_smooth_curves(whole, slope, floor):
    """A power law above a constant `floor`."""
    upper = 10_000

    def load(number: int) -> float:
        return floor + (whole - floor) * number**-slope

    found, tried = traced(load, upper)
    best = exhaustive(load, upper)
    assert (found is None) == (best is None)
    if best is not None:
        assert found is not None and best <= found <= best + max(1, 0.08 * best)
    assert len(tried) <= 30


def test_curves_as_uneven_as_those_of_partitions():
    hits, tries = 0, 0
    for seed in range(300):
        load = noisy_curve(seed)
        found, tried = traced(load, 399)
        best = exhaustive(load, 399)
        assert found is not None and best is not None
        hits += found - best <= max(1, 0.08 * best)
        tries += len(tried) - 1
    assert hits >= 0.95 * 300
    assert tries <= 7 * 300


def test_smooth_curves_take_fewer_tries() -> None:
    """Half a per cent of noise, as refined partitions have."""
    tries = {REFINED: 0, UNREFINED: 0}
    for seed in range(100):
        load = noisy_curve(seed, noise=0.005)
        for prior in tries:
            tried: list[int] = []
            found = smallest_fitting(lambda k, load=load, tried=tried: tried.append(k) or load(k), 399, prior)
            best = exhaustive(load, 399)
            assert found is not None and best is not None and found - best <= max(1, 0.08 * best)
            tries[prior] += len(tried)
    assert tries[REFINED] <= 0.85 * tries[UNREFINED]


def test_finds_a_fit_below_a_number_that_does_not_fit():
    """Bisection would stop at 24: 23 does not fit."""
    loads = {21: 0.99, 22: 1.03, 23: 1.02}
    assert smallest_fitting(lambda number: loads.get(number) or (number / 23.5) ** -0.75, 100) == 21


@pytest.mark.parametrize("upper", [1, 2, 1000, 100_000])
def test_nothing_fits(upper):
    found, tried = traced(lambda number: 1.001, upper)
    assert found is None and tried[-1] == upper and len(tried) <= 12


def test_step_function():
    """Not a power law: the utilization drops only at 5000 parts."""
    found, tried = traced(lambda number: 1.3 if number < 5000 else 0.9, 100_000)
    assert found is not None and 5000 <= found <= 6000 and len(tried) <= 24


def test_the_whole_fits():
    assert traced(lambda number: 1.0, 10) == (1, [1])


@pytest.mark.parametrize(("asked", "method"), [("auto", "star_refined"), ("fast", "star")])
def test_the_plan_reports_the_resolved_method(asked: str, method: str) -> None:
    pytest.importorskip("pymetis")
    mb = batch(200, 200)
    capacity = max(max(alone(mb)), count(mb).peak_bytes // 2)
    made = plan_with(count, mb, memory=capacity, method=asked)
    assert (made.method, made.asked, made.method_name) == (method, asked, f"{asked} ({method})")
    assert f"parts by {asked} ({method})" in repr(made)
    same = plan_with(count, mb, memory=capacity, method=method)
    assert same.method_name == method and torch.equal(same.assignment, made.assignment)
    assert plan_with(count, mb, memory=10**9, method=asked).method_name == asked
    clusters = plan_with(count, mb, memory=capacity, method=asked, node_parts=torch.arange(400))
    assert clusters.method_name == f"{asked} (cluster)"


def test_auto_falls_back_to_star_when_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `partition_batch`: without memory for the refinement, star is used."""
    pytest.importorskip("pymetis")
    mb = batch(200, 200)
    capacity = max(max(alone(mb)), count(mb).peak_bytes // 2)
    expected = plan_with(count, mb, memory=capacity, method="star")
    monkeypatch.setattr("workbench.partition.refine.available_bytes", lambda: 0)
    made = plan_with(count, mb, memory=capacity)
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
    made = plan_with(count, mb, memory=max(*alone(mb), count(mb).peak_bytes // 5))
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
    first = plan_with(count, mb, memory=capacity, method="random")
    smallest = min(first.micro, key=lambda micro: count(micro).peak_bytes)

    def estimate(micro: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        estimate = count(micro, accumulating=accumulating)
        if torch.equal(micro.seeds, smallest.seeds):
            return replace(estimate, terms={"more": capacity + 1})
        return estimate

    second = plan_with(estimate, mb, memory=capacity, method="random")
    assert second.peak_bytes <= capacity and second.num_parts != first.num_parts
    assert dict(second.tried)[first.num_parts] > capacity


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
    plan = plan_with(count, mb, memory=capacity, margin=0.0, method="range", strategy=strategy)
    assert plan.num_parts == 2 and plan.peak_bytes == capacity
    refusal(mb, memory=capacity - 1, margin=0.0, method="range", strategy=strategy)
    (reversed_order,) = all_seeds.select([by_id[[before, expensive]]])
    message = refusal(reversed_order, memory=capacity, margin=0.0, method="range", strategy=strategy)
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
    assert "after other parts" in refusal(mb, memory=second_largest + 50, margin=0.0)


def test_errors_state_required_and_available_bytes():
    mb = batch()
    with pytest.raises(CapacityError, match=r"parameters and optimizer state alone need 1,000 bytes .* 900 bytes"):
        plan_with(count, mb, memory=900)
    with pytest.raises(CapacityError, match=r"the optimizer step, for any number of parts, needs 1,020 bytes.*sgd"):
        plan_with(count, mb, memory=1030)
    least = max(alone(mb))
    with pytest.raises(CapacityError, match=rf"seed \d+ alone, after other parts, needs {least:,} bytes") as error:
        plan_with(count, mb, memory=least - 200)
    seed = int(str(error.value).split()[1])
    assert alone(mb)[mb.seeds.tolist().index(seed)] == least
    assert "1,020 with a margin of 2.0%" in refusal(mb, memory=900)


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
        sufficient = suggested(refusal(mb, estimator, memory=1, **options))
        for capacity in (FIXED, int(FIXED * (1 + margin)) + 5, FIXED + 300, sufficient // 2, sufficient - 500):
            assert suggested(refusal(mb, estimator, memory=capacity, **options)) <= sufficient
        plan = plan_with(estimator, mb, memory=sufficient, **options)
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
    assert plan_with(inexact, mb, memory=int(whole) + 1, strategy=strategy).num_parts == 1
    for fraction in (0.99, 0.5, 0.3):
        plan = plan_with(inexact, mb, memory=int(whole * fraction), strategy=strategy)
        assert plan.num_parts > 1 and all(measured(estimate) <= whole * fraction for estimate in plan.estimates)
    assert plan_with(inexact, mb, memory=int(whole), margin=0.6, strategy=strategy).num_parts > 1
    message = refusal(mb, inexact, memory=FIXED + 100, strategy=strategy)
    assert f"an error of up to {error:.0%}" in message
    assert plan_with(inexact, mb, memory=suggested(message), strategy=strategy).num_parts > 1
