"""LadiesSampler: a brute-force oracle, both implementations, its law, refusals."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, strategies as st
from scipy import stats
from torch import Tensor

import workbench as wb
from tests.sampling.stars import FALSE_ALARM, mixtures, some_of
from tests.sampling.test_neighbor import big_graph
from tests.strategies import graphs
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, Variates, variates
from workbench.kernels.hash import exponential_torch, hash_index_torch
from workbench.kernels.threads import get_num_threads, set_num_threads
from workbench.sampling import ladies as ladies_draw
from workbench.sampling.ladies import draw_layer_wise
from workbench.sampling.poisson import Levels
from workbench.sampling.sampler import candidates

KINDS = ("mean", "ratio", "sum", "published")


def importances(graph: Graph, nodes: list[int], importance: str, factors: Tensor) -> dict[int, float]:
    """p_t of all candidates, from the definition."""
    p: dict[int, float] = {}
    for node in nodes:
        row = graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist()
        for source in row:
            p[source] = p.get(source, 0.0) + (1.0 if importance == "edges" else 1 / len(row) ** 2)
    return {source: value * float(factors[source]) for source, value in p.items()}


@given(
    graph=graphs(max_nodes=12, max_edges=60),
    n=st.integers(1, 8),
    importance=st.sampled_from(("edges", "squared")),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**16),
    data=st.data(),
)
def test_brute_force(graph: Graph, n: int, importance: str, kind: str, seed: int, data: st.DataObject) -> None:
    graph = replace(graph, edge_weight=None)
    nodes = data.draw(st.permutations(range(graph.num_nodes)))[:5]
    factors = torch.rand(graph.num_nodes, generator=torch.Generator().manual_seed(seed)) + 0.5
    sampler = wb.LadiesSampler([n], importance=importance, factors=factors, weights=kind, edge_ids=True, seed=3)
    drawn = sampler.draw(graph, torch.tensor(nodes), layer=0, step=seed)
    p = importances(graph, nodes, importance, factors)
    of_layer = variates(3, Purpose.SAMPLING, seed)
    arrival = {t: float(exponential_torch(hash_index_torch(of_layer.key, torch.tensor(t)))) / q for t, q in p.items()}
    order = sorted(p, key=lambda t: arrival[t])
    tau = arrival[order[n]] if len(order) > n else math.inf
    inverse = {t: 1 / p[t] if kind == "published" else 1 / (1 - math.exp(-p[t] * tau)) for t in order[:n]}
    for i, node in enumerate(nodes):
        row = graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist()
        kept = [t for t in row if t in inverse]
        mine = slice(*drawn.indptr[i : i + 2].tolist())
        assert drawn.sources[mine].tolist() == kept
        total = sum(inverse[t] for t in kept)
        norm = {"sum": 1.0, "mean": len(kept) / max(len(row), 1)}.get(kind, len(kept) / total if kept else 0.0)
        assert drawn.weight is not None
        expected = torch.tensor([norm * inverse[t] for t in kept])
        torch.testing.assert_close(drawn.weight[mine], expected, rtol=1e-4, atol=0)


@given(
    graph=graphs(max_nodes=12, max_edges=60),
    n=st.integers(-1, 8).filter(bool),
    importance=st.sampled_from(("edges", "squared")),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**16),
    stream=mixtures(5),
    dense=st.booleans(),
)
def test_numba_and_torch_draw_the_same(
    graph: Graph, n: int, importance: str, kind: str, seed: int, stream: Variates, dense: bool
) -> None:
    """Whether sources are numbered by their ids or by first appearance, which decides the graph's size."""
    factors = torch.randint(1, 4, (graph.num_nodes,), generator=torch.Generator().manual_seed(seed)).double()
    excluded = None if dense else some_of(torch.arange(graph.num_edges), seed)
    rows = candidates(graph, torch.arange(0, graph.num_nodes, 2), excluded)
    options = {"num_nodes": graph.num_nodes, "levels": Levels.of(factors), "importance": importance}
    ours = draw_layer_wise(graph.indices, rows, n, weights=kind, variates=stream, **options)
    with pytest.MonkeyPatch.context() as patch:
        for name, other in (("bipartite_layer", "_number_torch"), ("_total", "total_torch"), ("_keep", "keep_torch")):
            patch.setattr(ladies_draw, name, getattr(ladies_draw, other))
        oracle = draw_layer_wise(graph.indices, rows, n, weights=kind, variates=stream, **options)
    for mine, theirs in zip(ours, oracle, strict=True):
        assert mine is not None and theirs is not None and torch.equal(mine, theirs)


