"""Invariants of the refinement, and partitions whose optimum is known."""

import pytest
import torch
from hypothesis import assume, given, strategies as st

from tests.partition.refine.oracles import batch_of, part_bytes, partitioned
from tests.strategies import random_graph, random_minibatch
from workbench.core.block import Block
from workbench.core.errors import CapacityError
from workbench.core.minibatch import MiniBatch
from workbench.kernels.threads import get_num_threads, set_num_threads
from workbench.partition.refine import OBJECTIVES, refine_parts

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
