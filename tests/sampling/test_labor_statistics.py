"""LaborSampler's statistics: inclusion probabilities, unbiased aggregates, expected vertices."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import workbench as wb
from tests.sampling.labor_layers import ROUNDS, inclusion
from tests.sampling.stars import FALSE_ALARM
from tests.strategies import random_graph
from workbench.core.graph import Graph
from workbench.sampling.labor import LaborSampler


@pytest.fixture(scope="module")
def simple() -> Graph:
    """A graph without multi-edges, in which popular sources have many destinations."""
    rng = np.random.default_rng(0)
    dst, src = np.nonzero(rng.random((40, 60)) < np.linspace(1.0, 0.3, 60))
    return Graph.from_edges(src, dst, num_nodes=60)


@pytest.mark.parametrize("importance", [0, 1, "*"])
def test_probabilities_and_unbiased_aggregates(importance: Any, simple: Graph) -> None:
    """P(edge kept) = p; Σ h / p over the kept edges has mean Σ h; the blocks' weights give the mean of h.

    The first two at a false alarm of 1e-6, in 1,000 draws; the third, a ratio of two estimates, within 2 %.
    """
    nodes, trials, k, d = torch.arange(40), 1000, 12, simple.in_degrees()[:40]
    row = torch.repeat_interleave(nodes, d)
    p = inclusion(simple, nodes, k, ROUNDS[importance]) if importance else (k / d.double())[row]
    h = torch.rand(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)[simple.indices.long()] + 0.2
    kept, means = torch.zeros(trials, simple.num_edges, dtype=torch.float64), torch.zeros(40, dtype=torch.float64)
    sampler = LaborSampler([k], importance=importance, edge_ids=True)
    for step in range(trials):
        drawn = sampler.draw(simple, nodes, layer=0, step=step)
        assert drawn.positions is not None
        kept[step, drawn.positions] = 1
        weight = torch.ones(len(drawn.sources)) if drawn.weight is None else drawn.weight
        means.index_add_(
            0, row[drawn.positions], h[drawn.positions] * (weight / drawn.indptr.diff()[row[drawn.positions]])
        )
    alarm = FALSE_ALARM / simple.num_edges / 2
    found, (low, high) = kept.sum(0).numpy(), (stats.binom.ppf(q, trials, p.numpy()) for q in (alarm, 1 - alarm))
    assert (low <= found).all() and (found <= high).all()
    estimates = torch.zeros(trials, 40, dtype=torch.float64).index_add_(1, row, kept * h / p)
    truth = torch.zeros(40, dtype=torch.float64).index_add_(0, row, h)
    error = estimates.std(0) / trials**0.5
    assert bool(((estimates.mean(0) - truth).abs() <= stats.norm.isf(FALSE_ALARM / 80) * error).all())
    torch.testing.assert_close(means / trials, truth / d, rtol=0.02, atol=0)


def test_parallel_edges_are_drawn_with_their_probability_all_or_none() -> None:
    """5 sources of 4 parallel edges each, fanout 5: P(edge kept) = 1/4, and P(row empty) = (3/4)⁵ = 23 %, not (3/4)²⁰.

    Exact binomial tests at a false alarm of 1e-6 in all; in 4,000 draws, errors of 4 % are found.
    """
    graph, trials = Graph.from_edges(torch.arange(1, 6).repeat_interleave(4), torch.zeros(20, dtype=torch.long)), 4000
    kept = drawn_edges(LaborSampler([5], edge_ids=True), graph, trials).view(trials, 5, 4)
    assert torch.equal(kept.amin(2), kept.amax(2))
    counts = [*kept[:, :, 0].sum(0).tolist(), int((kept.sum((1, 2)) == 0).sum())]
    for count, p in zip(counts, [0.25] * 5 + [0.75**5], strict=True):
        assert stats.binomtest(int(count), trials, p).pvalue > FALSE_ALARM / 6


def test_the_mean_over_parallel_edges_is_biased_unless_weighted() -> None:
    """In-edges from nodes 1, 1 and 2, fanout 1: the share of node 1 in a row is 2/3.

    LABOR-0's rows that are not empty are {1, 1}, {1, 1, 2} and {2} with 2/9, 1/9 and 2/9, so that the mean share is
    8/15. z-tests at a false alarm of 1e-6 in all; in 4,000 draws, standard errors are at most 0.02.
    """
    graph, trials = Graph.from_edges([1, 1, 2], [0, 0, 0]), 4000
    options: dict[str, Any] = {"edge_ids": True}
    found = {}
    for name, sampler in {
        "labor": LaborSampler([1], **options),
        "neighbour": wb.NeighborSampler([1], **options),
        "locality": wb.placement.LocalitySampler([1], torch.ones(3), **options),
    }.items():
        kept = drawn_edges(sampler, graph, trials)
        degree = (kept > 0).sum(1)
        share = kept[:, :2].sum(1) / degree.clamp(min=1)
        found[name] = share[degree > 0] if name == "labor" else share  # a weighted row that is empty counts as 0
    for name, expected in {"labor": 8 / 15, "neighbour": 2 / 3, "locality": 2 / 3}.items():
        error = float(found[name].std()) / len(found[name]) ** 0.5
        assert error < 0.02 and abs(float(found[name].mean()) - expected) < stats.norm.isf(FALSE_ALARM / 6) * error
    assert drawn_edges(LaborSampler([1], poisson=False, **options), graph, 200)[:, 1].sum() == 0  # 1 → 0 ties with it


def drawn_edges(sampler: wb.Sampler, graph: Graph, trials: int) -> Tensor:
    """Return the weights of the edges that are drawn for node 0, 1 without weights, 0 if not drawn: [trials, edges]."""
    kept = torch.zeros(trials, graph.num_edges, dtype=torch.float64)
    for step in range(trials):
        drawn = sampler.draw(graph, torch.tensor([0]), layer=0, step=step)
        assert drawn.positions is not None
        kept[step, drawn.positions] = 1.0 if drawn.weight is None else drawn.weight.double()
    return kept


def expected_counts(graph: Graph, destinations: Tensor, k: int) -> tuple[float, float]:
    """Return the exact expectations of LABOR-0's sources and edges, given the destinations of a hop."""
    degrees = graph.in_degrees().double()
    p = torch.zeros(graph.num_nodes, dtype=torch.float64)
    p[destinations] = (k / degrees[destinations]).clamp(max=1)
    reached = p.repeat_interleave(graph.in_degrees())
    reached = torch.zeros_like(p).scatter_reduce_(0, graph.indices.long(), reached, "amax")
    reached[destinations] = 1
    return float(reached.sum()), float(degrees[destinations].clamp(max=k).sum())


