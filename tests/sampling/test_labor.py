"""LaborSampler: a brute-force oracle, facts that hold for every draw, both implementations."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

import workbench as wb
from tests.sampling import labor_oracle
from tests.sampling.labor_layers import ROUNDS, importance, inclusion, layer_of
from tests.sampling.stars import rows_of
from tests.sampling.test_neighbor import big_graph, same
from tests.strategies import examples, graphs, random_graph
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, Variates, variates
from workbench.kernels.hash import mixed_uniform_torch
from workbench.kernels.threads import get_num_threads, set_num_threads
from workbench.sampling.labor import LaborSampler, draw_shared, draw_shared_torch, row_limits
from workbench.sampling.labor_importance import BipartiteLayer, draw_important, draw_important_torch, importance_torch
from workbench.sampling.sampler import Candidates, candidates

MIXED = Variates(7, 9, math.cos(0.4), math.sin(0.4))


def source_variates(sampler: LaborSampler, sources: Tensor, *, layer: int = 0, step: int = 0) -> Tensor:
    of_layer = variates(sampler.seed, Purpose.SAMPLING, step, layer, sampler.dependence)
    return mixed_uniform_torch(*of_layer, sources.long())


@pytest.mark.parametrize("importance", ROUNDS)
@pytest.mark.parametrize("poisson", [True, False])
@examples(6)
@given(graph=graphs(max_nodes=9, max_edges=60), k=st.integers(1, 4), step=st.integers(-3, 3), data=st.data())
def test_brute_force(importance: Any, poisson: bool, graph: Graph, k: int, step: int, data: st.DataObject) -> None:
    """The same edges as the oracle's, except where a variate is within the oracle's tolerance of its threshold."""
    nodes = torch.tensor(data.draw(st.permutations(range(graph.num_nodes)))[:4])
    sampler = LaborSampler([k], importance=importance, poisson=poisson, edge_ids=True, seed=3)
    drawn = sampler.draw(graph, nodes, layer=0, step=step)
    rows = [graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist() for v in nodes.tolist()]
    p = labor_oracle.inclusion(rows, k, ROUNDS[importance])
    of_layer = variates(3, Purpose.SAMPLING, step)
    for i, row in enumerate(rows):
        mine = slice(*drawn.indptr[i : i + 2].tolist())
        assert drawn.positions is not None
        offsets = (drawn.positions[mine] - graph.indptr[nodes[i]]).tolist()
        assert [row[j] for j in offsets] == drawn.sources[mine].tolist()
        if poisson:
            sure = [j for j in range(len(row)) if abs(labor_oracle.variate(of_layer.key, row[j]) - p[i][j]) > 1e-3]
            expected = labor_oracle.kept(row, p[i], k, of_layer, poisson=True)
            assert [j for j in offsets if j in sure] == [j for j in expected if j in sure]
        elif importance == 0:
            assert offsets == labor_oracle.kept(row, p[i], k, of_layer, poisson=False)
        assert poisson or len(offsets) == min(k, len(row))
        if drawn.weight is not None and offsets:
            inverse = torch.tensor([1 / p[i][j] if importance else 1.0 for j in offsets])
            weight = inverse * len(inverse) / inverse.sum()
            weight = weight if graph.edge_weight is None else weight * graph.edge_weight[drawn.positions[mine]]
            torch.testing.assert_close(drawn.weight[mine].float(), weight.float(), rtol=2e-3, atol=0)


def both(
    rows: Candidates, graph: Graph, k: int, rounds: int | None, num_nodes: int, options: dict[str, Any]
) -> list[wb.sampling.Drawn]:
    if rounds == 0:
        limits = row_limits(rows, k)
        return [
            draw_shared(graph.indices, rows, k, **options),
            draw_shared_torch(graph.indices, rows, limits, **options),
        ]
    return [
        draw_important(rows, graph.indices, k, rounds=rounds, num_nodes=num_nodes, **options),
        draw_important_torch(rows, graph.indices, k, rounds=rounds, **options),
    ]


@pytest.mark.parametrize("rounds", [0, 1, 2, None])
@given(
    graph=graphs(max_nodes=30, max_edges=400),
    k=st.sampled_from([1, 2, 5, 70]),
    poisson=st.booleans(),
    exclude=st.booleans(),
    relabelled=st.booleans(),
    streams=st.sampled_from([Variates(5), MIXED]),
    seed=st.integers(0, 2**16),
)
def test_numba_equals_torch(
    rounds: int | None,
    graph: Graph,
    k: int,
    poisson: bool,
    exclude: bool,
    relabelled: bool,
    streams: Variates,
    seed: int,
) -> None:
    """A layer with few candidates per node of the graph numbers its sources; others use raw ids."""
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randperm(graph.num_nodes, generator=generator)[:8]
    excluded = torch.rand(graph.num_edges, generator=generator).lt(0.3).nonzero()[:, 0] if exclude else None
    rows = candidates(graph, nodes, excluded)
    options = {"poisson": poisson, "variates": streams, "positions": True}
    ours, oracle = both(rows, graph, k, rounds, 10_000 if relabelled else graph.num_nodes, options)
    for name, mine, theirs in zip(ours._fields, ours, oracle, strict=True):
        assert (mine is None) == (theirs is None), name
        assert mine is None or theirs is None or (mine.dtype == theirs.dtype and torch.equal(mine, theirs)), name


@pytest.mark.parametrize("options", [{}, {"poisson": False}, {"importance": 2}, {"importance": "*", "poisson": False}])
def test_threads_do_not_change_the_batch(options: dict) -> None:
    graph, before, results = big_graph(), get_num_threads(), []
    seeds, exclude = torch.arange(0, 30_000, 3), torch.arange(0, 600_000, 7)
    try:
        for threads in (1, 2, 5):
            set_num_threads(threads)
            sampler = LaborSampler([4, 6], edge_ids=True, **options)
            results.append(sampler.sample(graph, seeds, step=5, exclude_edges=exclude))
    finally:
        set_num_threads(before)
    assert same(results[0], results[1])
    assert same(results[0], results[2])


@pytest.mark.cuda
@pytest.mark.parametrize("options", [{}, {"poisson": False}, {"importance": 2}, {"importance": "*"}])
@pytest.mark.parametrize("dependence", [None, wb.Smoothed(4)])
def test_a_gpu_gives_the_same_batch(options: dict, dependence: Any) -> None:
    graph, seeds, exclude = big_graph(3000), torch.arange(0, 3000, 30), torch.arange(0, 60_000, 7)
    sampler = LaborSampler([4, 6], edge_ids=True, dependence=dependence, **options)
    on_cpu = sampler.sample(graph, seeds, step=5, exclude_edges=exclude)
    assert same(on_cpu, sampler.sample(graph.to("cuda"), seeds, step=5, exclude_edges=exclude).to("cpu"))


@pytest.mark.parametrize("dependence", [None, wb.Smoothed(3), wb.Nested(2)])
def test_one_variate_per_source_decides_for_all_destinations(dependence: Any) -> None:
    """An edge is kept if and only if the variate of its source is at most the destination's probability."""
    graph, nodes = random_graph(60, 1500, seed=2), torch.arange(0, 60, 2)
    for rounds, sampler in (
        (0, LaborSampler([4], seed=5, edge_ids=True, dependence=dependence)),
        (2, LaborSampler([4], seed=5, edge_ids=True, dependence=dependence, importance=2)),
    ):
        p = inclusion(graph, nodes, 4, rounds) if rounds else (4 / graph.in_degrees()[nodes]).clamp(max=1)
        row = torch.repeat_interleave(torch.arange(len(nodes)), graph.in_degrees()[nodes])
        p = p if rounds else p[row].double()
        layer = layer_of(graph, nodes)
        positions = torch.cat([torch.arange(*graph.indptr[v : v + 2].tolist()) for v in nodes.tolist()])
        drawn = sampler.draw(graph, nodes, layer=0, step=4)
        r = source_variates(sampler, layer.raw, step=4)
        sure = (r - p).abs() > 1e-5  # Φ⁻¹ and Φ are tables
        assert drawn.positions is not None and int(sure.sum()) > 200
        assert torch.equal((r <= p)[sure], torch.isin(positions, drawn.positions)[sure])


