"""Weighted draws: the law of successive draws, and weights near zero."""

import itertools

import torch
from scipy import stats

from tests.sampling.stars import FALSE_ALARM, draws_of_star, rows_of, star
from workbench.core.graph import Graph
from workbench.sampling.candidates import candidates
from workbench.sampling.neighbor import NeighborSampler
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


def test_weighted_draws_with_replacement() -> None:
    weights = [1.0, 3.0]
    drawn = draws_of_star(NeighborSampler([2], replace=True, weighted=True), star(2, weights), 3000)
    pairs = list(itertools.product((1, 2), repeat=2))
    expected = [weights[i - 1] * weights[j - 1] / 16 * len(drawn) for i, j in pairs]
    assert stats.chisquare([drawn.count(p) for p in pairs], expected).pvalue > FALSE_ALARM


def test_edges_whose_arrival_times_are_infinite_are_drawn() -> None:
    tiny = torch.full((3,), 1e-310, dtype=torch.float64)
    graph = Graph.from_edges([0, 1, 2], [3, 3, 3], num_nodes=4, edge_weight=tiny)
    rows = candidates(graph, torch.tensor([3]), None)
    ours, oracle = (f(graph, rows, 4, replace=True, key=5) for f in (draw_weighted, draw_weighted_torch))
    assert torch.equal(ours.sources, oracle.sources) and set(ours.sources.tolist()) <= {0, 1, 2}
