"""Placements: the paper's example, records against plain loops, invariants, and clear errors."""

import os
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

import workbench as wb
from experiments.data_placement.all_placements import random_case
from tests.strategies import examples

P = torch.tensor([0.0, 5, 4, 3, 2, 1], dtype=torch.float64)  # hottest first: 1, 2, 3, 4, 5, 0
TWO: dict[str, Any] = {"num_devices": 2, "rows_per_device": 2, "peer_cost": 0.3}


def place(p: torch.Tensor = P, **changed: Any) -> wb.placement.Placement:
    given: dict[str, Any] = TWO | changed
    return wb.placement.place_rows(p, **given)


def held(placed: wb.placement.Placement) -> list[set[int]]:
    return [set(rows.tolist()) for rows in placed.buffers]


def test_worked_example_of_the_paper() -> None:
    assert [rows.tolist() for rows in place().buffers] == [[1, 3], [4, 2]]
    assert [rows.tolist() for rows in place(method="algorithm-1-printed").buffers] == [[1, 3], [1, 2]]


def test_a_peer_as_dear_as_the_host_is_never_used() -> None:
    for method in ("algorithm-1", "search", "hottest"):
        placed = place(peer_cost=1.0, method=method)
        assert held(placed) == [{1, 2}, {1, 2}] and placed.gap == pytest.approx(0, abs=1e-9)


def test_groups_are_placed_one_by_one() -> None:
    placed = place(num_devices=4, groups=[[0, 2], [3, 1]])
    assert held(placed)[0] | held(placed)[2] == held(placed)[1] | held(placed)[3] == {1, 2, 3, 4}
    alone = place()
    assert sorted(placed.expected_cost.tolist()) == pytest.approx(sorted([*alone.expected_cost.tolist()] * 2))
    matrix = [[0, 1, 0.3, 1], [1, 0, 1, 0.3], [0.3, 1, 0, 1], [1, 0.3, 1, 0]]
    same = place(num_devices=4, peer_cost=matrix)
    assert torch.equal(placed.problem.costs, same.problem.costs) and held(placed) == held(same)


def test_baselines() -> None:
    assert held(place(method="naive")) == [{1, 2}, {3, 4}]
    parts = place(method="parts", parts=torch.tensor([0, 1, 0, 1, 0, 1]))
    assert [rows.tolist() for rows in parts.buffers] == [[2, 4], [1, 3]]
    overlapping = place(method="parts", parts=[torch.tensor([5, 1, 3]), torch.tensor([1])])
    assert [rows.tolist() for rows in overlapping.buffers] == [[1, 3], [1]]
    random = held(place(method="random", seed=1))
    assert not random[0] & random[1] and random != held(place(method="random", seed=2))


@pytest.mark.parametrize("seed", range(6))
def test_costs_and_lookup_against_plain_loops(seed: int) -> None:
    case = random_case(seed, "matrix")
    placed = wb.placement.place_rows(case.p, **case.arguments(), method="random", seed=seed)
    costs, buffers = placed.problem.costs, placed.buffers
    n, copies = placed.num_devices, [row for rows in buffers for row in rows.tolist()]
    for device in range(n):
        holder, slot = placed.lookup(device)
        expected = 0.0
        for row in range(len(case.p)):
            prices = {n: float(costs[device, n])}
            prices |= {j: float(costs[device, j]) for j in range(n) if row in buffers[j].tolist()}
            price = prices[int(holder[row])] if holder[row] >= 0 else prices[n]
            assert price == min(prices.values())
            assert holder[row] < 0 or int(buffers[holder[row]][slot[row]]) == row
            expected += float(case.p[row]) * price
        assert float(placed.expected_cost[device]) == pytest.approx(expected, rel=1e-12)
    assert placed.num_distinct == len(set(copies)) and placed.num_duplicates == len(copies) - len(set(copies))
    read = sum(float(case.p[row]) for row in set(copies))
    assert placed.coverage == pytest.approx(read / float(case.p.sum()))
    assert placed.row()["total_cost"] == placed.total_cost >= placed.largest_cost