@pytest.mark.parametrize("poisson", [True, False])
def test_kept_sets_are_nested(poisson: bool) -> None:
    """A larger fanout keeps what a smaller one keeps, in every row, and rows with the same sources keep the same."""
    graph, nodes = random_graph(40, 900, seed=1), torch.arange(40)
    before: set[int] = set()
    for fanout in (1, 2, 3, 5, 9, 30):
        drawn = LaborSampler([fanout], poisson=poisson, edge_ids=True).draw(graph, nodes, layer=0, step=3)
        assert drawn.positions is not None
        now = set(drawn.positions.tolist())
        assert before <= now
        before = now
    sources = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    twins = Graph(torch.tensor([0, 50, 100, *[100] * 48]), torch.cat([sources, sources.flip(0)]))
    for i in (0, 1, "*"):
        rows = rows_of(LaborSampler([5], importance=i, poisson=poisson).sample(twins, torch.tensor([0, 1])))
        assert sorted(rows[0]) == sorted(rows[1])


@pytest.mark.parametrize("rounds", [1, 2, 5, None])
@examples(8)
@given(graph=graphs(max_nodes=40, max_edges=900), k=st.integers(1, 12))
def test_every_seed_keeps_the_variance_of_neighbour_sampling(rounds: int | None, graph: Graph, k: int) -> None:
    """|Σ 1/min(1, c · π) - d² / min(k, d)| ≤ 1e-4 relative."""
    nodes = torch.arange(graph.num_nodes)
    inverse, row = 1 / inclusion(graph, nodes, k, rounds), torch.repeat_interleave(nodes, graph.in_degrees())
    sums = torch.zeros(len(nodes), dtype=torch.float64).index_add_(0, row, inverse)
    d = graph.in_degrees().double()
    torch.testing.assert_close(sums, torch.where(d > 0, d * d / d.clamp(1, k), 0), rtol=1e-5, atol=0)


