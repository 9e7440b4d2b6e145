"""Dependent batches of all samplers: each batch alone is drawn as before, groups follow the law of the mixture."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from scipy import stats
from torch import Tensor

import workbench as wb
from tests.sampling.stars import FALSE_ALARM, star
from tests.strategies import random_graph

ROWS = 20_000


def equal_rows(degree: int, weights: list[float] | None = None) -> wb.Graph:
    """Build a graph whose first `ROWS` nodes have in-edges from `degree` others each, all distinct."""
    indptr = torch.arange(ROWS * (degree + 1) + 1).clamp(max=ROWS) * degree
    weight = None if weights is None else torch.tensor(weights).repeat(ROWS)
    return wb.Graph(indptr, torch.arange(ROWS, ROWS * (degree + 1)), edge_weight=weight)


def picks(sampler: wb.Sampler, graph: wb.Graph, step: int) -> Tensor:
    """Return the offsets of the drawn edges, int64 [ROWS, fanout]."""
    degree = graph.num_edges // ROWS
    return (sampler.draw(graph, torch.arange(ROWS), layer=0, step=step).sources.view(ROWS, -1) - ROWS) % degree


def assert_probability(hits: Tensor, probability: float) -> None:
    assert stats.binomtest(int(hits.sum()), hits.numel(), probability).pvalue > FALSE_ALARM


def correlation(i: int, j: int, kappa: int) -> float:
    """Correlation of the normal variates of steps i < j, of the same group or of neighbouring ones."""
    a, b = i % kappa / kappa, j % kappa / kappa
    if i // kappa == j // kappa:
        return math.cos(math.pi / 2 * (b - a))
    return math.sin(math.pi / 2 * a) * math.cos(math.pi / 2 * b)


SAMPLERS: dict[str, Callable[..., wb.Sampler]] = {
    "NS": wb.NeighborSampler,
    "LABOR-0": partial(wb.LaborSampler, poisson=False),
    "LABOR-*": partial(wb.LaborSampler, poisson=False, importance="*"),
    "NS, replace": partial(wb.NeighborSampler, replace=True),
    "NS, weighted": partial(wb.NeighborSampler, weighted=True),
    "NS, weighted, replace": partial(wb.NeighborSampler, weighted=True, replace=True),
}


@pytest.mark.parametrize("name", ["NS", "LABOR-0", "LABOR-*"])
def test_each_batch_alone_draws_every_subset_with_the_same_probability(name: str) -> None:
    sampler, graph = SAMPLERS[name]([2], dependence=wb.Smoothed(3)), equal_rows(5)
    for step in range(4):
        counts = torch.bincount((1 << picks(sampler, graph, step)).sum(1), minlength=32)
        drawn = counts[counts > 0].tolist()
        assert len(drawn) == math.comb(5, 2)
        assert stats.chisquare(drawn).pvalue > FALSE_ALARM


@pytest.mark.parametrize("importance", [0, 1])
def test_poisson_draws_keep_their_probability_and_follow_the_law(importance: int) -> None:
    """An edge is kept with k/d = 1/2; in two batches with the orthant probability 1/4 + arcsin(ρ)/(2π)."""
    kappa, graph, nodes = 4, equal_rows(2), torch.arange(ROWS)
    sampler = wb.LaborSampler([1], importance=importance, edge_ids=True, dependence=wb.Smoothed(kappa))
    kept = torch.zeros(2 * kappa, graph.num_edges, dtype=torch.bool)
    for step in range(2 * kappa):
        kept[step, sampler.draw(graph, nodes, layer=0, step=step).positions] = True
        assert_probability(kept[step], 1 / 2)
    for i, j in [(0, 1), (0, 3), (1, 2), (3, 4), (2, 5), (1, 5), (0, 4), (3, 7)]:
        assert_probability(kept[i] & kept[j], 1 / 4 + math.asin(correlation(i, j, kappa)) / (2 * math.pi))


@pytest.mark.parametrize("replace", [False, True])
def test_each_batch_alone_follows_the_weights(replace: bool) -> None:
    """P(first i, then j) = w_i/W · w_j/(W - w_i), with replacement w_i/W · w_j/W."""
    weights = torch.tensor([1.0, 2.0, 5.0])
    sampler = wb.NeighborSampler([2], weighted=True, replace=replace, dependence=wb.Smoothed(3))
    share = weights / weights.sum()
    law = share[:, None] * (share if replace else share / (1 - share)[:, None] * (1 - torch.eye(3)))
    for step in (1, 2, 3):
        drawn = picks(sampler, equal_rows(3, weights.tolist()), step)
        counts = torch.bincount(drawn[:, 0] * 3 + drawn[:, 1], minlength=9)
        possible = law.flatten() > 0
        assert int(counts[~possible].sum()) == 0
        expected = law.flatten()[possible].double()
        assert stats.chisquare(counts[possible], expected / expected.sum() * ROWS).pvalue > FALSE_ALARM


@pytest.mark.parametrize("name", SAMPLERS)
def test_two_batches_agree_as_often_as_the_law_says(name: str) -> None:
    """Of two equal edges both batches draw the same one with probability 1 - arccos(ρ)/π: 1 - lag/(2κ) in a group."""
    kappa, graph = 4, equal_rows(2, [1.0, 1.0])
    sampler = SAMPLERS[name]([1], dependence=wb.Smoothed(kappa))
    drawn = [picks(sampler, graph, step) for step in range(2 * kappa)]
    for i, j in [(0, 1), (0, 3), (1, 2), (3, 4), (2, 5), (1, 5), (0, 4), (3, 7)]:
        agreement = 1 - math.acos(correlation(i, j, kappa)) / math.pi
        if i // kappa == j // kappa:
            assert agreement == pytest.approx(1 - (j - i) / (2 * kappa))
        assert_probability(drawn[i] == drawn[j], agreement)


@pytest.mark.parametrize("name", ["NS", "LABOR-0", "LABOR-*"])
def test_nested_batches_of_a_group_draw_the_same_rows(name: str) -> None:
    graph = equal_rows(2)
    sampler = SAMPLERS[name]([1], dependence=wb.Nested(3))
    drawn = [picks(sampler, graph, step) for step in (-3, -1, 0, 2, 3)]
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[2], drawn[3])
    for one, other in [(1, 2), (3, 4)]:
        assert_probability(drawn[one] == drawn[other], 0.5)


def test_nested_batches_read_only_inputs_of_the_large_batch() -> None:
    graph, seeds = random_graph(300, 4000, seed=2), torch.arange(60)
    large = wb.NeighborSampler([3, 3]).sample(graph, seeds, step=5)
    sampler = wb.NeighborSampler([3, 3], dependence=wb.Nested(4))
    for step, part in enumerate(seeds.chunk(4), start=20):
        mb = sampler.sample(graph, part, step=step)
        assert mb.step == step
        assert set(mb.node_ids.tolist()) <= set(large.node_ids.tolist())


@pytest.mark.parametrize("kind", [wb.Smoothed, wb.Nested])
@pytest.mark.parametrize("name", SAMPLERS)
def test_kappa_1_is_independent_and_infinity_one_draw_for_the_run(kind: type, name: str) -> None:
    graph, nodes = random_graph(40, 800, seed=1, edge_weight=torch.float32), torch.arange(40)

    def sources(dependence: wb.Smoothed | wb.Nested | None, step: int) -> list[int]:
        sampler = SAMPLERS[name]([3], dependence=dependence)
        return sampler.draw(graph, nodes, layer=0, step=step).sources.tolist()

    assert all(sources(kind(1), step) == sources(None, step) for step in (-1, 0, 7))
    assert sources(kind(1), 7) != sources(kind(1), 8)
    assert len({tuple(sources(kind(math.inf), step)) for step in (-5, 0, 7, 2**40)}) == 1


@pytest.mark.parametrize("step", range(3))
def test_excluding_an_edge_does_not_move_the_variates_of_others(step: int) -> None:
    """The others keep their order: the row without the edge is the longer one without it."""
    graph, seed = star(12), torch.tensor([0])
    four, five = (wb.NeighborSampler([fanout], dependence=wb.Smoothed(3)) for fanout in (4, 5))
    longer = five.draw(graph, seed, layer=0, step=step).sources.tolist()
    for edge in range(12):
        drawn = four.draw(graph, seed, layer=0, step=step, exclude_edges=torch.tensor([edge])).sources.tolist()
        assert drawn == [source for source in longer if source != edge + 1][:4]


def test_rows_without_a_choice_keep_their_order() -> None:
    sampler = wb.NeighborSampler([5], dependence=wb.Smoothed(3))
    without = torch.tensor([1, 3])
    assert sampler.draw(star(5), torch.tensor([0]), layer=0, step=1).sources.tolist() == [1, 2, 3, 4, 5]
    drawn = sampler.draw(star(7), torch.tensor([0]), layer=0, step=1, exclude_edges=without)
    assert drawn.sources.tolist() == [1, 3, 5, 6, 7]


def test_layers_draw_independently() -> None:
    graph = equal_rows(2)
    sampler = wb.NeighborSampler([1, 1], dependence=wb.Smoothed(3))
    one, other = (sampler.draw(graph, torch.arange(ROWS), layer=layer, step=1).sources for layer in (0, 1))
    assert_probability(one == other, 0.5)


def test_a_number_is_no_dependence() -> None:
    with pytest.raises(TypeError, match=r"dependence is an int; pass Smoothed\(64\), Nested\(64\), or None"):
        wb.NeighborSampler([2], dependence=64)  # pyright: ignore[reportArgumentType]
