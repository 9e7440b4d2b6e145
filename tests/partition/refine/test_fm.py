"""Bytes that a move frees and adds, against splits of the batch; the state after a pass, against a fresh count."""

from typing import Any

import pytest
import torch
from hypothesis import assume, given, strategies as st

from tests.partition.refine.oracles import batch_of, part_bytes, partitioned
from tests.partition.refine.test_pin_counts import LIMIT, read
from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch
from workbench.partition import refine
from workbench.partition.refine import OBJECTIVES, refine_parts
from workbench.partition.refine.computation_graph import ContractedGraph, computation_graph, contract
from workbench.partition.refine.fm import PinCounts, _bytes_added, _bytes_freed, count_pins, fm_pass

Case = tuple[MiniBatch, torch.Tensor, int]


def prepared(case: Case) -> tuple[ContractedGraph, PinCounts, tuple[Any, ...]]:
    mb, part, num_parts = case
    graph = contract(computation_graph(mb))
    return graph, count_pins(graph, part, num_parts, LIMIT), refine._scratch(graph)


def moved(part: torch.Tensor, seed: int, label: int) -> torch.Tensor:
    part = part.clone()
    part[seed] = label
    return part


@given(partitioned(), st.data())
def test_bytes_freed_and_added_equal_those_of_splits(case: Case, data: st.DataObject) -> None:
    mb, part, num_parts = case
    assume(mb.num_seeds and num_parts > 1)
    graph, pins, (stack, visited, removed, _, _, clock) = prepared(case)
    before = part_bytes(mb, part, num_parts)
    for _ in range(4):  # reuses the scratch arrays
        seed = data.draw(st.integers(0, mb.num_seeds - 1))
        home = int(part[seed])
        other = data.draw(st.integers(0, num_parts - 1).filter(lambda label, home=home: label != home))
        after = part_bytes(mb, moved(part, seed, other), num_parts)
        arguments = graph.arrays(), pins.arrays(), seed
        assert _bytes_freed(*arguments, home, stack, visited, removed, clock) == before[home] - after[home]
        added = _bytes_added(*arguments, other, float("inf"), stack, visited, clock)
        assert added == after[other] - before[other]
        limit = data.draw(st.integers(0, max(0, int(added) - 1)))
        assert added == 0 or _bytes_added(*arguments, other, float(limit), stack, visited, clock) > limit


@given(partitioned(), st.sampled_from(OBJECTIVES), st.booleans())
def test_the_state_after_a_pass_equals_a_fresh_count(case: Case, objective: str, weighted: bool) -> None:
    mb, part, num_parts = case
    assume(mb.num_seeds)
    graph, pins, scratch = prepared(case)
    weights = (torch.arange(mb.num_seeds) % 3 + 1).double() if weighted else None
    state = refine._state(part, pins, weights)
    settings = (4.0 if objective == "largest" else 1.0, 2, 0.1, *refine._bounds(pins, state, objective, weights))
    moves = fm_pass(graph.arrays(), pins.arrays(), state, settings, tuple(scratch))
    refined, refined_bytes, _, part_weight, part_size = state
    assert (moves > 0) >= (refined != part.numpy()).any()
    now = torch.from_numpy(refined)
    assert refined_bytes.tolist() == part_bytes(mb, now, num_parts)
    assert part_size.tolist() == torch.bincount(now, minlength=num_parts).tolist()
    expected = torch.bincount(now, weights=weights, minlength=num_parts) if weighted else torch.zeros(num_parts)
    assert part_weight.tolist() == expected.tolist()
    assert read(mb, pins) == read(mb, count_pins(graph, now, num_parts, LIMIT))


def far_batch(*far: int) -> MiniBatch:
    """Three seeds, each with an exclusive source of `far` in-neighbours; the first and the last share a source."""
    out = Block(torch.tensor([0, 2, 3, 5]), torch.tensor([3, 6, 4, 5, 6], dtype=torch.int32), 7, 3)
    indptr = torch.tensor([0, 0, 0, 0, *far, 0]).cumsum(0)
    inner = Block(indptr, torch.arange(7, 7 + sum(far), dtype=torch.int32), 7 + sum(far), 7)
    return MiniBatch(torch.arange(7 + sum(far)), (inner, out))


@pytest.mark.parametrize("far", [(440, 110, 60), (449, 110, 60), (220, 60, 20)])
def test_one_seed_with_most_of_the_batch_behind_it(far: tuple[int, ...]) -> None:
    """Its move takes most of the nodes of the other part along; then the last seed joins the lighter part."""
    assert refine_parts(far_batch(*far), torch.tensor([0, 0, 1])).tolist() == [1, 0, 0]


def test_seeds_that_share_nothing_are_balanced() -> None:
    mb = batch_of([[12 + v] for v in range(12)])
    assert torch.bincount(refine_parts(mb, torch.tensor([0] * 10 + [1, 2]))).tolist() == [4, 4, 4]
    part = torch.tensor([0] * 10 + [1, 2])
    assert torch.equal(refine_parts(mb, part, objective="total"), part)  # no move saves bytes
