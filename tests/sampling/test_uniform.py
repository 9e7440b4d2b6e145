"""Uniform draws: exact inclusion probabilities, independence, and the torch implementations as oracles."""

import itertools

import pytest
import torch
from hypothesis import given, strategies as st
from scipy import stats

from tests.sampling.stars import FALSE_ALARM, assert_equally_likely, draws_of_star, mixtures, rows_of, star
from tests.strategies import graphs
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, stream
from workbench.sampling.neighbor import NeighborSampler
from workbench.sampling.sampler import candidates
from workbench.sampling.uniform import draw_uniform, draw_uniform_torch
from workbench.sampling.weighted import draw_smallest, draw_smallest_torch, draw_weighted, draw_weighted_torch


@pytest.mark.parametrize(("degree", "fanout"), [(4, 1), (5, 2), (5, 4), (6, 3)])
def test_every_subset_is_equally_likely(degree: int, fanout: int) -> None:
    """The law of the whole set, which is stronger than single and pair inclusion."""
    support = set(itertools.combinations(range(1, degree + 1), fanout))
    drawn = [tuple(sorted(row)) for row in draws_of_star(NeighborSampler([fanout]), star(degree), 3000)]
    assert_equally_likely(drawn, support)


@pytest.mark.parametrize(("degree", "fanout"), [(90, 7), (300, 100)])
def test_single_and_pair_inclusion(degree: int, fanout: int) -> None:
    """P(i drawn) = k/d and P(i and j drawn) = k(k-1)/(d(d-1)), for both implementations of Floyd's algorithm."""
    trials = 2000
    drawn = torch.zeros(trials, degree)
    for step, row in enumerate(draws_of_star(NeighborSampler([fanout], seed=3), star(degree), trials)):
        assert len(set(row)) == fanout
        drawn[step, torch.tensor(row) - 1] = 1
    single = drawn.sum(0).numpy()
    pairs = (drawn.T @ drawn)[tuple(torch.triu_indices(degree, degree, 1))].numpy()
    for counts, chance in ((single, fanout / degree), (pairs, fanout * (fanout - 1) / degree / (degree - 1))):
        threshold = FALSE_ALARM / len(counts)
        low, high = stats.binom.ppf([threshold / 2, 1 - threshold / 2], trials, chance)
        assert low <= counts.min()
        assert counts.max() <= high


def test_with_replacement_every_sequence_is_equally_likely() -> None:
    support = set(itertools.product(range(1, 4), repeat=2))
    assert_equally_likely(draws_of_star(NeighborSampler([2], replace=True), star(3), 3000), support)


@pytest.mark.slow
def test_rows_and_layers_and_steps_are_independent() -> None:
    """The joint law of the draws of two rows, of two layers and of two steps is the product."""
    indptr = torch.tensor([0, 3, 6, 6, 6, 6])
    graph = Graph(indptr, torch.tensor([2, 3, 4, 2, 3, 4], dtype=torch.int32))
    one, two = NeighborSampler([1]), NeighborSampler([1, 1])
    seeds = torch.tensor([0, 1])
    table = {"rows": torch.zeros(3, 3), "steps": torch.zeros(3, 3), "layers": torch.zeros(3, 3)}
    for step in range(2000):
        now, after = (rows_of(one.sample(graph, seeds, step=2 * step + i)) for i in (0, 1))
        deep = two.sample(graph, seeds, step=step)
        table["rows"][now[0][0] - 2, now[1][0] - 2] += 1
        table["steps"][now[0][0] - 2, after[0][0] - 2] += 1
        table["layers"][rows_of(deep, 0)[0][0] - 2, rows_of(deep, 1)[0][0] - 2] += 1
    for counts in table.values():
        assert stats.chisquare(counts.flatten()).pvalue > FALSE_ALARM


@given(
    graph=graphs(max_nodes=9, max_edges=60),
    fanout=st.sampled_from([-1, 1, 2, 5, 70]),
    replace=st.booleans(),
    exclude=st.booleans(),
    seed=st.integers(-(2**63), 2**63 - 1),
    data=st.data(),
)
def test_numba_equals_torch(
    graph: Graph, fanout: int, replace: bool, exclude: bool, seed: int, data: st.DataObject
) -> None:
    nodes = torch.tensor(data.draw(st.permutations(range(graph.num_nodes))), dtype=torch.int64)
    excluded = None
    if exclude:
        excluded = torch.tensor(
            sorted(data.draw(st.sets(st.integers(0, max(0, graph.num_edges - 1))))), dtype=torch.int64
        )
        excluded = excluded[excluded < graph.num_edges]
    rows = candidates(graph, nodes, excluded)
    key = stream(seed, Purpose.SAMPLING)
    pairs = [
        [
            f(rows, graph.indices, fanout, replace=replace, key=key, positions=True)
            for f in (draw_uniform, draw_uniform_torch)
        ]
    ]
    options = {"replace": replace, "variates": data.draw(mixtures(seed))}
    pairs.append([f(graph, rows, fanout, **options) for f in (draw_smallest, draw_smallest_torch)])
    if graph.edge_weight is not None:
        pairs.append([f(graph, rows, fanout, **options) for f in (draw_weighted, draw_weighted_torch)])
    for ours, oracle in pairs:
        assert ours.positions is not None
        assert oracle.positions is not None
        assert torch.equal(ours.indptr, oracle.indptr)
        assert torch.equal(ours.positions, oracle.positions)
        assert torch.equal(ours.sources, oracle.sources)


def test_draws_are_uniform_over_edges_not_excluded() -> None:
    graph, excluded = star(7), torch.tensor([0, 3, 6])
    support: set[tuple[int, ...]] = set(itertools.combinations((2, 3, 5, 6), 2))
    sampler = NeighborSampler([2])
    drawn = [
        tuple(sorted(rows_of(sampler.sample(graph, torch.tensor([0]), step=s, exclude_edges=excluded))[0]))
        for s in range(3000)
    ]
    assert_equally_likely(drawn, support)


def test_all_implementations_of_floyds_algorithm() -> None:
    """Fanouts around the changes of vector length, to scanning and to hashing draw the edges of the torch oracle."""
    for fanout in (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65):
        degrees = torch.tensor([fanout, *range(fanout + 1, fanout + 40), 3 * fanout, 5000])  # many repetitions, or few
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
        graph = Graph(indptr, torch.arange(int(indptr[-1]), dtype=torch.int32) % len(degrees))
        rows = candidates(graph, torch.arange(len(degrees)), None)
        for key in (11, -(2**63)):
            options = {"replace": False, "key": key, "positions": True}
            ours, oracle = (f(rows, graph.indices, fanout, **options) for f in (draw_uniform, draw_uniform_torch))
            assert ours.positions is not None and oracle.positions is not None
            assert ours.positions.unique().numel() == fanout * len(degrees)
            assert torch.equal(ours.positions, oracle.positions)
            assert torch.equal(ours.sources, oracle.sources)


def test_a_huge_fanout_keeps_all_edges() -> None:
    assert rows_of(NeighborSampler([2**40]).sample(star(3), torch.tensor([0]))) == [[1, 2, 3]]
