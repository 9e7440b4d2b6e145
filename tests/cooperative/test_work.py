"""Work of a batch by its size: the closed form against all subsets in rational arithmetic, and against samples."""

from fractions import Fraction
from itertools import combinations

import pytest
import torch
from hypothesis import given, strategies as st

import workbench as wb
from tests.strategies import random_graph

GRAPH = random_graph(30, 90)
SEEDS = torch.arange(30)[::4]  # 8 of them
SIZES = range(1, len(SEEDS) + 1)
SAMPLERS = {
    "neighbour": wb.NeighborSampler([2, 2], seed=1),
    "replaced": wb.NeighborSampler([2, 3], replace=True, seed=2),
    "full": wb.FullNeighborSampler(2),
    "labor": wb.LaborSampler([2, 2], seed=3),
    "walks": wb.RandomWalkSampler([2, 2], num_walks=5, seed=4),
}


def reached(sampler, seeds):
    return set(sampler.sample(GRAPH, seeds, step=4).node_ids.tolist())


def mean(values):
    values = list(values)
    return Fraction(sum(values), len(values))


@pytest.mark.parametrize("name", SAMPLERS)
def test_theorem_3_2_over_all_subsets(name):
    """E|S_b| and Σ_{i ≤ b} E|T_i| / i, exactly, where every subset is sampled as a batch of its own."""
    sampler = SAMPLERS[name]
    alone = [reached(sampler, seed[None]) for seed in SEEDS]
    sizes = [mean(len(reached(sampler, SEEDS[list(s)])) for s in combinations(range(8), b)) for b in SIZES]
    exclusive = [mean(_exclusive([alone[i] for i in s]) for s in combinations(range(8), b)) for b in SIZES]
    steps = [count / b for count, b in zip(exclusive, SIZES, strict=True)]
    assert sizes == [sum(steps[:b]) for b in SIZES]
    assert steps == sorted(steps, reverse=True)
    curve = wb.cooperative.work_curve(GRAPH, SEEDS, sampler=sampler, batch_sizes=SIZES, step=4)
    assert curve.tolist() == pytest.approx([float(s) for s in sizes], rel=1e-13)
    reach = wb.cooperative.reach_counts(sampler.sample(GRAPH, SEEDS, step=4))
    assert wb.cooperative.marginal_inputs(reach, 8, SIZES).tolist() == pytest.approx(
        [float(s) for s in steps], rel=1e-13
    )


PAIRS = torch.tensor([[3, 7, 7, 11, 20, 25], [9, 2, 29, 7, 4, 20]])


@pytest.mark.parametrize("name", SAMPLERS)
def test_theorem_3_2_over_all_subsets_of_edges(name):
    """Each edge with its negative, which shares an endpoint, is one unit of three seeds, and units share seeds."""
    sampler = SAMPLERS[name]
    pairs = wb.links.Negatives(1, ends="either", avoid_edges=True, seed=5).draw(GRAPH, *PAIRS)
    assert pairs.neg_src is not None and pairs.neg_dst is not None
    items = torch.stack([pairs.src, pairs.dst, pairs.neg_src, pairs.neg_dst], dim=1)
    seeds_of = [pairs.seeds[item].unique() for item in items]
    assert {len(seeds) for seeds in seeds_of} == {3} and len(pairs.seeds) < 3 * 6
    alone = [reached(sampler, seeds) for seeds in seeds_of]
    sizes, exclusive = [], []
    for b in range(1, 7):
        subsets = list(combinations(range(6), b))
        sizes.append(mean(len(reached(sampler, torch.cat([seeds_of[i] for i in s]).unique())) for s in subsets))
        exclusive.append(mean(_exclusive([alone[i] for i in s]) for s in subsets))
    steps = [count / b for b, count in enumerate(exclusive, 1)]
    assert sizes == [sum(steps[:b]) for b in range(1, 7)]
    assert steps == sorted(steps, reverse=True), "concave"
    reach = wb.cooperative.reach_counts(sampler.sample(GRAPH, pairs.seeds, step=4), items=items)
    assert wb.cooperative.expected_inputs(reach, 6, range(1, 7)).tolist() == pytest.approx(
        [float(s) for s in sizes], rel=1e-13
    )
    assert wb.cooperative.marginal_inputs(reach, 6, range(1, 7)).tolist() == pytest.approx(
        [float(s) for s in steps], rel=1e-13
    )


def _exclusive(sets):
    """Number of nodes in exactly one of the sets."""
    return sum(sum(node in s for s in sets) == 1 for node in set().union(*sets))


