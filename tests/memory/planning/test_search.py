"""`smallest_fitting` against exhaustive search, on exact and noisy utilization curves."""

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from workbench.memory.planning.search import REFINED, UNREFINED, smallest_fitting


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
