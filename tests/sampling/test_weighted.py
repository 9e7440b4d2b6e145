"""Weighted draws: the law of successive draws, and weights near zero."""

import itertools
from typing import Any

import pytest
import torch
from scipy import stats

from tests.sampling.stars import FALSE_ALARM, assert_equally_likely, draws_of_star, rows_of, star
from workbench.core.graph import Graph
from workbench.core.randomness import Variates
from workbench.sampling.neighbor import NeighborSampler
from workbench.sampling.sampler import candidates
from workbench.sampling.weighted import draw_weighted, draw_weighted_torch


def test_weighted_draws_follow_the_weights() -> None:
    """Without replacement: P(first i, then j) = w_i/W · w_j/(W - w_i). Weight 0 is never drawn."""
    weights = [1.0, 2.0, 5.0, 0.0]
    total, trials = sum(weights), 4000
    sampler = NeighborSampler([2], weighted=True)
    drawn = draws_of_star(sampler, star(4, weights), trials)
    pairs = list(itertools.permutations(range(1, 4), 2))
    expected = [weights[i - 1] / total * weights[j - 1] / (total - weights[i - 1]) * trials for i, j in pairs]
    assert set(drawn) <= set(pairs)
    assert stats.chisquare([drawn.count(p) for p in pairs], expected).pvalue > FALSE_ALARM
    assert sorted(rows_of(NeighborSampler([9], weighted=True).sample(star(4, weights), torch.tensor([0])))[0]) == [
        1,
        2,
        3,
    ]


@pytest.mark.slow
def test_weighted_draws_with_replacement() -> None:
    weights = [1.0, 3.0]
    drawn = draws_of_star(NeighborSampler([2], replace=True, weighted=True), star(2, weights), 3000)
    pairs = list(itertools.product((1, 2), repeat=2))
    expected = [weights[i - 1] * weights[j - 1] / 16 * len(drawn) for i, j in pairs]
    assert stats.chisquare([drawn.count(p) for p in pairs], expected).pvalue > FALSE_ALARM


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [2, 7, -1])
def test_no_form_draws_an_edge_of_weight_0(fanout: int, replace: bool) -> None:
    """In rows of few or no other edges, too; both forms draw the same."""
    zeros = [[], [0.0], [0.0] * 5, [1.0, 0.0], [0.0, 0.0, 2.0, 0.0, 3.0], [1.0] * 4, [0.0, 1.0] * 6]
    degrees = torch.tensor([len(row) for row in zeros])
    weight = torch.tensor([value for row in zeros for value in row])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    graph = Graph(indptr, torch.arange(len(weight), dtype=torch.int32) % len(zeros), edge_weight=weight)
    rows = candidates(graph, torch.arange(len(zeros)), None)
    options: Any = {"replace": replace and fanout > 0, "variates": Variates(3)}
    ours, oracle = (form(graph, rows, fanout, **options) for form in (draw_weighted, draw_weighted_torch))
    assert ours.positions is not None and oracle.positions is not None
    assert torch.equal(ours.positions, oracle.positions) and torch.equal(ours.indptr, oracle.indptr)
    assert (weight[ours.positions] > 0).all() and len(ours.positions)
    drawable = torch.tensor([sum(value > 0 for value in row) for row in zeros])
    wanted = drawable if fanout < 0 else drawable.clamp(max=fanout)
    assert torch.equal(ours.indptr.diff(), torch.where(drawable > 0, fanout, 0) if options["replace"] else wanted)


def test_edges_whose_arrival_times_are_infinite_are_drawn() -> None:
    tiny = torch.full((3,), 1e-310, dtype=torch.float64)
    graph = Graph.from_edges([0, 1, 2], [3, 3, 3], num_nodes=4, edge_weight=tiny)
    rows = candidates(graph, torch.tensor([3]), None)
    ours, oracle = (f(graph, rows, 4, replace=True, variates=Variates(5)) for f in (draw_weighted, draw_weighted_torch))
    assert torch.equal(ours.sources, oracle.sources) and set(ours.sources.tolist()) <= {0, 1, 2}


def test_excluding_an_edge_does_not_move_the_variates_of_others() -> None:
    """The others keep their order of arrival: the row without the edge is the full order without it."""
    graph, seed = star(12, [1.0 + i % 3 for i in range(12)]), torch.tensor([0])
    few, every = (NeighborSampler([fanout], weighted=True) for fanout in (4, -1))
    order = every.draw(graph, seed, layer=0).sources.tolist()
    assert order != sorted(order)
    for edge in range(12):
        others = [source for source in order if source != edge + 1]
        assert few.draw(graph, seed, layer=0, exclude_edges=torch.tensor([edge])).sources.tolist() == others[:4]


def test_rows_with_equal_weights_draw_independently() -> None:
    """Nodes 0 and 1 have the same number of edges at the same offsets: their joint law is the product."""
    indptr, sources = torch.tensor([0, 3, 6, 6, 6, 6]), torch.tensor([2, 3, 4, 2, 3, 4], dtype=torch.int32)
    graph = Graph(indptr, sources, edge_weight=torch.ones(6))
    sampler = NeighborSampler([1], weighted=True)
    drawn = [tuple(s for (s,) in rows_of(sampler.sample(graph, torch.tensor([0, 1]), step=t))) for t in range(2000)]
    assert_equally_likely(drawn, set(itertools.product((2, 3, 4), repeat=2)))