def test_any_number_of_threads_draws_the_same() -> None:
    graph, count = replace(big_graph(), edge_weight=None), get_num_threads()
    sampler, seeds = wb.LadiesSampler([2000, 500], importance="squared"), torch.arange(0, graph.num_nodes, 60)
    try:
        batches = [(set_num_threads(threads), sampler.sample(graph, seeds))[1] for threads in (1, 3)]
    finally:
        set_num_threads(count)
    assert torch.equal(batches[0].node_ids, batches[1].node_ids)
    for one, three in zip(batches[0].blocks, batches[1].blocks, strict=True):
        assert one.edge_weight is not None and three.edge_weight is not None
        assert torch.equal(one.indices, three.indices) and torch.equal(one.edge_weight, three.edge_weight)
    new = [block.num_src - block.num_dst for block in batches[0].blocks]
    assert 1500 < new[0] <= 2000 and 450 < new[1] <= 500  # a few of those drawn are destinations


@pytest.mark.slow
def test_draws_are_successive_without_replacement() -> None:
    """P({i, j}) of two draws, each proportional to the edges to the layer among the remaining candidates."""
    graph = Graph.from_edges([2, 3, 3, 4, 4, 4], [0, 0, 1, 0, 1, 1], num_nodes=5)
    p, trials = {2: 1, 3: 2, 4: 3}, 3000
    sampler, counts = wb.LadiesSampler([2]), dict.fromkeys(itertools.combinations(p, 2), 0)
    for step in range(trials):
        drawn = sampler.draw(graph, torch.tensor([0, 1]), layer=0, step=step)
        counts[tuple(sorted(set(drawn.sources.tolist())))] += 1
    total = sum(p.values())
    expected = [trials * p[i] * p[j] / total * (1 / (total - p[i]) + 1 / (total - p[j])) for i, j in counts]
    assert stats.chisquare(list(counts.values()), expected).pvalue > FALSE_ALARM


def test_enough_nodes_keep_all_neighbours() -> None:
    graph = big_graph()
    drawn = wb.LadiesSampler([-1]).draw(graph, torch.arange(99), layer=0)
    assert torch.equal(drawn.indptr, graph.indptr[:100]) and drawn.weight is not None
    assert graph.edge_weight is not None and torch.equal(drawn.weight, graph.edge_weight[: len(drawn.weight)])


@pytest.mark.parametrize("kind", ["ladies", "locality"])
def test_later_changes_of_factors_do_not_count(kind: str) -> None:
    graph, seeds, factors = big_graph(), torch.arange(20), torch.ones(big_graph().num_nodes)

    def new(factors: Tensor) -> wb.Sampler:
        ladies = kind == "ladies"
        return wb.LadiesSampler([5], factors=factors) if ladies else wb.placement.LocalitySampler([2], factors)

    sampler, expected = new(factors), new(factors.clone()).sample(graph, seeds).node_ids
    factors[::2] = 64.0
    assert torch.equal(sampler.sample(graph, seeds).node_ids, expected)
    assert not torch.equal(new(factors).sample(graph, seeds).node_ids, expected)


def test_weights_of_rarely_drawn_nodes_exceed_the_range_of_float16() -> None:
    """One of 200,000 nodes is drawn, so its weight is large; the graph's weights are 1 or 2 in float16."""
    n = 200_000
    weight = (torch.arange(n) % 2 + 1).half()
    graph = Graph.from_edges(torch.arange(n, 2 * n), torch.arange(n), num_nodes=2 * n, edge_weight=weight)
    plain = Graph(graph.indptr, graph.indices)
    sampler = wb.LadiesSampler([1])
    (drawn,), (block,) = (sampler.sample(of, torch.arange(n)).blocks for of in (plain, graph))
    assert drawn.edge_weight is not None and block.edge_weight is not None and block.edge_weight.isfinite().all()
    assert torch.equal(block.edge_weight, drawn.edge_weight * (block.destinations % 2 + 1))
    assert float(block.edge_weight.max()) > torch.finfo(torch.float16).max


def test_refusals() -> None:
    with pytest.raises(ValueError, match="num_nodes is 0"):
        wb.LadiesSampler([0])
    with pytest.raises(TypeError, match=r"num_nodes is 2\.5"):
        wb.LadiesSampler(2.5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="number of layers is 0"):
        wb.LadiesSampler([])
    with pytest.raises(ValueError, match="importance 'touches' is not known; choose from edges, squared"):
        wb.LadiesSampler([2], importance="touches")
    with pytest.raises(ValueError, match="weights 'best' is not known; choose from mean, published, ratio, sum"):
        wb.LadiesSampler([2], weights="best")
    broken = Graph(torch.tensor([0, 2, 2]), torch.tensor([0, 7]))
    with pytest.raises(IndexError, match=r"7.* \[0, 2\)"):
        wb.LadiesSampler([1]).sample(broken, torch.tensor([0]))
    part = wb.sampling.OwnedGraph.of(Graph.from_edges([0], [1]), torch.zeros(2, dtype=torch.int64), 0)
    with pytest.raises(ValueError, match="cooperative sampling needs"):
        wb.cooperative.sample_owned(part, torch.tensor([0]), sampler=wb.LadiesSampler([2]))
