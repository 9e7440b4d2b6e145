"""Inclusion probabilities: against all possible batches of tiny graphs, sampled batches, and numba against torch."""

import random
from itertools import combinations

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

import workbench as wb
from tests.strategies import examples, random_graph
from workbench.placement.access_probability import INCLUSION_METHODS, to_neighbors, to_neighbors_torch


def random_tree(num_nodes: int, seed: int) -> wb.Graph:
    """A tree whose edges point either way: no two directed walks to a node meet again upstream."""
    rng = random.Random(seed)
    pairs = [rng.sample([child, rng.randrange(child)], 2) for child in range(1, num_nodes)]
    return wb.Graph.from_edges([p[0] for p in pairs], [p[1] for p in pairs], num_nodes=num_nodes)


def all_batches(graph: wb.Graph, seeds: list[int], fanouts: list[int], share: float) -> dict[frozenset[int], float]:
    """Probability of every set of inputs, with seeds drawn independently."""
    found: dict[frozenset[int], float] = {}
    for size in range(len(seeds) + 1):
        for chosen in combinations(seeds, size):
            found[frozenset(chosen)] = share**size * (1 - share) ** (len(seeds) - size)
    rows = [graph.indices[a:b].tolist() for a, b in zip(graph.indptr[:-1], graph.indptr[1:], strict=True)]
    for fanout in reversed(fanouts):
        after: dict[frozenset[int], float] = {}
        for nodes, p in found.items():
            drawn = {nodes: p}
            for node in nodes:
                count = len(rows[node]) if fanout < 0 else min(fanout, len(rows[node]))
                subsets = list(combinations(rows[node], count))
                united: dict[frozenset[int], float] = {}
                for reached, q in drawn.items():
                    for subset in subsets:
                        key = reached | frozenset(subset)
                        united[key] = united.get(key, 0.0) + q / len(subsets)
                drawn = united
            for reached, q in drawn.items():
                after[reached] = after.get(reached, 0.0) + q
        found = after
    return found


def by_enumeration(graph: wb.Graph, seeds: list[int], fanouts: list[int], share: float) -> Tensor:
    p = torch.zeros(graph.num_nodes, dtype=torch.float64)
    for nodes, q in all_batches(graph, seeds, fanouts, share).items():
        p[list(nodes)] += q
    return p


@pytest.mark.parametrize("seed", range(12))
def test_exact_on_trees(seed: int) -> None:
    tree, fanouts = random_tree(7, seed), [[2, 1], [1, 1, 2], [1, -1]][seed % 3]
    seeds = random.Random(seed).sample(range(7), 4)
    p = wb.placement.inclusion_probability(tree, torch.tensor(seeds), fanouts=fanouts, batch_size=1)
    torch.testing.assert_close(p, by_enumeration(tree, seeds, fanouts, 1 / 4), rtol=0, atol=1e-12)


def test_one_layer_is_exact_on_any_simple_graph() -> None:
    graph = wb.Graph.from_edges([0, 1, 2, 3, 0, 2, 1], [1, 2, 0, 0, 3, 3, 3])
    p = wb.placement.inclusion_probability(graph, torch.arange(4), fanouts=[2], batch_size=2)
    torch.testing.assert_close(p, by_enumeration(graph, [0, 1, 2, 3], [2], 0.5), rtol=0, atol=1e-12)


def test_hops_and_mass_are_their_formulas() -> None:
    graph = random_graph(20, 60, seed=4)
    seeds, fanouts = torch.arange(0, 20, 2), [3, 2]
    dense = torch.zeros(20, 20, dtype=torch.float64)  # [destination, source], with multi-edges
    rows = torch.repeat_interleave(torch.arange(20), graph.in_degrees())
    dense.index_put_((rows, graph.indices.long()), torch.ones(60, dtype=torch.float64), accumulate=True)
    degrees, start = dense.sum(1), torch.zeros(20, dtype=torch.float64)
    start[seeds] = 0.4
    walk = torch.where(degrees > 0, 1 / degrees, 0.0)[:, None] * dense
    mass = wb.placement.inclusion_probability(graph, seeds, fanouts=fanouts, batch_size=4, method="mass")
    torch.testing.assert_close(mass, start @ walk @ walk, rtol=1e-12, atol=1e-14)
    missed, hop = 1 - start, start
    for fanout in (2, 3):
        share = torch.where(degrees > 0, (fanout / degrees).clamp(max=1), 0.0) * hop
        hop = 1 - ((1 - share)[:, None] ** dense).prod(0)
        missed = missed * (1 - hop)
    hops = wb.placement.inclusion_probability(graph, seeds, fanouts=fanouts, batch_size=4, method="hops")
    torch.testing.assert_close(hops, 1 - missed, rtol=0, atol=1e-12)