def test_hubs_keep_the_variance_too() -> None:
    """Degrees of three orders of magnitude, where sums in float32 would not reach the tolerance."""
    rng = np.random.default_rng(0)
    degrees = np.array([200_000, 20_000, 11, 10, 3, 0])
    local = torch.from_numpy(np.concatenate([rng.permutation(250_000)[:d] for d in degrees]))
    indptr = torch.from_numpy(np.concatenate([[0], degrees.cumsum()]))
    sources, local = torch.unique(local, return_inverse=True)
    layer = BipartiteLayer.of_csr(indptr, local, sources)
    ours, oracle = importance(layer, 10, None), importance_torch(layer, 10, None)
    assert torch.equal(ours.rho, oracle.rho) and torch.equal(ours.x[:5], oracle.x[:5])
    for i, d in enumerate(degrees[:5].tolist()):
        inverse = (ours.rho[local[indptr[i] : indptr[i + 1]]] * ours.x[i]).clamp(min=1)
        assert abs(float(inverse.sum()) / (d * d / min(d, 10)) - 1) < 1e-5


@pytest.mark.parametrize("importance", [0, 1, "*"])
@pytest.mark.parametrize("poisson", [True, False])
def test_a_fanout_of_every_degree_gives_full_neighbourhoods(importance: Any, poisson: bool) -> None:
    graph = random_graph(30, 200, seed=4)
    seeds, most = torch.tensor([3, 0, 7]), int(graph.in_degrees().max())
    full = wb.FullNeighborSampler(2).sample(graph, seeds)
    for fanout in (most, -1, 2**40):
        batch = LaborSampler([fanout, fanout], importance=importance, poisson=poisson).sample(graph, seeds)
        assert torch.equal(batch.node_ids, full.node_ids)
        for ours, theirs in zip(batch.blocks, full.blocks, strict=True):
            assert torch.equal(ours.indptr, theirs.indptr) and torch.equal(ours.indices, theirs.indices)
            assert ours.edge_weight is None or bool((ours.edge_weight == 1).all())


