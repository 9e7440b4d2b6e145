"""Sketched access probabilities: unbiased where draws depend on each other, and better buffers in graphs of cliques."""

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.placement.test_inclusion import by_enumeration, hit_rate
from tests.strategies import random_graph
from workbench.placement.access_probability import (
    _probability,
    add_ranks,
    add_ranks_torch,
    pass_ranks,
    pass_ranks_torch,
)


def clique(num_nodes: int) -> tuple[Tensor, Tensor]:
    src, dst = torch.cartesian_prod(torch.arange(num_nodes), torch.arange(num_nodes)).unbind(1)
    return src[src != dst], dst[src != dst]


DRAWS = [1000, pytest.param(4000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("num_draws", DRAWS)
@pytest.mark.parametrize("fanouts", [[2, 1], [-1, 1], pytest.param([1, 2], marks=pytest.mark.slow)])
def test_unbiased_in_a_clique(fanouts: list[int], num_draws: int) -> None:
    """Within about 5 standard errors; the draws that "inclusion" takes as independent make it differ by more."""
    bound = 0.02 * (4000 / num_draws) ** 0.5
    graph, seeds = wb.Graph.from_edges(*clique(5), num_nodes=5), [0, 1, 2]
    expected = by_enumeration(graph, seeds, fanouts, 1 / 3)
    given: dict = {"fanouts": fanouts, "batch_size": 1}
    p = wb.placement.inclusion_probability(graph, torch.tensor(seeds), **given, method="sketched", num_draws=num_draws)
    torch.testing.assert_close(p, expected, rtol=0, atol=bound)
    independent = wb.placement.inclusion_probability(graph, torch.tensor(seeds), **given)
    assert float((independent - expected).abs().max()) > bound


@pytest.mark.parametrize("num_draws", DRAWS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_unbiased_in_directed_graphs_with_multi_edges(seed: int, num_draws: int) -> None:
    """No row has more than 4 in-edges per draw."""
    graph, seeds = random_graph(6, 12, seed=seed), [0, 2, 5]
    given: dict = {"fanouts": [2, 2], "batch_size": 2, "method": "sketched", "num_draws": num_draws}
    p = wb.placement.inclusion_probability(graph, torch.tensor(seeds), **given)
    bound = 0.026 * (4000 / num_draws) ** 0.5
    torch.testing.assert_close(p, by_enumeration(graph, seeds, [2, 2], 2 / 3), rtol=0, atol=bound)


def test_long_rows_pass_on_their_probability() -> None:
    """2 of 4000 neighbours are drawn per layer: 300 draws reach few leaves, but each gets its probability."""
    leaves = torch.arange(1, 4001)
    star = wb.Graph.from_edges(leaves, torch.zeros(4000, dtype=torch.int64), num_nodes=4002)
    given: dict = {"fanouts": [2, 2], "batch_size": 1}
    seeds = torch.tensor([0, 4001])
    exact = wb.placement.inclusion_probability(star, seeds, **given)  # on a tree
    p = wb.placement.inclusion_probability(star, seeds, **given, method="sketched", num_draws=300)
    error = (1 / (14 * 300)) ** 0.5  # of the centre's probability; each leaf's ranks add as much
    assert abs(float(p[leaves].mean() / exact[1]) - 1) < 4 * error
    assert float((p[leaves] / exact[1] - 1).abs().max()) < 8 * error


def test_a_buffer_chosen_among_cliques() -> None:
    """Members of a clique are drawn together, and so read less often than as many independent draws would."""
    src, dst = clique(20)
    first = 20 * torch.arange(60)[:, None]
    apart = torch.randint(1200, (2, 7200), generator=torch.Generator().manual_seed(0)) + 1200
    ends = torch.cat([torch.stack([(src + first).reshape(-1), (dst + first).reshape(-1)]), apart], dim=1)
    graph, seeds = wb.Graph.from_edges(*ends, num_nodes=2400), torch.arange(2400)
    given: dict = {"fanouts": [6, 6], "batch_size": 8}
    counted = wb.placement.inclusion_probability(graph, seeds, **given, method="presampled", num_batches=2000)
    fresh = wb.placement.inclusion_probability(graph, seeds, **given, method="presampled", num_batches=500, seed=1)
    best = hit_rate(fresh, counted, 0.2)
    assert (
        hit_rate(fresh, wb.placement.inclusion_probability(graph, seeds, **given, method="sketched"), 0.2) > best - 0.01
    )
    assert hit_rate(fresh, wb.placement.inclusion_probability(graph, seeds, **given), 0.2) < best - 0.01


def test_nodes_that_no_seed_reaches_and_all_seeds_at_once() -> None:
    path = wb.Graph.from_edges([1, 2, 3], [0, 1, 2], num_nodes=5)
    given: dict = {"fanouts": [-1, -1], "method": "sketched", "num_draws": 50}
    p = wb.placement.inclusion_probability(path, torch.tensor([0]), batch_size=9, **given)
    assert p[3:].tolist() == [0, 0] and float(p[:3].min()) > 0.999
    half = wb.placement.inclusion_probability(path, torch.tensor([0, 4]), batch_size=1, **given)
    torch.testing.assert_close(half, torch.tensor([0.5, 0.5, 0.5, 0, 0.5], dtype=torch.float64), rtol=0.1, atol=0)


def test_other_seeds_and_the_same_result_for_any_number_of_threads(num_threads: int) -> None:
    graph = random_graph(5000, 100_000, seed=3, edge_ids=False)
    given: dict = {"fanouts": [3, 5], "batch_size": 3, "method": "sketched", "num_draws": 2}
    p = wb.placement.inclusion_probability(graph, torch.arange(100), **given)
    wb.set_num_threads(1)
    assert torch.equal(p, wb.placement.inclusion_probability(graph, torch.arange(100), **given))
    wb.set_num_threads(num_threads)
    assert not torch.equal(p, wb.placement.inclusion_probability(graph, torch.arange(100), **given, seed=1))


def test_ranks_that_are_lowered_again_and_again_are_those_of_torch() -> None:
    """Most variates can't lower a rank; the kernel takes no logarithm of them."""
    generator = torch.Generator().manual_seed(0)
    rates = torch.rand(2000, generator=generator, dtype=torch.float64) ** 4 * 10
    ranks, expected = (torch.full((2000, 16), float("inf")) for _ in range(2))
    for key in range(8):
        before = ranks.clone()
        add_ranks(ranks, rates, key)
        add_ranks_torch(expected, rates, key)
        torch.testing.assert_close(ranks, expected, rtol=1e-6, atol=0)
        assert (ranks < before).any() and (key == 0 or (ranks == before).any())


def test_probabilities_of_ranks_are_those_of_their_sums() -> None:
    ranks = -torch.rand(500, 16, generator=torch.Generator().manual_seed(0)).log()
    ranks[0] = float("inf")
    ranks[1] *= 1e-9  # many seeds
    p = _probability(ranks, 0.3)
    expected = 1 - (1 - 0.3 / ranks.double().sum(1)).clamp(min=0) ** 15
    torch.testing.assert_close(p, expected, rtol=1e-12, atol=0)
    assert p[0] == 0 and p[1] == 1 and ((p[2:] > 0) & (p[2:] < 1)).all()


def test_both_implementations_agree() -> None:
    graph = random_graph(50, 300, seed=1)
    rates = torch.rand(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rates[::3] = 0
    ranks, expected = (torch.full((50, 16), float("inf")) for _ in range(2))
    add_ranks(ranks, rates, key=7)
    add_ranks_torch(expected, rates, key=7)
    torch.testing.assert_close(ranks, expected, rtol=1e-6, atol=0)
    given = ranks.clone()
    pass_ranks(ranks, given, graph.indptr, graph.indices)
    pass_ranks_torch(expected, given, graph.indptr, graph.indices)
    torch.testing.assert_close(ranks, expected, rtol=1e-6, atol=0)
    for u in range(50):
        rows = [v for v in range(50) if u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]]
        assert torch.equal(ranks[u], given[[u, *rows]].amin(0))


def test_memory_is_linear() -> None:
    def peak(nodes: int) -> int:
        ends = torch.randint(nodes, (2, nodes * 20), generator=torch.Generator().manual_seed(1))
        graph = wb.Graph.from_edges(*ends, num_nodes=nodes)
        given: dict = {"fanouts": [5, 5, 5], "batch_size": 100, "method": "sketched"}
        return wb.measure_peak(lambda: wb.placement.inclusion_probability(graph, torch.arange(0, nodes, 4), **given))

    assert peak(40_000) <= 2.02 * peak(20_000)
    assert peak(40_000) <= 40_000 * 512, "512 bytes per node: two sketches of 64, and the drawn edges"
