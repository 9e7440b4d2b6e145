"""DENSE: one sample per node, as in the paper's newest-first form; views of one CSR; both directions; memory."""

import tracemalloc
from collections.abc import Callable
from contextlib import contextmanager
from itertools import pairwise

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

import workbench as wb
from tests.sampling.newest_first import NewestFirst
from tests.sampling.stars import FALSE_ALARM, rows_of
from tests.sampling.test_contract import assert_same_batch
from tests.strategies import random_graph
from workbench.core.graph import Graph
from workbench.kernels.relabel import TorchRelabeler
from workbench.kernels.segment import segment_sum_with_self
from workbench.kernels.threads import get_num_threads, set_num_threads
from workbench.sampling import dense as one_sample, neighbor
from workbench.sampling.dense import two_way
from workbench.sampling.uniform import draw_uniform_torch


@pytest.mark.parametrize("fanouts", [[3, 3, 3], [1, 4, 2]], ids=str)
def test_equals_the_newest_first_form(fanouts: list[int]) -> None:
    """Outputs, and gradients of features and weights, of three layers of Algorithm 3 with a linear map each."""
    graph, seeds = random_graph(60, 400, seed=1), torch.tensor([5, 50, 0, 17])
    sampler = wb.DenseSampler(fanouts, seed=4)

    def one_hop(nodes: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        drawn = sampler.draw(graph, nodes, layer=layer, step=7)
        return drawn.sources.long(), drawn.indptr[:-1]

    def train(run: Callable[[Tensor, list[Tensor]], Tensor]) -> list[Tensor]:
        generator = torch.Generator().manual_seed(2)
        x = torch.randn(60, 5, generator=generator, dtype=torch.float64).requires_grad_()
        weights = [torch.randn(5, 5, generator=generator, dtype=torch.float64).requires_grad_() for _ in fanouts]
        out = run(x, weights)
        out.square().sum().backward()
        return [out, *(t.grad for t in (x, *weights) if t.grad is not None)]

    def published(x: Tensor, weights: list[Tensor]) -> Tensor:
        sample = NewestFirst(seeds, len(fanouts), one_hop)
        h = x[sample.node_ids]
        for layer, weight in enumerate(weights):
            h = torch.tanh(sample.layer(h) @ weight)
            if layer + 1 < len(weights):
                sample.shift()
        return h

    def ours(x: Tensor, weights: list[Tensor]) -> Tensor:
        batch = sampler.sample(graph, seeds, step=7)
        h = x[batch.node_ids]
        for block, weight in zip(batch.blocks, weights, strict=True):
            total, own = segment_sum_with_self(block, h)
            h = torch.tanh((total + own) @ weight)
        return h

    results = zip(train(published), train(ours), strict=True)
    assert all(torch.allclose(a, b, rtol=1e-12, atol=1e-12) for a, b in results)
    theirs, batch = NewestFirst(seeds, len(fanouts), one_hop), sampler.sample(graph, seeds, step=7)
    groups = [theirs.node_ids[a:b] for a, b in pairwise([*theirs.node_id_offsets.tolist(), len(theirs.node_ids)])]
    assert torch.equal(torch.cat(groups[::-1]), batch.node_ids)


def test_blocks_are_views_of_one_csr() -> None:
    graph = random_graph(40, 300, seed=2, edge_weight=torch.float64, num_edge_types=3)
    batch = wb.DenseSampler([2] * 4, edge_ids=True).sample(graph, torch.arange(3)).validate()
    for name in ("indptr", "indices", "edge_ids", "edge_weight", "edge_type"):
        arrays = [getattr(block, name) for block in batch.blocks]
        assert len({array.data_ptr() for array in arrays}) == 1
        assert all(torch.equal(outer, inner[: len(outer)]) for inner, outer in pairwise(arrays))
    assert batch.nbytes == batch.blocks[0].nbytes + batch.node_ids.nbytes
    moved = [t for t in batch.to("meta")._tensors().values() if t is not None]
    assert sum(t.untyped_storage().nbytes() for t in {t.untyped_storage()._cdata: t for t in moved}.values()) == (
        batch.nbytes
    )


@pytest.mark.parametrize(
    "options", [{}, {"replace": True}, {"weighted": True}, {"dependence": wb.Smoothed(3)}], ids=lambda o: "".join(o)
)
def test_rows_are_those_of_neighbour_sampling(options: dict) -> None:
    """Bit for bit the rows of its input layer, in every layer, so each has the same probabilities."""
    graph = random_graph(40, 600, seed=3, edge_weight=torch.float64)
    batch = wb.DenseSampler([3] * 3, edge_ids=True, seed=5, **options).sample(graph, torch.arange(2), step=4)
    sampler = wb.NeighborSampler([3], edge_ids=True, seed=5, **options)
    expected = rows_of(sampler.sample(graph, batch.node_ids[: batch.blocks[0].num_dst], step=4))
    for layer, block in enumerate(batch.blocks):
        assert rows_of(batch, layer) == expected[: block.num_dst]


def test_inclusion_probabilities_of_every_hop() -> None:
    """A chain 0 ← 1 ← 2 whose nodes have 8 more in-neighbours each: an edge is drawn with probability 3 / 9."""
    sources = [[1, *range(10, 18)], [2, *range(20, 28)], list(range(30, 39))]
    src = torch.tensor([s for row in sources for s in row])
    graph = Graph.from_edges(src, torch.arange(3).repeat_interleave(9), num_nodes=40)
    counts, reached, trials = torch.zeros(3, 40), torch.zeros(3), 3000
    for step in range(trials):
        batch = wb.DenseSampler([3] * 3).sample(graph, torch.tensor([0]), step=step)
        for node, row in zip(batch.node_ids.tolist(), rows_of(batch, 0), strict=False):
            if node < 3:
                counts[node, row] += 1
                reached[node] += 1
    from scipy import stats

    assert reached[0] == trials
    for node, row in enumerate(sources):
        low, high = stats.binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], int(reached[node]), 1 / 3)
        assert low <= counts[node, row].min() and counts[node, row].max() <= high


