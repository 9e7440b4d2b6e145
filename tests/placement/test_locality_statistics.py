"""Locality-aware sampling and LADIES: unbiased aggregates, variances, and movement that falls with the factor."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench.core.graph import Graph

K, DRAWS, BATCHES = 8, 600, 25
BUFFERED = torch.arange(0, 60, 4)


@pytest.fixture(scope="module")
def graph() -> Graph:
    """A graph without multi-edges, in which popular sources have many destinations."""
    rng = np.random.default_rng(0)
    dst, src = np.nonzero(rng.random((40, 60)) < np.linspace(1.0, 0.3, 60))
    return Graph.from_edges(src, dst, num_nodes=60)


@pytest.fixture(scope="module")
def x() -> Tensor:
    """Buffered rows are larger, so that a sampler that prefers them without correction is biased."""
    values = torch.rand(60, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.2
    values[BUFFERED] += 1
    return values


def found(graph: Graph, x: Tensor, sampler: wb.Sampler, draws: int = DRAWS) -> wb.sampling.AggregateError:
    return wb.sampling.aggregate_error(graph, torch.arange(40), x, sampler=sampler, draws=draws)


def locality(graph: Graph, factor: float, **options: Any) -> wb.Sampler:
    return wb.placement.LocalitySampler([K], wb.placement.locality_factors(graph, BUFFERED, factor=factor), **options)


@pytest.mark.parametrize("factor", [4, 64])
def test_aggregates_are_unbiased_within_four_standard_errors(graph: Graph, x: Tensor, factor: float) -> None:
    """And their variance is that of independent draws, Σ h² (1 − P) / P / d², for P from the definition."""
    error = found(graph, x, locality(graph, factor))
    assert float(error.deviations.abs().max()) < 4
    for node in range(0, 40, 10):
        sources = graph.indices[graph.indptr[node] : graph.indptr[node + 1]].long()
        boosted = torch.isin(sources, BUFFERED).double()
        number, d = float(boosted.sum()), len(sources)
        p = boosted * min(1, factor * K / (number * factor + d - number))
        p += (1 - boosted) * ((K - float(p.sum())) / (d - number))
        expected = ((1 - p) / p)[:, None] * (x[sources] / d).square()
        torch.testing.assert_close(error.variance[node], expected.sum(0), rtol=0.35, atol=0)


def test_the_published_form_is_biased_and_ratios_hardly(graph: Graph, x: Tensor) -> None:
    plain = found(graph, x, wb.NeighborSampler([K]), 200)
    published = found(graph, x, locality(graph, 4, biased=True), 200)
    ratio = found(graph, x, locality(graph, 4, weights="ratio"), 200)
    assert float(published.deviations.abs().median()) > 8
    assert published.squared_bias > 0.5 * plain.total_variance
    assert abs(ratio.squared_bias) < 0.1 * published.squared_bias
    assert ratio.total_variance < found(graph, x, locality(graph, 4), 200).total_variance


@pytest.mark.parametrize(("importance", "factor"), [("edges", 4), ("squared", None)])
def test_ladies_is_unbiased_within_four_standard_errors(
    graph: Graph, x: Tensor, importance: str, factor: float | None
) -> None:
    factors = None if factor is None else wb.placement.locality_factors(graph, BUFFERED, factor=factor)
    error = found(graph, x, wb.LadiesSampler([20], importance=importance, factors=factors))
    assert float(error.deviations.abs().max()) < 4


def test_published_weights_of_ladies_are_biased(graph: Graph, x: Tensor) -> None:
    """1 / p takes the draws for independent ones: nodes that are nearly certain count too little."""
    factors = wb.placement.locality_factors(graph, BUFFERED, factor=16)
    error = found(graph, x, wb.LadiesSampler([20], factors=factors, weights="published"), 400)
    assert float(error.deviations.abs().max()) > 8


@pytest.fixture(scope="module")
def data() -> wb.Dataset:
    return wb.load_dataset("synthetic-products", scale=0.002, seed=3)


SAMPLERS = {
    "unbiased": lambda factors: wb.placement.LocalitySampler([5, 5], factors),
    "published": lambda factors: wb.placement.LocalitySampler([5, 5], factors, biased=True),
    "ladies": lambda factors: wb.LadiesSampler([300, 100], factors=factors),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_movement_falls_with_the_factor(name: str, data: wb.Dataset) -> None:
    """Input rows outside the buffer, over the same batches: fewer at every larger f, by 4 standard errors."""
    graph, batch = data.graph, 32
    buffered = graph.in_degrees().argsort(descending=True)[: graph.num_nodes // 10]
    inside = torch.zeros(graph.num_nodes, dtype=torch.bool)
    inside[buffered] = True
    seeds = data.train_idx[: data.train_idx.numel() // batch * batch].view(-1, batch)
    moved = np.zeros((4, BATCHES))
    for i, factor in enumerate((1, 2, 4, 8)):
        sampler = SAMPLERS[name](wb.placement.locality_factors(graph, buffered, factor=factor))
        for step in range(BATCHES):
            mb = sampler.sample(graph, seeds[step % len(seeds)], step=step)
            moved[i, step] = int((~inside[mb.node_ids]).sum())
    fewer = moved[:-1] - moved[1:]
    assert (fewer.mean(1) > 4 * fewer.std(1, ddof=1) / BATCHES**0.5).all(), moved.mean(1)
    assert moved[3].mean() < 0.9 * moved[0].mean()
