"""Invariants of the refinement, and partitions whose optimum is known."""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, strategies as st

from tests.partition.oracles import batch_of, contracted_sources, part_bytes, partitioned, pins_by_part
from tests.strategies import random_graph, random_minibatch
from workbench.core.block import Block
from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.kernels.threads import get_num_threads, set_num_threads
from workbench.partition import refine
from workbench.partition.computation_graph import ContractedGraph, computation_graph, contract
from workbench.partition.refine import (
    OBJECTIVES,
    PinCounts,
    _bytes_added,
    _bytes_freed,
    add_pin,
    count_pins,
    fm_pass,
    pin_count,
    refine_parts,
    remove_pin,
)

Case = tuple[MiniBatch, torch.Tensor, int]


def large(num_seeds: int = 200, fanouts: tuple[int, ...] = (3, 4), step: int = 0) -> MiniBatch:
    return random_minibatch(random_graph(400, 2400, seed=3), fanouts=fanouts, num_seeds=num_seeds, seed=step)


def check(mb: MiniBatch, part: torch.Tensor, found: torch.Tensor, objective: str) -> int:
    """Check that the objective is no worse and no part is empty; return the number of moved seeds."""
    assert found.dtype == torch.int64 and found.shape == part.shape
    assert torch.equal(found.unique(), part.unique().long())
    before, after = ([b for b in part_bytes(mb, p.long(), int(part.max()) + 1) if b] for p in (part, found))
    if objective == "total":
        assert sum(after) <= sum(before) and max(after) <= 1.05 * max(before)
    else:
        assert sum(b**4 for b in after) <= sum(b**4 for b in before) and max(after) <= max(before)
    return int((found != part).sum())


@given(partitioned(), st.sampled_from(OBJECTIVES))
def test_no_objective_gets_worse_and_no_part_is_emptied(case: Case, objective: str) -> None:
    mb, part, _ = case
    assume(mb.num_seeds)
    before = part.clone()
    check(mb, part, refine_parts(mb, part, objective=objective), objective)
    assert torch.equal(part, before)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("num_parts", [2, 7, 50])
@pytest.mark.parametrize("fanouts", [(4,), (3, 4), (2, 2, 3)])
def test_a_random_partition_gets_better(fanouts: tuple[int, ...], num_parts: int, objective: str) -> None:
    mb = large(fanouts=fanouts)
    part = torch.randint(num_parts, (200,), generator=torch.Generator().manual_seed(1))
    assert check(mb, part, refine_parts(mb, part, objective=objective), objective) > 10


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_labels_with_gaps_are_kept(objective: str) -> None:
    mb, part = large(), torch.arange(200) % 5
    names = torch.tensor([2, 3, 70, 71, 1000])
    found = refine_parts(mb, names[part], objective=objective)
    assert torch.equal(found, names[refine_parts(mb, part, objective=objective)])
    assert torch.equal(refine_parts(mb, names[part].int(), objective=objective), found)


@given(partitioned(), st.sampled_from(OBJECTIVES), st.integers(0, 2**16), st.booleans())
def test_weights_bound_every_part(case: Case, objective: str, seed: int, whole: bool) -> None:
    mb, part, num_parts = case
    assume(mb.num_seeds)
    weights = torch.randint(0, 9, (mb.num_seeds,), generator=torch.Generator().manual_seed(seed))
    weights[seed % mb.num_seeds] += 1  # they may not all be zero
    weights = weights if whole else weights / 7
    loads = [
        torch.bincount(p, weights=weights.double(), minlength=num_parts)
        for p in (part, refine_parts(mb, part, objective=objective, weights=weights))
    ]
    there = len(part.unique())
    limit = max(float(loads[0].max()), 1.03 * float(weights.double().sum()) / there)
    assert float(loads[1].max()) <= limit * (1 + 1e-12)


def test_weights_prevent_moves() -> None:
    mb, part = large(), torch.arange(200) % 2
    free, held = refine_parts(mb, part), refine_parts(mb, part, weights=torch.ones(200))
    assert int((held != part).sum()) > 0 and not torch.equal(free, held)
    assert int(torch.bincount(held).max()) <= 103


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_threads_do_not_change_the_result(objective: str, num_threads: int) -> None:
    mb, part = large(), torch.arange(200) % 9
    found = [refine_parts(mb, part, objective=objective) for _ in range(2)]
    before = get_num_threads()
    set_num_threads(1)
    try:
        alone = refine_parts(mb, part, objective=objective)
    finally:
        set_num_threads(before)
    assert torch.equal(found[0], alone) and torch.equal(found[1], alone)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(3))