def test_equal_peers_are_read_in_turn() -> None:
    placed = wb.placement.place_rows(P, num_devices=4, rows_per_device=1, peer_cost=0.5, method="parts", parts=[
        torch.tensor([5]), torch.tensor([1]), torch.tensor([1]), torch.tensor([1])
    ])  # fmt: skip
    assert [int(placed.lookup(device).holder[1]) for device in range(4)] == [1, 1, 2, 3]
    assert int(placed.lookup(3).holder[5]) == 0 and int(placed.lookup(3).holder[0]) == -1


@examples(8)
@given(st.integers(0, 10_000), st.sampled_from(("equal", "unequal", "matrix")), st.sampled_from(("largest", "total")))
def test_invariants(seed: int, kind: str, objective: str) -> None:
    case = random_case(seed, kind)
    given: dict[str, Any] = case.arguments() | {"objective": objective}
    naive = wb.placement.place_rows(case.p, **given, method="naive")
    methods = ["search", "hottest", "random"] + ["algorithm-1", "algorithm-1-printed"] * (kind == "equal")
    for method in methods:
        placed = wb.placement.place_rows(case.p, **given, method=method)
        for rows, room in zip(placed.buffers, case.capacity, strict=True):
            assert len(rows) == len(rows.unique()) <= room
        assert placed.cost >= placed.lower_bound * (1 - 1e-9)
        best = method == "search" or (method == "algorithm-1" and objective == "total")
        assert not best or placed.cost <= naive.cost * (1 + 1e-9) + 1e-12
    assert naive.lower_bound == pytest.approx(placed.lower_bound, rel=1e-4, abs=1e-12)


@examples(8)
@given(st.integers(0, 10_000), st.floats(0, 1))
def test_a_larger_buffer_never_costs_more(seed: int, peer_cost: float) -> None:
    p = torch.rand(30, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) ** 3
    given: dict[str, Any] = {"num_devices": 3, "peer_cost": peer_cost, "objective": "total"}
    costs = [wb.placement.place_rows(p, rows_per_device=size, **given).cost for size in range(0, 31, 3)]
    assert all(after <= before + 1e-12 for before, after in pairwise(costs))
    assert costs[0] == pytest.approx(3 * float(p.sum())) and costs[-1] == 0


def test_rounding_many_rows_stays_near_the_bound() -> None:
    p = (1 + torch.arange(5000, dtype=torch.float64)) ** -0.8
    uniform = wb.placement.place_rows(p, num_devices=4, rows_per_device=800, peer_cost=0.2, method="search")
    assert uniform.gap < 1e-3 and [len(rows) for rows in uniform.buffers] == [800] * 4
    given: dict[str, Any] = {"num_devices": 3, "rows_per_device": [900, 300, 0], "host_cost": [1.0, 2.0, 1.5]}
    mixed = wb.placement.place_rows(p, **given, peer_cost=[[0, 0.2, 1], [0.4, 0, 2], [0.1, 0.7, 0]], method="search")
    assert mixed.gap < 1e-3 and [len(rows) for rows in mixed.buffers] == [900, 300, 0]


PRINT_SEARCH = """
import torch, workbench as wb
p = torch.rand(5000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 4
placed = wb.placement.place_rows(p, num_devices=8, rows_per_device=500, peer_cost=0.3, method="search")
print(placed.lower_bound.hex(), [rows.tolist() for rows in placed.buffers])
"""


