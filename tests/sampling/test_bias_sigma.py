"""The test of bias: calibrated for unbiased samplers, and it finds spoiled weights and the published form."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.strategies import random_graph
from workbench.sampling.aggregate_error import MOST_SIGMAS

SEEDS = torch.arange(0, 300, 5)
BUFFERED = torch.arange(0, 300, 4)


@pytest.fixture(scope="module")
def graph() -> wb.Graph:
    return random_graph(300, 6000, seed=1, edge_ids=False)


@pytest.fixture(scope="module")
def x() -> Tensor:
    """Buffered rows are larger, so that a sampler that prefers them without correction is biased."""
    values = torch.rand(300, 6, generator=torch.Generator().manual_seed(0))
    values[BUFFERED] += 0.5
    return values


class Spoiled(wb.Sampler):
    """A locality-aware sampler whose weights are wrong: those of buffered nodes too large by a share."""

    num_layers, rows_are_independent = 1, True

    def __init__(self, sampler: wb.Sampler, excess: float) -> None:
        self.sampler, self.excess = sampler, excess

    def draw(self, graph: wb.Graph, nodes: Tensor, **options: Any) -> wb.sampling.Drawn:
        drawn = self.sampler.draw(graph, nodes, **options)
        assert drawn.weight is not None
        return drawn._replace(weight=drawn.weight * (1 + self.excess * torch.isin(drawn.sources, BUFFERED)))


def sampler(graph: wb.Graph, **options: Any) -> wb.placement.LocalitySampler:
    return wb.placement.LocalitySampler([4], wb.placement.locality_factors(graph, BUFFERED, factor=8), **options)


def test_unbiased_samplers_pass_and_biased_ones_do_not(graph: wb.Graph, x: Tensor) -> None:
    factors = wb.placement.locality_factors(graph, BUFFERED, factor=8)
    for unbiased in (wb.NeighborSampler([4]), sampler(graph), wb.LadiesSampler([60], factors=factors)):
        assert wb.sampling.bias_sigma(graph, SEEDS, x, sampler=unbiased) < 4
    assert wb.sampling.bias_sigma(graph, SEEDS, x, sampler=sampler(graph, biased=True)) > 8
    assert wb.sampling.bias_sigma(graph, SEEDS, x, sampler=Spoiled(sampler(graph), 0.0)) < 4
    assert wb.sampling.bias_sigma(graph, SEEDS, x, sampler=Spoiled(sampler(graph), 0.2)) > 4


def test_calibrated(graph: wb.Graph, x: Tensor) -> None:
    """One of 20 unbiased samplers deviates by more than 1.96, whatever the projections: 100 trials, 4 deviations."""
    found = [
        wb.sampling.bias_sigma(graph, SEEDS, x, sampler=wb.NeighborSampler([4], seed=seed), draws=20, seed=seed)
        for seed in range(100)
    ]
    share = sum(sigma > 1.96 for sigma in found) / 100
    assert abs(share - 0.05) < 4 * (0.05 * 0.95 / 100) ** 0.5


def test_exact_estimates_and_constant_errors(graph: wb.Graph, x: Tensor) -> None:
    assert wb.sampling.bias_sigma(graph, SEEDS, x, sampler=wb.FullNeighborSampler(1), draws=20) == 0
    everything = wb.placement.LocalitySampler([-1], wb.placement.locality_factors(graph, BUFFERED, factor=8))
    assert wb.sampling.bias_sigma(graph, SEEDS, x, sampler=Spoiled(everything, 0.1), draws=20) == MOST_SIGMAS


def test_rare_misses_of_a_single_neighbour_are_no_bias() -> None:
    """A hub that LADIES misses once in thousands of draws: always drawn here, with a weight just above 1."""
    hub, leaves = torch.zeros(400, dtype=torch.int64), torch.arange(1, 401)
    src = torch.cat([hub, torch.randint(401, 900, (2000,), generator=torch.Generator().manual_seed(0))])
    dst = torch.cat([leaves, torch.randint(1, 101, (2000,), generator=torch.Generator().manual_seed(1))])
    graph, nodes = wb.Graph.from_edges(src, dst, num_nodes=900), torch.arange(1, 401)
    x = torch.rand(900, 3, generator=torch.Generator().manual_seed(2))
    ladies = wb.LadiesSampler([30])
    error = wb.sampling.aggregate_error(graph, nodes, x, sampler=ladies, draws=400)
    assert float(error.deviations[200:].abs().max()) > 8, "nodes that have the hub alone"
    assert wb.sampling.bias_sigma(graph, nodes, x, sampler=ladies) < 4


@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1e6])
def test_the_scale_of_features_does_not_matter(graph: wb.Graph, x: Tensor, scale: float) -> None:
    local = wb.placement.LocalitySampler([4], wb.placement.locality_factors(graph, BUFFERED, factor=8))
    spoiled, fair = Spoiled(local, 0.2), wb.FullNeighborSampler(1)
    for sampler in (spoiled, fair):
        expected = wb.sampling.aggregate_error(graph, SEEDS, x.double(), sampler=sampler, draws=20)
        found = wb.sampling.aggregate_error(graph, SEEDS, x.double() * scale, sampler=sampler, draws=20)
        assert torch.allclose(found.deviations, expected.deviations, rtol=1e-6, atol=1e-6)
        sigmas = [wb.sampling.bias_sigma(graph, SEEDS, x.double() * s, sampler=sampler) for s in (1, scale)]
        assert sigmas[1] == pytest.approx(sigmas[0], rel=1e-6) and (sigmas[0] > 6) == (sampler is spoiled)


def test_bad_input(graph: wb.Graph, x: Tensor) -> None:
    with pytest.raises(ValueError, match="draws is 16; it must be a whole number of at least 17"):
        wb.sampling.bias_sigma(graph, SEEDS, x, sampler=wb.NeighborSampler([4]), draws=16)
    with pytest.raises(ValueError, match="projections is 0"):
        wb.sampling.bias_sigma(graph, SEEDS, x, sampler=wb.NeighborSampler([4]), projections=0)
    with pytest.raises(ValueError, match=r"pass one row per node, \[300, width\]"):
        wb.sampling.bias_sigma(graph, SEEDS, x[:5], sampler=wb.NeighborSampler([4]))
    for value in (torch.nan, torch.inf):  # neither shows that a sampler is unbiased
        with pytest.raises(ValueError, match=f"x contains {value} at position 0"):
            wb.sampling.bias_sigma(graph, SEEDS, torch.full_like(x, value), sampler=wb.NeighborSampler([4]))
    with pytest.raises(TypeError, match="pass a sampler"):
        wb.sampling.bias_sigma(graph, SEEDS, x, sampler=replace(wb.NeighborSampler([4])).draw)  # pyright: ignore[reportArgumentType]