def test_swapped_seeds_return_to_their_communities(objective: str, seed: int) -> None:
    """Two communities read disjoint sources, so that the partition into communities has no redundancy."""
    rng = torch.Generator().manual_seed(seed)
    rows = [(100 + 30 * (v % 2) + torch.randint(30, (6,), generator=rng)).tolist() for v in range(100)]
    mb, best = batch_of(rows), torch.arange(100) % 2
    mixed = best.clone()
    swapped = torch.randperm(50, generator=rng)[:4]
    mixed[2 * swapped], mixed[2 * swapped + 1] = 1, 0
    assert torch.equal(refine_parts(mb, mixed, objective=objective), best)
    assert torch.equal(refine_parts(mb, best, objective=objective), best)


def test_the_largest_part_shrinks_at_no_cost_to_the_other() -> None:
    """Seeds 2, 3 and 4 need only source 5: the part of four seeds is the larger one until 2 and 3 join 4."""
    mb = batch_of([[6], [6], [5], [5], [5]])
    part = torch.tensor([0, 0, 0, 0, 1])
    assert sorted(part_bytes(mb, part, 2)) == [1040, 3136]
    found = refine_parts(mb, part)
    assert sorted(part_bytes(mb, found, 2)) == [1568, 2096] and len(set(found[:2].tolist())) == 1


def test_batches_without_moves() -> None:
    nothing = MiniBatch(torch.empty(0, dtype=torch.int64), ())
    assert refine_parts(nothing, torch.empty(0, dtype=torch.int64)).tolist() == []
    assert refine_parts(nothing, torch.empty(0, dtype=torch.int32)).dtype == torch.int64
    flat = MiniBatch(torch.arange(4), ())
    assert refine_parts(flat, torch.tensor([3, 0, 0, 1])).tolist() == [3, 0, 0, 1]
    empty = Block(torch.zeros(1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), 0, 0)
    assert (
        len(refine_parts(MiniBatch(torch.empty(0, dtype=torch.int64), (empty,)), torch.empty(0, dtype=torch.int64)))
        == 0
    )
    mb = large(30)
    assert refine_parts(mb, torch.full((30,), 7)).tolist() == [7] * 30
    assert refine_parts(mb, torch.arange(30).flip(0)).tolist() == list(range(29, -1, -1))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_degenerate_batches(objective: str) -> None:
    no_edges, hub, hub_seed = batch_of([[]] * 5), batch_of([[5]] * 5), batch_of([[0]] * 5)
    loops = batch_of([[v, v] for v in range(5)])
    for mb in (no_edges, hub, hub_seed, loops):
        for part in ([0, 0, 0, 0, 1], [0, 1, 2, 3, 4], [0, 1, 0, 1, 2]):
            before = torch.tensor(part)
            check(mb, before, refine_parts(mb, before, objective=objective), objective)
    assert sorted(torch.bincount(refine_parts(hub, torch.tensor([0, 0, 0, 0, 1]))).tolist()) == [2, 3]


def test_bad_arguments_are_refused() -> None:
    mb, part = large(30), torch.arange(30) % 3
    with pytest.raises(ValueError, match=r"objective 'least' is not known; choose from largest, total"):
        refine_parts(mb, part, objective="least")
    with pytest.raises(ValueError, match=r"part has shape \(29,\); its first dimension must be 30"):
        refine_parts(mb, part[:29])
    with pytest.raises(TypeError, match=r"part must be a tensor of torch.int64"):
        refine_parts(mb, part.float())
    with pytest.raises(ValueError, match=r"part contains -1; labels must be non-negative"):
        refine_parts(mb, part - 1)
    with pytest.raises(ValueError, match=r"weights has shape \(29,\); its first dimension must be 30"):
        refine_parts(mb, part, weights=torch.ones(29))
    with pytest.raises(TypeError, match=r"weights must be a tensor"):
        refine_parts(mb, part, weights=torch.ones(30, dtype=torch.bool))
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"weights range from .* finite, non-negative"):
            refine_parts(mb, part, weights=torch.where(part == 1, bad, 1.0))


def test_max_bytes_is_checked() -> None:
    mb, part = large(), torch.arange(200) % 3
    with pytest.raises(CapacityError, match=r"the refinement requires .*, more than the limit of 1000 B"):
        refine_parts(mb, part, max_bytes=1000)
    assert torch.equal(refine_parts(mb, part, max_bytes=10**7), refine_parts(mb, part))


LIMIT = 1 << 30


def counted(mb: MiniBatch, part: torch.Tensor, num_parts: int) -> PinCounts:
    return count_pins(contract(computation_graph(mb)), part, num_parts, LIMIT)


def read(mb: MiniBatch, found: PinCounts) -> list[Counter[int]]:
    """Read the count of every node and part through the kernel."""
    nodes, arrays = range(mb.num_seeds, mb.num_seeds + len(found.row_starts) - 1), found.arrays()
    return [
        Counter({node: n for node in nodes if (n := int(pin_count(arrays, node, label)))})
        for label in range(found.num_parts)
    ]


@given(partitioned())
def test_counts_equal_those_of_sets(case: tuple[MiniBatch, torch.Tensor, int]) -> None:
    mb, part, num_parts = case
    found = counted(mb, part, num_parts)
    assert read(mb, found) == pins_by_part(mb, part.tolist(), num_parts)
    assert found.part_bytes.tolist() == part_bytes(mb, part, num_parts)