@pytest.mark.parametrize(
    ("out_fanouts", "exclude"), [(None, False), (None, True), ([4, 2, 1], True), ([-1, -1, -1], False)], ids=str
)
def test_threads_and_torch_give_the_same_batch(
    out_fanouts: list[int] | None, exclude: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    src, dst = torch.randint(0, 30_000, (2, 300_000), generator=generator)
    graph = Graph.from_edges(src, dst, num_nodes=30_000, edge_type=src % 3)
    sampler, before = wb.DenseSampler([4, 3, 6], out_fanouts=out_fanouts, edge_ids=True), get_num_threads()
    seeds, excluded = torch.arange(0, 30_000, 6), torch.arange(0, 300_000, 7) if exclude else None

    def sample() -> wb.MiniBatch:
        return sampler.sample(graph, seeds, step=3, exclude_edges=excluded)

    try:
        batches = []
        for threads in (1, 2, 5):
            set_num_threads(threads)
            batches.append(sample())
    finally:
        set_num_threads(before)

    @contextmanager
    def torch_relabeler(num_nodes: int, seeds: Tensor):
        yield TorchRelabeler(seeds)

    monkeypatch.setattr(neighbor, "draw_uniform", draw_uniform_torch)
    monkeypatch.setattr(one_sample, "relabeler", torch_relabeler)
    for batch in (*batches[1:], sample()):
        assert_same_batch(batches[0], batch)


def test_memory_of_a_batch_does_not_depend_on_the_size_of_the_graph() -> None:
    """Tensors as the meter counts them, and NumPy's arrays; the map of all nodes exists after the first batch."""

    def peaks(num_nodes: int) -> tuple[int, int]:
        hub = torch.arange(1, 2001)
        graph = Graph.from_edges(hub, (hub - 1) // 8, num_nodes=num_nodes)  # a tree of degree 8
        sampler = wb.DenseSampler([3] * 4, edge_ids=True)

        def sample() -> None:
            sampler.sample(graph, torch.tensor([0]), step=1)

        sample()
        tensors = wb.measure_peak(sample)
        tracemalloc.start()
        try:
            sample()
            return tensors, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    (small, arrays), (large, more_arrays) = peaks(3_000), peaks(3_000_000)
    assert small == large <= 40 * 512
    assert more_arrays <= 1.5 * arrays + 10_000 < 100_000


def test_both_directions_draw_from_the_edges_and_their_reverses() -> None:
    """All neighbours: the rows of the multigraph with reverse edges, whose edges are ordered by direction in a row."""
    graph = random_graph(25, 120, seed=6, edge_weight=torch.float64, num_edge_types=3)
    src = graph.indices.long()
    dst = torch.arange(25).repeat_interleave(graph.in_degrees())
    assert graph.edge_ids is not None and graph.edge_type is not None and graph.edge_weight is not None
    order = graph.edge_ids.argsort()
    values = {"edge_weight": graph.edge_weight[order], "edge_type": graph.edge_type[order]}
    both = Graph.from_edges(src[order], dst[order], num_nodes=25, undirected="multi", num_edge_types=3, **values)
    everything = [-1, -1]
    ours = wb.DenseSampler(everything, out_fanouts=everything, edge_ids=True, num_edge_types=3)
    theirs = wb.DenseSampler(everything, edge_ids=True)
    a, b = (sampler.sample(g, torch.tensor([3, 8])) for sampler, g in ((ours, graph), (theirs, both)))
    for x, y in zip(a.blocks, b.blocks, strict=True):
        assert torch.equal(x.indptr[:3], y.indptr[:3])
        assert edges_of(a, x) == edges_of(b, y)


def edges_of(batch: wb.MiniBatch, block: wb.Block) -> set[tuple[float, ...]]:
    src, dst = batch.node_ids[block.indices.long()], batch.node_ids[block.destinations.long()]
    assert block.edge_ids is not None and block.edge_type is not None and block.edge_weight is not None
    columns = (src, dst, block.edge_ids, block.edge_type, block.edge_weight)
    return set(zip(*(column.tolist() for column in columns), strict=True))


@given(inward=st.sampled_from([1, 2, 5, -1]), outward=st.sampled_from([1, 3, -1]), replaced=st.booleans())
def test_each_direction_has_its_fanout(inward: int, outward: int, replaced: bool) -> None:
    graph = random_graph(20, 90, seed=8)
    sampler = wb.DenseSampler([inward], out_fanouts=[outward], replace=replaced, edge_ids=True)
    batch = sampler.sample(graph, torch.arange(20), exclude_edges=torch.arange(0, 90, 3))
    (block,) = batch.blocks
    assert block.edge_ids is not None
    reverse = block.edge_ids >= graph.num_edges
    assert not ((block.edge_ids % graph.num_edges) % 3 == 0).any()
    edges = two_way(graph, edge_ids=True)
    assert edges.edge_ids is not None
    kept = (edges.edge_ids % graph.num_edges) % 3 != 0
    row = torch.arange(40).repeat_interleave(edges.in_degrees())
    available = torch.bincount(row[kept], minlength=40)
    for direction, fanout, there in ((0, inward, ~reverse), (1, outward, reverse)):
        drawn = torch.bincount(block.destinations[there].long(), minlength=20)
        degrees = available[20 * direction : 20 * (direction + 1)]
        full = degrees if fanout < 0 else (degrees > 0) * fanout if replaced else degrees.clamp(max=fanout)
        assert torch.equal(drawn, full)
    positions = edges.edge_positions(block.edge_ids)
    assert torch.equal(edges.indices[positions].long(), batch.node_ids[block.indices.long()])
    assert torch.equal(row[positions] % 20, batch.node_ids[block.destinations.long()])


@pytest.mark.parametrize("trained", [False, True])
def test_weights_changed_in_place_count(trained: bool) -> None:
    """Weights that are frozen for an evaluation, trained, and frozen again; or just changed."""
    weight = torch.tensor([1.0, 2.0, 3.0])
    graph = Graph.from_edges([1, 2, 3], [0, 0, 0], edge_weight=weight)
    for sampler in (wb.DenseSampler([-1], out_fanouts=[-1]), wb.DenseSampler([-1], out_fanouts=[-1], edge_ids=True)):
        for number in range(3):
            (block,) = sampler.sample(graph, torch.tensor([0])).blocks
            assert block.edge_weight is not None and graph.edge_weight is not None
            assert block.edge_weight[:3].tolist() == graph.edge_weight.tolist()
            graph.edge_weight.requires_grad_(trained and number == 0)
            with torch.no_grad():
                graph.edge_weight.mul_(10)


def test_unequal_fanouts_belong_to_the_hop() -> None:
    graph = random_graph(200, 6000, seed=9)
    batch = wb.DenseSampler([1, 2, 4]).sample(graph, torch.arange(5))
    reached = [0, *(block.num_dst for block in batch.blocks[::-1])]
    degrees = batch.blocks[0].in_degrees()
    for (lo, hi), fanout in zip(pairwise(reached), (4, 2, 1), strict=True):
        expected = graph.in_degrees()[batch.node_ids[lo:hi]].clamp(max=fanout)
        assert torch.equal(degrees[lo:hi], expected)
    assert not wb.DenseSampler([1, 2]).rows_are_independent
    assert not wb.DenseSampler([2, 2], out_fanouts=[1, 2]).rows_are_independent
    assert wb.DenseSampler([2, 2], out_fanouts=[1, 1]).rows_are_independent
    with pytest.raises(ValueError, match="DenseSampler with these options does not"):
        wb.cooperative.batches(
            graph, torch.arange(4), sampler=wb.DenseSampler([1, 2]), owner=torch.arange(200) % 2, num_ranks=2
        )


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"fanouts": []}, ValueError, "pass one per layer"),
        ({"fanouts": [2, 2], "out_fanouts": [2]}, ValueError, "out_fanouts has 1 fanouts, fanouts has 2"),
        ({"fanouts": [2], "out_fanouts": [{0: 1}]}, ValueError, "pass two integers or two mappings"),
        ({"fanouts": [{0: 1}], "out_fanouts": [{0: 1}]}, ValueError, "both name edge type 0.*add n to the types"),
        ({"fanouts": [2], "dependence": 4}, TypeError, "dependence"),
        ({"fanouts": [2], "seed": 2**64}, ValueError, "seed"),
        ({"fanouts": [2], "num_edge_types": 0}, ValueError, "num_edge_types is 0"),
    ],
)
def test_bad_arguments(arguments: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wb.DenseSampler(**arguments)


def test_bad_calls() -> None:
    graph, sampler = random_graph(5, 12), wb.DenseSampler([2, 2], out_fanouts=[1, 1])
    with pytest.raises(ValueError, match="seeds contain 3 more than once"):
        sampler.sample(graph, torch.tensor([3, 3]))
    with pytest.raises(IndexError, match=r"nodes contains 5"):
        sampler.draw(graph, torch.tensor([5]), layer=0)
    with pytest.raises(IndexError, match="exclude_edges contains 12"):
        sampler.sample(graph, torch.tensor([0]), exclude_edges=torch.tensor([12]))
    with pytest.raises(ValueError, match="layer is 2"):
        sampler.draw(graph, torch.tensor([0]), layer=2)
