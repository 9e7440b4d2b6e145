"""Placements against all placements of a few rows."""

import statistics

import pytest

import workbench as wb
from experiments.data_placement.all_placements import cheapest, random_case


def compare(kind: str, objective: str, seeds: range, method: str) -> list[float]:
    """Cost above the optimum, as a fraction, in each case."""
    excess = []
    for seed in seeds:
        case = random_case(seed, kind)
        placed = wb.placement.place_rows(case.p, **case.arguments(), objective=objective, method=method)
        optimum = cheapest(placed.problem.costs, case.p, case.capacity, objective)
        assert placed.lower_bound <= optimum * (1 + 1e-9) + 1e-12 and placed.cost >= optimum * (1 - 1e-9) - 1e-12
        excess.append(placed.cost / optimum - 1 if optimum > 1e-9 else placed.cost)
    return excess


def check(seeds: range) -> None:
    assert max(compare("equal", "total", seeds, "algorithm-1")) < 1e-9  # exactly optimal
    assert statistics.mean(compare("equal", "largest", seeds, "algorithm-1")) > 0.005  # which α is not
    for kind in ("equal", "unequal", "matrix"):
        for objective in ("largest", "total"):
            excess = compare(kind, objective, seeds, "search")
            assert statistics.median(excess) <= 0.01 and max(excess) <= 0.05


def test_search_and_sum_against_all_placements() -> None:
    check(range(3))


@pytest.mark.slow
def test_search_and_sum_against_all_placements_of_many_cases() -> None:
    check(range(330))