@pytest.mark.slow
def test_the_search_finds_the_same_on_every_processor() -> None:
    kernels = ("Nehalem", "Haswell")  # OpenBLAS chooses them by the processor; they sum in different orders
    found = {
        subprocess.run(
            [sys.executable, "-c", PRINT_SEARCH],
            env=os.environ | {"OPENBLAS_CORETYPE": kernel},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for kernel in kernels
    }
    assert len(found) == 1


def test_nothing_to_read_or_no_room() -> None:
    for method in ("algorithm-1", "search", "naive"):
        assert place(torch.zeros(5), method=method).cost == 0
        empty = place(rows_per_device=0, method=method)
        assert empty.expected_cost.tolist() == [15, 15] and empty.gap == pytest.approx(0, abs=1e-9)
        assert place(P[:0], rows_per_device=0, method=method).coverage == 0


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"p": -P}, ValueError, r"p contains -5.0 at row 1; probabilities must not be negative"),
        ({"p": P / 0}, ValueError, r"p contains nan at position 0"),
        ({"p": P.double() * 1e307}, ValueError, r"p has the sum 1.5e\+308 .* divide p by its largest value"),
        ({"host_cost": 1e308}, ValueError, r"the largest cost is 1e\+308, so that expected costs exceed"),
        ({"p": P[None]}, ValueError, r"p has shape \(1, 6\); it must have one dimension"),
        ({"p": P.long()}, TypeError, r"p must be a tensor of torch.float64 or torch.float32, not torch.int64"),
        ({"num_devices": 0}, ValueError, r"num_devices is 0; it must be a whole number of at least 1"),
        ({"num_devices": 63}, ValueError, r"num_devices is 63; it must be a whole number from 1 to 62"),
        ({"rows_per_device": 7}, ValueError, r"rows_per_device is 7, but there are 6 rows; pass at most that"),
        ({"rows_per_device": -1}, ValueError, r"rows_per_device is -1; it must be a whole number of at least 0"),
        ({"rows_per_device": [1, 2, 3]}, ValueError, r"rows_per_device has 3 entries for 2 devices"),
        ({"peer_cost": 1.5}, ValueError, r"peer_cost\[0, 1\] is 1.5, above the host's 1.0: device 0 would never read"),
        ({"peer_cost": -0.1}, ValueError, r"peer_cost contains -0.1; costs must not be negative"),
        ({"peer_cost": [[0, 0.1]]}, ValueError, r"peer_cost has shape \(1, 2\); pass one number, or a square matrix"),
        ({"peer_cost": "fast"}, TypeError, r"peer_cost is 'fast'; pass numbers"),
        ({"host_cost": [1.0] * 3}, ValueError, r"host_cost has shape \(3,\); pass one number, or one for each of 2"),
        ({"host_cost": float("nan")}, ValueError, r"host_cost contains nan"),
        ({"groups": [[0], [0]]}, ValueError, r"groups list the devices \[0, 0\]; list each of 0 to 1 once"),
        ({"method": "best"}, ValueError, r"method 'best' is not known; choose from algorithm-1, "),
        ({"objective": "max"}, ValueError, r"objective 'max' is not known; choose from largest, total"),
        ({"rows_per_device": [1, 2]}, ValueError, r'needs the same rows_per_device .* use method="search"'),
        ({"method": "search", "threshold": 0.5}, ValueError, r"threshold= is for Algorithm 1 alone"),
        ({"threshold": 1.5}, ValueError, r"threshold is 1.5; α must be in \[0, 1\]"),
        ({"method": "parts"}, ValueError, r"needs parts=, the device of each row"),
        ({"method": "naive", "parts": [P.long()]}, ValueError, r'parts= is for method="parts" alone'),
        ({"method": "parts", "parts": [torch.tensor([0])]}, ValueError, r"parts has 1 entries for 2 devices"),
        ({"method": "parts", "parts": torch.full((6,), 2)}, IndexError, r"parts contains 2; ids must be in \[0, 2\)"),
        ({"method": "parts", "parts": torch.zeros(5).long()}, ValueError, r"parts has shape \(5,\)"),
        ({"method": "search", "num_devices": 13}, ValueError, r"a group has 13 devices .* at most 12"),
    ],
)
def test_bad_input(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        place(**changed)