def test_presampled_counts_are_shares_of_batches() -> None:
    graph, seeds = random_graph(50, 300, seed=1), torch.arange(0, 50, 3)
    sampler = wb.NeighborSampler([2, 2], seed=9)
    p = wb.placement.inclusion_probability(
        graph, seeds, fanouts=[2, 2], batch_size=5, method="presampled", num_batches=7, sampler=sampler
    )
    for _ in range(4):  # counting again is no loader that repeats its epoch by mistake, and does not warn
        wb.placement.inclusion_probability(
            graph, seeds, fanouts=[2, 2], batch_size=5, method="presampled", num_batches=2, sampler=sampler
        )
    expected = torch.zeros(50, dtype=torch.float64)
    loader = wb.batches(graph, seeds, sampler=sampler, batch_size=5, drop_last=True)  # 3 per epoch
    for _, mb in [*loader, *loader, *loader][:7]:
        expected[mb.node_ids] += 1
    assert torch.equal(p, expected / 7)


def test_near_presampled_counts() -> None:
    graph, seeds = random_graph(400, 3000, seed=2, edge_ids=False), torch.arange(0, 400, 2)
    options = {"fanouts": [4, 4], "batch_size": 10}
    counted = wb.placement.inclusion_probability(graph, seeds, **options, method="presampled", num_batches=1500)
    error = {}
    for method in ("inclusion", "hops"):
        error[method] = float(
            (wb.placement.inclusion_probability(graph, seeds, **options, method=method) - counted).abs().mean()
        )
    assert error["inclusion"] < 0.012 and error["inclusion"] < error["hops"]


