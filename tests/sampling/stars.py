"""A star graph, whose draws are easy to count, a test of their law, and random subsets of edges."""

import itertools

import torch
from hypothesis import strategies as st
from scipy import stats

import workbench as wb
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, Variates, variates
from workbench.sampling.neighbor import NeighborSampler

FALSE_ALARM = 1e-6  # probability per statistical test; seeds are fixed, so the outcome is reproducible


def mixtures(seed: int) -> st.SearchStrategy[Variates]:
    """One stream of variates, or the mixture of two."""
    return st.integers(0, 3).map(lambda step: variates(seed, Purpose.SAMPLING, step, dependence=wb.Smoothed(4)))


def star(degree: int, weights: list[float] | None = None) -> Graph:
    """Build a graph whose node 0 has in-edges from nodes 1, …, degree."""
    indptr = torch.full((degree + 2,), degree)
    indptr[0] = 0
    weight = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    return Graph(indptr, torch.arange(1, degree + 1, dtype=torch.int32), edge_weight=weight)


def rows_of(mb: wb.MiniBatch, layer: int = -1) -> list[list[int]]:
    """Return the raw sources of every destination of a block."""
    block = mb.blocks[layer]
    raw = mb.node_ids[block.indices.long()].tolist()
    ends = block.indptr.tolist()
    return [raw[a:b] for a, b in itertools.pairwise(ends)]


def draws_of_star(sampler: NeighborSampler, graph: Graph, count: int) -> list[tuple[int, ...]]:
    return [tuple(rows_of(sampler.sample(graph, torch.tensor([0]), step=step))[0]) for step in range(count)]


def some_of(ids: torch.Tensor, seed: int) -> torch.Tensor:
    """Return a random subset of ids, in order."""
    return ids[torch.rand(len(ids), generator=torch.Generator().manual_seed(seed)) < 0.4]


def assert_equally_likely(outcomes: list[tuple[int, ...]], support: set[tuple[int, ...]]) -> None:
    assert set(outcomes) <= support
    counts = [sum(o == s for o in outcomes) for s in sorted(support)]
    assert stats.chisquare(counts).pvalue > FALSE_ALARM
