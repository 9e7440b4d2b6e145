"""LocalitySampler: a brute-force oracle, both implementations, the published form, refusals."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from scipy import optimize, stats
from torch import Tensor

import workbench as wb
from tests.sampling.stars import FALSE_ALARM, mixtures, rows_of, some_of, star
from tests.sampling.test_neighbor import big_graph
from tests.strategies import examples, graphs, random_graph
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, Variates, variates
from workbench.kernels.hash import mixed_uniform_torch
from workbench.kernels.threads import get_num_threads, set_num_threads
from workbench.placement.locality import draw_local, draw_local_biased, draw_local_torch
from workbench.sampling.labor import row_limits
from workbench.sampling.poisson import Levels
from workbench.sampling.sampler import candidates
from workbench.sampling.typed import group_by_type

KINDS = ("mean", "ratio", "sum")


def random_factors(num_nodes: int, levels: int, seed: int) -> Tensor:
    """A factor per node, one of a few."""
    generator = torch.Generator().manual_seed(seed)
    distinct = torch.rand(levels, generator=generator, dtype=torch.float64) * 20 + 0.3
    return distinct[torch.randint(levels, (num_nodes,), generator=generator)]


def probabilities(factors: list[float], k: int) -> list[float]:
    """min(1, c · φ) whose sum is k, by bisection."""
    if len(factors) <= k:
        return [1.0] * len(factors)
    c: Any = optimize.brentq(lambda c: sum(min(1.0, c * f) for f in factors) - k, 0, k / min(factors) + 1, xtol=1e-15)
    return [min(1.0, c * f) for f in factors]


@given(
    graph=graphs(max_nodes=9, max_edges=60),
    k=st.integers(1, 6),
    levels=st.integers(1, 5),
    seed=st.integers(0, 2**16),
    kind=st.sampled_from(KINDS),
    data=st.data(),
)
def test_brute_force(graph: Graph, k: int, levels: int, seed: int, kind: str, data: st.DataObject) -> None:
    graph = replace(graph, edge_weight=None, edge_type=None)
    factors = random_factors(graph.num_nodes, levels, seed)
    sampler = wb.placement.LocalitySampler([k], factors, weights=kind, edge_ids=True, seed=3)
    nodes = torch.tensor(data.draw(st.permutations(range(graph.num_nodes)))[:4])
    drawn = sampler.draw(graph, nodes, layer=0, step=seed)
    assert drawn.positions is not None and drawn.weight is not None
    units = mixed_uniform_torch(*variates(3, Purpose.SAMPLING, seed), graph.indices.long())
    for i, node in enumerate(nodes.tolist()):
        positions = range(*graph.indptr[node : node + 2].tolist())
        p = dict(zip(positions, probabilities(factors[graph.indices[positions].long()].tolist(), k), strict=True))
        kept = drawn.positions[drawn.indptr[i] : drawn.indptr[i + 1]].tolist()
        assert kept == [e for e in positions if units[e] <= p[e]]
        inverse = [1 / p[e] for e in kept]
        norm = {"sum": 1.0, "mean": len(kept) / max(len(p), 1), "ratio": len(kept) / max(sum(inverse), 1e-9)}[kind]
        expected = torch.tensor([norm * value for value in inverse])
        torch.testing.assert_close(drawn.weight[drawn.indptr[i] : drawn.indptr[i + 1]], expected, rtol=1e-5, atol=0)


@given(
    graph=graphs(max_nodes=9, max_edges=60),
    k=st.integers(1, 6),
    levels=st.integers(1, 4),
    seed=st.integers(0, 2**16),
    kind=st.sampled_from(KINDS),
    stream=mixtures(5),
    by_type=st.booleans(),
)
def test_numba_and_torch_draw_the_same(
    graph: Graph, k: int, levels: int, seed: int, kind: str, stream: Variates, by_type: bool
) -> None:
    excluded = some_of(torch.arange(graph.num_edges), seed)
    rows = candidates(graph, torch.arange(graph.num_nodes), excluded)
    if by_type and graph.edge_type is not None:
        rows = group_by_type(graph, rows, torch.arange(3)).candidates
    limits = torch.arange(len(rows.nodes)) % (k + 2) - 1  # -1: all, 0: none
    found = Levels.of(random_factors(graph.num_nodes, levels, seed))
    ours = draw_local(graph.indices, found, stream, rows, limits, weights=kind, positions=True)
    oracle = draw_local_torch(
        graph.indices, found, stream, rows, row_limits(rows, limits), weights=kind, positions=True
    )
    for mine, other in zip(ours, oracle, strict=True):
        assert mine is not None and other is not None and torch.equal(mine, other)


@pytest.mark.parametrize("biased", [False, True])
def test_any_number_of_threads_draws_the_same(biased: bool) -> None:
    graph, count = replace(big_graph(), edge_weight=None), get_num_threads()
    factors = wb.placement.locality_factors(graph, torch.arange(0, graph.num_nodes, 5), factor=4, hops=1)
    sampler, seeds = wb.placement.LocalitySampler([3, 3], factors, biased=biased), torch.arange(0, graph.num_nodes, 7)
    try:
        batches = [(set_num_threads(threads), sampler.sample(graph, seeds))[1] for threads in (1, 3)]
    finally:
        set_num_threads(count)
    for one, three in zip(batches[0].blocks, batches[1].blocks, strict=True):
        for name, tensor in one._tensors().items():
            other = three._tensors()[name]
            assert tensor is other is None or (tensor is not None and other is not None and torch.equal(tensor, other))


@pytest.mark.parametrize("dependence", [None, wb.Smoothed(4)])
def test_equal_factors_are_labor_0(dependence: wb.Smoothed | None) -> None:
    """Bit for bit the edges of plain Poisson sampling; as ratios, its weights too."""
    graph = replace(big_graph(), edge_weight=None)
    seeds, options = torch.arange(0, graph.num_nodes, 3), {"seed": 2, "dependence": dependence, "edge_ids": True}
    plain = wb.LaborSampler([2, 4], **options).sample(graph, seeds, step=3)
    for kind in KINDS:
        sampler = wb.placement.LocalitySampler([2, 4], torch.ones(graph.num_nodes), weights=kind, **options)
        local = sampler.sample(graph, seeds, step=3)
        assert torch.equal(plain.node_ids, local.node_ids)
        for a, b in zip(plain.blocks, local.blocks, strict=True):
            assert torch.equal(a.indptr, b.indptr) and torch.equal(a.indices, b.indices)
            assert b.edge_weight is not None and (kind != "ratio" or bool((b.edge_weight == 1).all()))


def test_large_fanouts_and_all_neighbours_keep_whole_rows() -> None:
    graph = random_graph(30, 200, seed=1)
    factors = wb.placement.locality_factors(graph, torch.arange(9), factor=8)
    nodes, most = torch.arange(graph.num_nodes), int(graph.in_degrees().max())
    for fanout, biased in itertools.product((most, -1), (False, True)):
        drawn = wb.placement.LocalitySampler([fanout], factors, biased=biased).draw(graph, nodes, layer=0)
        assert torch.equal(drawn.indptr, graph.indptr)
        assert (drawn.weight is None) == biased and (drawn.weight is None or bool((drawn.weight == 1).all()))


def test_the_published_form_follows_the_factors() -> None:
    """P(first i, then j) = φ_i / Φ · φ_j / (Φ − φ_i), of exactly k draws; an excluded edge is never drawn."""
    phi, trials = [1.0, 1.0, 4.0, 2.0], 3000
    factors = torch.tensor([1.0, *phi])
    sampler = wb.placement.LocalitySampler([2], factors, biased=True, edge_ids=True)
    graph, seed = star(4), torch.tensor([0])
    drawn = [tuple(rows_of(sampler.sample(graph, seed, step=step))[0]) for step in range(trials)]
    pairs = list(itertools.permutations(range(1, 5), 2))
    expected = [phi[i - 1] / 8 * phi[j - 1] / (8 - phi[i - 1]) * trials for i, j in pairs]
    assert stats.chisquare([drawn.count(pair) for pair in pairs], expected).pvalue > FALSE_ALARM
    for step in range(20):
        assert 3 not in rows_of(sampler.sample(graph, seed, step=step, exclude_edges=torch.tensor([2])))[0]


@examples(8)
@given(graph=graphs(max_nodes=9, max_edges=60), seed=st.integers(0, 2**16), stream=mixtures(5))
def test_excluding_edges_keeps_the_order_of_arrival_of_the_published_form(
    graph: Graph, seed: int, stream: Variates
) -> None:
    """min(k, candidates) edges are drawn, and excluding some does not change the order of the others."""
    excluded = some_of(torch.arange(graph.num_edges), seed)
    levels = Levels.of(random_factors(graph.num_nodes, 3, seed))
    nodes = torch.arange(graph.num_nodes)
    few = draw_local_biased(graph.indices, levels, stream, candidates(graph, nodes, excluded), 2)
    every = draw_local_biased(graph.indices, levels, stream, candidates(graph, nodes, None), -1)
    assert few.positions is not None and every.positions is not None
    for node in range(graph.num_nodes):
        order = every.positions[every.indptr[node] : every.indptr[node + 1]]
        left = order[~torch.isin(order, excluded)][:2]
        assert torch.equal(few.positions[few.indptr[node] : few.indptr[node + 1]], left)


def test_one_level_may_fill_the_row() -> None:
    """Factors that differ by 2⁴⁰: the boosted edges are certain, the others share the rest of the fanout."""
    factors = torch.tensor([1.0, 2.0**20, 2.0**20, 2.0**-20, 2.0**-20, 2.0**-20, 2.0**-20])
    sums = torch.zeros(6)
    for step in range(400):
        drawn = wb.placement.LocalitySampler([3], factors, edge_ids=True).draw(
            star(6), torch.tensor([0]), layer=0, step=step
        )
        assert drawn.positions is not None
        sums[drawn.positions] += 1
    assert sums[:2].tolist() == [400, 400]
    assert abs(sums[2:].sum() - 400) < 5 * math.sqrt(400 * 0.75)


@pytest.mark.parametrize(
    ("factors", "error", "message"),
    [
        (torch.ones(4), ValueError, r"factors has 4 values, but the graph has 5 nodes.*locality_factors"),
        (torch.ones(5, dtype=torch.int64), TypeError, "factors must be a tensor of torch.float64 or torch.float32"),
        (torch.tensor([1.0, 1, 0, 1, 1]), ValueError, r"factors contains 0\.0 at position 2; .* from 2⁻²⁰ to 2²⁰"),
        (torch.tensor([1.0, math.nan, 1, 1, 1]), ValueError, "factors contains nan at position 1"),
        (torch.arange(1.0, 300.0), ValueError, "factors contains 299 different values; at most 256"),
    ],
)
def test_impossible_factors_are_refused(factors: Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wb.placement.LocalitySampler([2], factors).sample(star(4), torch.tensor([0]))


def test_refusals() -> None:
    with pytest.raises(ValueError, match="weights 'best' is not known; choose from mean, ratio, sum"):
        wb.placement.LocalitySampler([2], torch.ones(5), weights="best")
    broken = Graph(torch.tensor([0, 3, 3]), torch.tensor([0, 7, 1]))
    for kind in ([1.0, 2.0], [1.0, 1.0]):
        with pytest.raises(IndexError, match=r"7.* \[0, 2\)"):
            wb.placement.LocalitySampler([1], torch.tensor(kind)).sample(broken, torch.tensor([0]))