@examples(8)
@given(st.integers(1, 30), st.integers(0, 200), st.integers(0, 1000), st.booleans())
def test_both_implementations_agree(num_nodes: int, num_edges: int, seed: int, unite: bool) -> None:
    graph = random_graph(num_nodes, num_edges, seed)
    x = torch.rand(num_nodes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    expected = to_neighbors_torch(graph, x, unite=unite)
    torch.testing.assert_close(to_neighbors(graph, x, unite=unite), expected, rtol=1e-12, atol=1e-12)
    sums = to_neighbors(graph, x.float(), unite=False)  # as sketches do
    torch.testing.assert_close(sums, to_neighbors_torch(graph, x, unite=False).float(), rtol=1e-5, atol=1e-5)


def test_any_number_of_threads(num_threads: int) -> None:
    graph = random_graph(500, 30_000, seed=3)
    p = wb.placement.inclusion_probability(graph, torch.arange(100), fanouts=[5, 5], batch_size=3)
    assert p.min() >= 0 and p.max() <= 1 and 3 < float(p.sum()) < 500
    wb.set_num_threads(1)
    assert torch.equal(p, wb.placement.inclusion_probability(graph, torch.arange(100), fanouts=[5, 5], batch_size=3))
    wb.set_num_threads(num_threads)


def test_the_whole_graph_at_once_is_certain() -> None:
    graph = wb.Graph.from_edges([1, 2, 3], [0, 1, 2], num_nodes=5)
    for method in INCLUSION_METHODS[:2]:
        p = wb.placement.inclusion_probability(graph, torch.tensor([0]), fanouts=[-1, -1], batch_size=9, method=method)
        assert p.tolist() == [1, 1, 1, 0, 0]


def test_bad_input() -> None:
    graph, seeds = random_graph(10, 30), torch.arange(4)

    def call(graph: wb.Graph = graph, seeds: Tensor = seeds, **options: object) -> Tensor:
        given: dict = {"fanouts": [2], "batch_size": 2} | options
        return wb.placement.inclusion_probability(graph, seeds, **given)

    with pytest.raises(ValueError, match="seeds is empty; pass the ids of the training nodes"):
        call(seeds=seeds[:0])
    with pytest.raises(ValueError, match="seeds contains 1 more than once"):
        call(seeds=torch.tensor([1, 1]))
    with pytest.raises(IndexError, match=r"seeds contains 10; ids must be in \[0, 10\)"):
        call(seeds=torch.tensor([10]))
    with pytest.raises(ValueError, match="batch_size is 0; it must be a whole number of at least 1"):
        call(batch_size=0)
    with pytest.raises(
        ValueError, match="method 'exact' is not known; choose from hops, inclusion, mass, presampled, sketched"
    ):
        call(method="exact")
    with pytest.raises(TypeError, match='pass an integer, or method="presampled"'):
        call(fanouts=[{0: 2}])
    with pytest.raises(TypeError, match='pass an integer, or method="presampled"'):
        call(fanouts=[{0: 2}], method="sketched")
    with pytest.raises(ValueError, match="num_batches is 0"):
        call(method="presampled", num_batches=0)
    with pytest.raises(ValueError, match="num_draws is 0"):
        call(method="sketched", num_draws=0)
    with pytest.raises(IndexError, match="indices contains 12; sources must be in"):
        call(graph=wb.Graph(torch.tensor([0, 1] + [1] * 9), torch.tensor([12])))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method"),
    [("ogbn-arxiv", "inclusion"), ("soc-epinions1", "inclusion")]
    + [(name, "sketched") for name in ("ogbn-arxiv", "soc-epinions1", "dblp-2010", "cnr-2000")],
)
def test_buffers_hit_as_often_as_presampled_ones(name: str, method: str) -> None:
    """Within one point on batches that neither has seen; needs the data folder."""
    try:
        data = wb.load_dataset(name, undirected=True, features="degree")
    except FileNotFoundError:
        pytest.skip(f"needs the data set {name}")
    options: dict = {"fanouts": [10, 10], "batch_size": 256}
    counted = wb.placement.inclusion_probability(
        data.graph, data.train_idx, **options, method="presampled", num_batches=1500
    )
    computed = wb.placement.inclusion_probability(data.graph, data.train_idx, **options, method=method, seed=2)
    fresh = wb.placement.inclusion_probability(
        data.graph, data.train_idx, **options, method="presampled", num_batches=200, seed=1
    )
    assert rank_correlation(counted, computed) > 0.93
    for share in (0.05, 0.2):
        assert abs(hit_rate(fresh, computed, share) - hit_rate(fresh, counted, share)) < 0.01


def hit_rate(reads: Tensor, p: Tensor, share: float) -> float:
    """Share of the reads that a buffer of the most probable rows serves."""
    return float(reads[p.argsort(descending=True, stable=True)[: int(share * len(p))]].sum() / reads.sum())


def rank_correlation(p: Tensor, q: Tensor) -> float:
    """Spearman's, ties by id."""
    ranks = [values.argsort(stable=True).argsort().double() for values in (p, q)]
    return float(torch.corrcoef(torch.stack(ranks))[0, 1])


@pytest.mark.parametrize("method", ["inclusion", "hops", "mass"])
def test_memory_is_linear(method: str) -> None:
    def peak(nodes: int, degree: int) -> int:
        ends = torch.randint(nodes, (2, nodes * degree), generator=torch.Generator().manual_seed(1))
        graph = wb.Graph.from_edges(*ends, num_nodes=nodes)
        given: dict = {"fanouts": [5, 5, 5], "batch_size": 100, "method": method}
        return wb.measure_peak(lambda: wb.placement.inclusion_probability(graph, torch.arange(0, nodes, 4), **given))

    assert peak(40_000, 20) <= 2.02 * peak(20_000, 20)
    assert peak(40_000, 20) <= 40_000 * (64 + 4 * 20), "64 bytes per node and 4 per edge, as many as an id has"
