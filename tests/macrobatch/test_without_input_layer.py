"""Batches without the input layer are those of the whole sampler without the first block, bit for bit."""

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.sampling.test_contract import SAMPLERS, sampler_for
from tests.strategies import random_graph

GRAPH = random_graph(30, 150, edge_weight=torch.float32, num_edge_types=3)
SEEDS = torch.tensor([3, 29, 0, 11, 7])
WALKS = wb.RandomWalkSampler([3, 2], num_walks=6, seed=4)


def same(a: Tensor | None, b: Tensor | None) -> bool:
    return (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b) and a.dtype == b.dtype)


def assert_equal(short: wb.MiniBatch, whole: wb.MiniBatch) -> None:
    assert torch.equal(short.node_ids, whole.node_ids[: whole.blocks[0].num_dst]) and short.step == whole.step
    assert len(short.blocks) == len(whole.blocks) - 1
    for ours, theirs in zip(short.blocks, whole.blocks[1:], strict=True):
        assert (ours.num_src, ours.num_dst) == (theirs.num_src, theirs.num_dst)
        assert all(same(ours._tensors()[name], values) for name, values in theirs._tensors().items())


@pytest.mark.parametrize("name", SAMPLERS)
def test_it_draws_what_the_sampler_draws_in_the_outer_layers(name: str) -> None:
    sampler = sampler_for(name, GRAPH)
    short = wb.macrobatch.WithoutInputLayer(sampler)
    assert short.num_layers == sampler.num_layers - 1
    assert short.rows_are_independent == sampler.rows_are_independent
    exclude = None if name == "user-defined" else torch.arange(0, GRAPH.num_edges, 4)
    for excluded in (None, exclude):
        whole = sampler.sample(GRAPH, SEEDS, step=9, exclude_edges=excluded)
        assert_equal(short.sample(GRAPH, SEEDS, step=9, exclude_edges=excluded), whole)
    assert whole.num_inputs > whole.blocks[0].num_dst


def test_a_single_layer_leaves_the_seeds() -> None:
    mb = wb.macrobatch.WithoutInputLayer(wb.NeighborSampler([2])).sample(GRAPH, SEEDS)
    assert torch.equal(mb.node_ids, SEEDS) and mb.blocks == () and mb.num_seeds == 5


class OwnSample(wb.Sampler):
    """A sampler that samples its batches otherwise than layer by layer."""

    num_layers, rows_are_independent = 2, True

    def draw(self, *args: object, **options: object) -> wb.sampling.Drawn:
        raise AssertionError

    def sample(
        self, graph: wb.Graph, seeds: Tensor, *, step: int = 0, exclude_edges: Tensor | None = None
    ) -> wb.MiniBatch:
        return SAMPLERS["uniform"].sample(graph, seeds, step=step, exclude_edges=exclude_edges)


def test_the_input_layer_of_other_batches_is_dropped() -> None:
    assert_equal(
        wb.macrobatch.WithoutInputLayer(OwnSample()).sample(GRAPH, SEEDS, step=2),
        OwnSample().sample(GRAPH, SEEDS, step=2),
    )


@pytest.mark.parametrize("sampler", [SAMPLERS["uniform"], WALKS])
def test_cooperating_ranks_sample_it_too(sampler: wb.Sampler) -> None:
    owner = torch.arange(30) % 3
    options = {"owner": owner, "num_ranks": 3, "step": 5}
    ranks = wb.cooperative.batches(GRAPH, SEEDS, sampler=wb.macrobatch.WithoutInputLayer(sampler), **options)
    whole = sampler.sample(GRAPH, SEEDS, step=5)
    assert sorted(torch.cat([mb.node_ids for mb in ranks]).tolist()) == sorted(
        whole.node_ids[: whole.blocks[0].num_dst].tolist()
    )
    assert sum(mb.num_edges for mb in ranks) == whole.blocks[1].num_edges
    assert not hasattr(wb.macrobatch.WithoutInputLayer(SAMPLERS["uniform"]), "draw_owned")


def test_a_cooperative_sampler_wraps_it_instead() -> None:
    owned = wb.sampling.OwnedGraph.of(GRAPH, torch.zeros(30, dtype=torch.int64), 0)
    cooperative = wb.cooperative.CooperativeSampler(SAMPLERS["uniform"], owned)
    with pytest.raises(ValueError, match=r"wrap in the other order: CooperativeSampler\(WithoutInputLayer"):
        wb.macrobatch.WithoutInputLayer(cooperative).sample(owned.graph, SEEDS)
    with pytest.raises(TypeError, match=r"pass a sampler, such as wb\.NeighborSampler"):
        wb.macrobatch.WithoutInputLayer(wb.NeighborSampler)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="layer is 1; it must be a whole number from 0 to 0"):
        wb.macrobatch.WithoutInputLayer(SAMPLERS["uniform"]).draw(GRAPH, SEEDS, layer=1)