@pytest.mark.parametrize("num_parts", [1, 64, 512])
@pytest.mark.parametrize("fanouts", [(3,), (2, 2), (2, 2, 2)])
def test_many_parts(num_parts: int, fanouts: tuple[int, ...]) -> None:
    mb = random_minibatch(random_graph(60, 300, seed=1), fanouts=fanouts, num_seeds=40)
    part = torch.arange(40) * 13 % num_parts
    assert read(mb, counted(mb, part, num_parts)) == pins_by_part(mb, part.tolist(), num_parts)


def move(sources: list[list[int]], pins: PinCounts, seed: int, home: int, other: int) -> None:
    """Move a seed with all nodes that leave or enter a part with it."""
    for label, change in ((home, remove_pin), (other, add_pin)):
        stack = [seed]
        while stack:
            for source in sources[stack.pop()]:
                if change(pins.arrays(), source, label) == (change is add_pin):  # the first pin, or none is left
                    stack.append(source)


@given(partitioned(), st.integers(0, 2**16))
def test_counts_after_moves_of_seeds(case: tuple[MiniBatch, torch.Tensor, int], seed: int) -> None:
    mb, part, num_parts = case
    found, sources, rng = counted(mb, part, num_parts), contracted_sources(mb), random.Random(seed)
    labels = part.tolist()
    for _ in range(8 * bool(labels)):
        moved, other = rng.randrange(len(labels)), rng.randrange(num_parts)
        if other != labels[moved]:
            move(sources, found, moved, labels[moved], other)
            labels[moved] = other
    assert read(mb, found) == pins_by_part(mb, labels, num_parts)


@given(partitioned(), st.integers(0, 2**16))
def test_counts_after_single_changes(case: tuple[MiniBatch, torch.Tensor, int], seed: int) -> None:
    """In any order, as long as no more parts contain a node than its row has room for."""
    mb, part, num_parts = case
    found, rng = counted(mb, part, num_parts), random.Random(seed)
    model, most = pins_by_part(mb, part.tolist(), num_parts), np.diff(found.row_starts)
    nodes = sorted({source for row in contracted_sources(mb) for source in row})
    for _ in range(40 * bool(nodes)):
        node, label = rng.choice(nodes), rng.randrange(num_parts)
        if rng.random() < 0.5 and model[label][node]:
            model[label][node] -= 1
            assert remove_pin(found.arrays(), node, label) == model[label][node]
        elif model[label][node] or sum(counts[node] > 0 for counts in model) < most[node - mb.num_seeds]:
            model[label][node] += 1
            assert add_pin(found.arrays(), node, label) == model[label][node]
    assert read(mb, found) == [+counts for counts in model]


@given(partitioned(max_parts=20))
def test_rows_have_room_for_every_part_that_may_contain_a_node(
    case: tuple[MiniBatch, torch.Tensor, int],
) -> None:
    mb, _, num_parts = case
    assume(mb.num_seeds)
    reached = pins_by_part(mb, range(mb.num_seeds), mb.num_seeds)  # every seed is a part of its own
    lengths = np.diff(counted(mb, torch.arange(mb.num_seeds) % num_parts, num_parts).row_starts)
    for node, length in enumerate(lengths.tolist(), start=mb.num_seeds):
        assert min(num_parts, sum(node in counts for counts in reached)) <= length <= num_parts


def test_threads_do_not_change_the_counts(num_threads: int) -> None:
    mb = random_minibatch(random_graph(300, 2000, seed=1), fanouts=(4, 4), num_seeds=150)
    part = torch.arange(150) % 11
    many = counted(mb, part, 11)
    before = get_num_threads()
    set_num_threads(1)
    try:
        one = counted(mb, part, 11)
    finally:
        set_num_threads(before)
    for name in ("row_starts", "rows", "part_bytes"):
        assert np.array_equal(getattr(many, name), getattr(one, name)), name


def test_capacity_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    mb, part = random_minibatch(fanouts=(3, 3)), torch.arange(5) % 2
    graph, found = contract(computation_graph(mb)), counted(mb, part, 2)
    readers = Counter(node for counts in pins_by_part(mb, range(mb.num_seeds), mb.num_seeds) for node in counts)
    most_entries = sum(min(2, count) for count in readers.values())
    required = found.row_starts.nbytes + found.rows.nbytes + 8 * most_entries
    count_pins(graph, part, 2, 2 * required)
    with pytest.raises(CapacityError, match=r"requires .*, more than the limit of .*: use fewer parts"):
        count_pins(graph, part, 2, required - 1)
    monkeypatch.setattr(refine, "MAX_PARTS", 1)
    with pytest.raises(CapacityError, match=r"supports up to 1 parts, not 2:"):
        count_pins(graph, part, 2, LIMIT)


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