@given(st.integers(2, 200), st.data())
def test_sums_of_marginal_inputs_are_expected_inputs(num_seeds, data):
    reach = torch.tensor(data.draw(st.lists(st.integers(0, num_seeds), min_size=1, max_size=20)))
    sizes = range(1, num_seeds + 1)
    curve, steps = (
        wb.cooperative.expected_inputs(reach, num_seeds, sizes),
        wb.cooperative.marginal_inputs(reach, num_seeds, sizes),
    )
    torch.testing.assert_close(steps.cumsum(0), curve, rtol=1e-10, atol=1e-10)
    assert bool((steps.diff() <= 1e-10).all())


def test_the_closed_form_is_exact_for_many_seeds():
    """C(n − r, b) / C(n, b) as fractions, where binomial coefficients have thousands of digits."""
    n, b, reach = 20_000, 777, [1, 5, 60, 2000, 19_500]
    missed = []
    for r in reach:
        term = Fraction(1)
        for j in range(b):
            term *= Fraction(max(0, n - r - j), n - j)
        missed.append(float(1 - term))
    assert wb.cooperative.expected_inputs(torch.tensor(reach), n, [b]).item() == pytest.approx(sum(missed), rel=1e-12)


def test_sampled_batches_agree_within_one_percent():
    data = wb.load_dataset("synthetic-arxiv", scale=0.02)
    sampler, sizes = wb.NeighborSampler([4, 4], seed=0), [64, 256, 1024]
    measured = list(
        wb.cooperative.measure_work(
            data.graph, data.train_idx, sampler=sampler, batch_sizes=sizes, repetitions=24, seed=1
        )
    )
    for size in sizes:
        inputs = torch.tensor([w.num_inputs for w in measured if w.batch_size == size], dtype=torch.float64)
        curves = [
            wb.cooperative.work_curve(data.graph, data.train_idx, sampler=sampler, batch_sizes=[size], step=step)
            for step in range(3)
        ]
        assert inputs.mean().item() == pytest.approx(float(torch.cat(curves).mean()), rel=0.01)


def test_prefixes_of_a_permutation_are_nested_and_counts_are_the_batch():
    sampler = SAMPLERS["neighbour"]
    seen = []

    def seeds_of(nodes, step):
        seen.append((step, nodes.tolist()))
        return nodes

    works = list(wb.cooperative.measure_work(
        GRAPH, SEEDS, sampler=sampler, batch_sizes=[2, 8], repetitions=2, seeds_of=seeds_of, seed=9
    ))  # fmt: skip
    assert [(w.batch_size, w.repetition) for w in works] == [(2, 0), (8, 0), (2, 1), (8, 1)]
    assert seen[0][1] == seen[1][1][:2] and seen[1][1] != seen[3][1] and set(seen[1][1]) == set(SEEDS.tolist())
    batch = sampler.sample(GRAPH, torch.tensor(seen[2][1]), step=1)
    assert works[2].nodes == (2, batch.blocks[1].num_src, batch.num_inputs)
    assert works[2].edges == (batch.blocks[1].num_edges, batch.blocks[0].num_edges)
    assert (works[2].num_seeds, works[2].num_inputs) == (2, batch.num_inputs)


PI = wb.LaborSampler([2], importance=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: wb.cooperative.expected_inputs(torch.tensor([3]), 2, [1]),
            "reach contains 3; counts must be from 0 to the 2",
        ),
        (
            lambda: wb.cooperative.expected_inputs(torch.tensor([1]), 2, [3]),
            "a batch size is 3; it must be",
        ),
        (
            lambda: wb.cooperative.marginal_inputs(torch.tensor([1]), 2, [0]),
            "a batch size is 0; it must be",
        ),
        (
            lambda: wb.cooperative.expected_inputs(torch.tensor([1]), 2, [0.5]),  # pyright: ignore[reportArgumentType]
            "a batch size is 0.5; it must be a whole number",
        ),
        (
            lambda: wb.cooperative.measure_work(GRAPH, SEEDS, sampler=SAMPLERS["full"], batch_sizes=[1.9]),  # type: ignore
            "a batch size is 1.9; it must be a whole number",
        ),
        (
            lambda: wb.cooperative.expected_inputs(torch.tensor([1]), 2, []),
            "batch_sizes has no size; pass at least one",
        ),
        (
            lambda: wb.cooperative.work_curve(GRAPH, SEEDS, sampler=SAMPLERS["full"], batch_sizes=[9]),
            "a batch size is 9",
        ),
        (
            lambda: wb.cooperative.work_curve(
                GRAPH, SEEDS, sampler=wb.LaborSampler([2], importance=1), batch_sizes=[1]
            ),
            "needs a sampler that draws",
        ),
        (
            lambda: wb.cooperative.measure_work(GRAPH, SEEDS, sampler=SAMPLERS["full"], batch_sizes=[1], repetitions=0),
            "repetitions is 0",
        ),
    ],
)
def test_invalid_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