def test_weights() -> None:
    """Mean 1 in every row; multiplied by the graph's; LABOR-0 gives the graph's alone, or none."""
    plain, weighted = random_graph(40, 900, seed=1), random_graph(40, 900, seed=1, edge_weight=torch.float64)
    nodes = torch.arange(40)
    assert LaborSampler([3]).draw(plain, nodes, layer=0).weight is None
    for poisson in (True, False):
        sampler = LaborSampler([3], importance=2, poisson=poisson, edge_ids=True)
        one, two = (sampler.draw(graph, nodes, layer=0) for graph in (plain, weighted))
        assert one.weight is not None and two.weight is not None and weighted.edge_weight is not None
        assert one.weight.dtype == torch.float32 and two.weight.dtype == torch.float64
        counts = one.indptr.diff()
        sums = torch.zeros(40).index_add_(0, torch.repeat_interleave(nodes, counts), one.weight)
        torch.testing.assert_close(sums, counts.float())
        assert len(one.weight.unique()) > 20
        torch.testing.assert_close(two.weight, one.weight * weighted.edge_weight[two.positions])
    zero = LaborSampler([3]).draw(weighted, nodes, layer=0)
    assert zero.weight is not None and weighted.edge_weight is not None
    assert torch.equal(zero.weight, weighted.edge_weight[zero.positions])


def test_layers_and_steps_share_variates_where_told() -> None:
    graph, nodes = random_graph(60, 1500, seed=2), torch.arange(60)

    def kept(layer: int, step: int, **options: Any) -> list[int]:
        return LaborSampler([4, 4], **options).draw(graph, nodes, layer=layer, step=step).sources.tolist()

    assert kept(0, 0) != kept(1, 0) and kept(0, 0) != kept(0, 1)
    assert kept(0, 5, layer_dependency=True) == kept(1, 5, layer_dependency=True) != kept(0, 6, layer_dependency=True)
    for rounds in (0, 1):
        nested = {"dependence": wb.Nested(3), "importance": rounds}
        assert kept(0, 3, **nested) == kept(0, 5, **nested) != kept(0, 6, **nested)
        whole = {"dependence": wb.Smoothed(math.inf), "importance": rounds}
        assert kept(1, 0, **whole) == kept(1, 10**9, **whole)


@pytest.mark.parametrize("options", [{}, {"poisson": False}, {"importance": 1}])
def test_smoothed_batches_change_slowly(options: dict) -> None:
    """Neighbouring batches of a group share most edges; each keeps as many as an independent one."""
    graph, nodes = random_graph(300, 9000, seed=2), torch.arange(0, 300, 3)
    sampler = LaborSampler([4], edge_ids=True, dependence=wb.Smoothed(16), **options)
    sets = [set(sampler.draw(graph, nodes, layer=0, step=s).positions.tolist()) for s in (0, 1, 8, 16, 40)]  # pyright: ignore[reportOptionalMemberAccess]
    assert len(sets[0] & sets[1]) > 0.8 * len(sets[0]) > len(sets[0] & sets[2]) > 0.15 * len(sets[0])
    assert len(sets[0] & sets[4]) < 0.5 * len(sets[0])
    assert max(map(len, sets)) < 1.25 * min(map(len, sets))