def test_every_hop_has_its_expected_counts() -> None:
    """Given a hop's destinations, sources and edges have the means Σ min(1, max k/d) and Σ min(k, d), without bias.

    The differences of all hops are uncorrelated, unlike the counts themselves, and much smaller.
    """
    graph, k, batches = random_graph(1000, 30_000, seed=3), 6, 150
    differences = []
    for step in range(batches):
        batch = LaborSampler([k, k]).sample(graph, torch.arange(step % 25, 1000, 25), step=step)
        for block in batch.blocks:
            sources, edges = expected_counts(graph, batch.node_ids[: block.num_dst], k)
            differences.append((block.num_src / sources - 1, block.num_edges / edges - 1))
    found = np.array(differences).reshape(batches, 4)
    z = found.mean(0) / (found.std(0, ddof=1) / batches**0.5)
    assert np.abs(z).max() < stats.norm.isf(FALSE_ALARM / 8), z
    assert found.std(0).max() / batches**0.5 < 0.006  # a bias of 3.5 % would be found


def test_importance_reaches_fewer_vertices() -> None:
    """Mean input nodes: LABOR-* ≤ LABOR-1 < LABOR-0 < NS, by the margins of the standard errors."""
    graph = random_graph(1000, 30_000, seed=3)
    samplers = [wb.NeighborSampler([5, 5]), *(LaborSampler([5, 5], importance=i) for i in (0, 1, "*"))]
    seeds = torch.arange(0, 1000, 25)
    inputs = np.array([[s.sample(graph, seeds, step=t).num_inputs for t in range(40)] for s in samplers])
    means, errors = inputs.mean(1), inputs.std(1, ddof=1) / 40**0.5
    for fewer, more in ((3, 2), (2, 1), (1, 0)):
        assert means[fewer] < means[more] - 2 * math.hypot(errors[fewer], errors[more])
    together = LaborSampler([5, 5], layer_dependency=True)
    assert np.mean([together.sample(graph, seeds, step=t).num_inputs for t in range(40)]) < means[1] - 2 * errors[1]
