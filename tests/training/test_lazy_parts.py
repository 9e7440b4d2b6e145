"""Parts are built when reached, carry the batch's data, and need no more memory than the batch or the native step."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from experiments.performance import dropin
from tests.covering import pairwise
from tests.strategies import random_graph, random_minibatch
from tests.training.toys import toy_batch
from workbench.core.minibatch import MiniBatch
from workbench.interop import graph_to_dgl
from workbench.interop.dgl import resident_bytes
from workbench.meter.peak import measure_peak
from workbench.nn.model import build_model
from workbench.sampling.neighbor import FullNeighborSampler
from workbench.training.adapters import MicroBatches, micro_batches

GRAPH = random_graph(200, 1500, seed=1, edge_weight=torch.float64)
X, Y = torch.randn(200, 6), torch.arange(200) % 4


def dgl_graph() -> Any:
    graph = graph_to_dgl(GRAPH)
    graph.ndata["feat"], graph.ndata["label"] = X, Y
    graph.edata["time"] = torch.arange(1500.0)[:, None].expand(1500, 3).clone()
    return graph


def loaded(graph: Any, **prefetch: list[str]) -> list[Any]:
    dgl = pytest.importorskip("dgl")
    sampler = dgl.dataloading.NeighborSampler([4, 3], **prefetch)
    return next(iter(dgl.dataloading.DataLoader(graph, torch.arange(0, 200, 4), sampler, batch_size=40)))[2]


def is_lazy(frame: Any, name: str) -> bool:
    return frame._columns[name].index is not None


def test_a_part_is_built_when_it_is_reached() -> None:
    mb = toy_batch()
    parts = micro_batches(mb, 3, method="range")
    assert isinstance(parts, MicroBatches) and repr(parts) == "MicroBatches(3 parts, built when reached)"
    assert parts[0] is not parts[0] and torch.equal(parts[0].node_ids, parts[0].node_ids)
    assert torch.equal(parts[-1].seeds, parts[2].seeds) and len(parts[1:]) == 2
    assert torch.equal(parts[1:][0].seeds, parts[1].seeds)
    with pytest.raises(IndexError):
        parts[3]


def test_one_part_is_the_batch_itself() -> None:
    mb = toy_batch()
    (part,) = micro_batches(mb, 1)
    assert part.node_ids is mb.node_ids and torch.equal(part.parent, torch.arange(mb.num_inputs))
    pyg = mb.to_pyg()
    assert micro_batches(pyg, 1)[0] is pyg


def test_columns_of_dgl_are_gathered_when_read_and_equal_the_graphs() -> None:
    dgl = pytest.importorskip("dgl")
    graph = dgl_graph()
    blocks = loaded(graph, prefetch_edge_feats=["time"])
    for part in micro_batches(blocks, 4, method="random"):
        for block in part:
            for frame in block._node_frames:
                assert is_lazy(frame, "feat") and is_lazy(frame, "label")
                assert torch.equal(frame["feat"], X[frame[dgl.NID]]) and torch.equal(frame["label"], Y[frame[dgl.NID]])
            edges = block.edata[dgl.EID]
            assert torch.equal(block.edata["time"], graph.edata["time"][edges])
            assert torch.equal(block.edata["edge_weight"], graph.edata["edge_weight"][edges])
    assert all(is_lazy(frame, "feat") for block in blocks for frame in block._node_frames)


def test_prefetched_columns_are_released_if_the_graph_has_them() -> None:
    dgl = pytest.importorskip("dgl")
    blocks = loaded(dgl_graph(), prefetch_node_feats=["feat"], prefetch_labels=["label"])
    ids, frame = blocks[0].srcdata[dgl.NID], blocks[0]._node_frames[0]
    before = resident_bytes(blocks)
    assert not is_lazy(frame, "feat") and before >= 24 * len(ids)
    parts = micro_batches(blocks, 4, method="random")
    assert is_lazy(frame, "feat") and resident_bytes(blocks) <= before - 24 * len(ids)
    assert torch.equal(parts[0][0].srcdata["feat"], X[parts[0][0].srcdata[dgl.NID]])
    assert torch.equal(blocks[0].srcdata["feat"], X[ids])


def test_columns_that_the_user_changed_are_kept() -> None:
    dgl = pytest.importorskip("dgl")
    blocks = loaded(dgl_graph())
    blocks[0].srcdata["feat"] = -blocks[0].srcdata["feat"]
    blocks[0].srcdata["own"] = torch.arange(blocks[0].num_src_nodes())
    for (first, _), ids in ((part, part[0].srcdata[dgl.NID]) for part in micro_batches(blocks, 3, method="random")):
        assert torch.equal(first.srcdata["feat"], -X[ids])
        assert torch.equal(blocks[0].srcdata[dgl.NID][first.srcdata["own"]], ids)


def test_columns_that_dgl_has_yet_to_fetch_stay_placeholders() -> None:
    dgl = pytest.importorskip("dgl")
    sampler = dgl.dataloading.NeighborSampler([4, 3], prefetch_node_feats=["feat"], prefetch_edge_feats=["edge_weight"])
    blocks = sampler.sample(dgl_graph(), torch.arange(30))[2]
    for part in micro_batches(blocks, 3, method="random"):
        assert isinstance(part[0]._node_frames[0]._columns["feat"], dgl.frame.LazyFeature)


def pyg_batch(mb: MiniBatch) -> Any:
    pytest.importorskip("torch_geometric")
    batch = mb.to_pyg()
    batch.x, batch.y, batch.name = X[mb.node_ids], Y[mb.node_ids], "mine"
    batch.input_id = torch.arange(mb.num_seeds) + 1000
    return batch


def test_parts_of_pyg_carry_attributes_of_nodes_and_seeds() -> None:
    mb = random_minibatch(GRAPH, fanouts=(4, 3), num_seeds=40)
    batch = pyg_batch(mb)
    for part in micro_batches(batch, 3, method="random"):
        assert torch.equal(part.x, X[part.n_id]) and torch.equal(part.y, Y[part.n_id]) and part.name == "mine"
        assert torch.equal(batch.n_id[part.input_id - 1000], part.n_id[: part.batch_size])


@pytest.mark.parametrize("has_adjs", [True, False])
def test_parts_of_pyg_carry_attributes_of_edges(has_adjs: bool) -> None:
    batch = pyg_batch(FullNeighborSampler(2).sample(GRAPH, torch.arange(0, 60, 2)))
    if not has_adjs:
        for name in ("adjs", "adj_weights", "adj_types"):
            delattr(batch, name) if name in batch else None
    ends = torch.stack([batch.n_id[row] for row in batch.edge_index], 1)
    batch.edge_attr = torch.cat([ends, batch.edge_weight[:, None]], 1)
    for part in micro_batches(batch, 3, method="random"):
        expected = torch.stack([part.n_id[row] for row in part.edge_index], 1)
        assert torch.equal(part.edge_attr[:, :2], expected.double())
        assert torch.equal(part.edge_attr[:, 2], part.edge_weight)
        assert torch.equal(part.adj_weights[-1], part.edge_weight[: len(part.adj_weights[-1])])


def test_attributes_of_an_edge_index_that_is_not_the_batch_are_refused() -> None:
    batch = pyg_batch(random_minibatch(GRAPH, fanouts=(4, 3), num_seeds=40))
    batch.edge_index = batch.adjs[-1][0]  # not the samples of the inner layer
    batch.num_sampled_edges = [batch.edge_index.shape[1], 0]
    batch.edge_attr = torch.ones(batch.edge_index.shape[1], 2)
    with pytest.raises(
        ValueError, match=r"edge_attr have a row per edge of edge_index, .* samples of their own; delete"
    ):
        micro_batches(batch, 3, method="random")


def test_one_call_plans_for_a_capacity_in_any_format() -> None:
    pytest.importorskip("dgl")
    model = build_model("sage-mean", in_dim=6, hidden_dim=64, out_dim=4)
    mb = random_minibatch(GRAPH, fanouts=(4, 3), num_seeds=100)
    for batch in (mb, mb.to_dgl(), mb.to_pyg()):
        parts = micro_batches(batch, model=model, memory="150 KiB", method="range")
        assert parts.plan is not None and parts.plan.num_parts == len(parts) > 1
        assert parts.plan.peak_bytes <= 150 * 1024 and type(parts.plan.micro[0]) is type(parts[0])
    assert len(micro_batches(mb, model=model, memory="8GiB")) == 1


@pytest.mark.parametrize("given", [{}, {"num_parts": 2, "memory": 9}, {"model": nn.ReLU()}])
def test_either_a_number_or_a_capacity(given: dict) -> None:
    with pytest.raises(ValueError, match="pass either num_parts, or model and memory"):
        micro_batches(toy_batch(), **given)


@pytest.mark.parametrize(
    ("loop", "features", "num_parts"),
    pairwise(("dgl-sage", "dgl-gat"), ("outside", "graph", "prefetched"), (1, 2, 8)),
)
def test_parts_need_no_more_memory_than_the_batch_or_the_native_step(loop: str, features: str, num_parts: int) -> None:
    pytest.importorskip("dgl")
    sizes = {"power_law": {"num_nodes": 1200, "num_edges": 24_000}, "batch_size": 100, "width": 128, "hidden": 128}
    given: Any = {**sizes, "loop": loop, "features": features, "num_parts": num_parts}
    (row,) = dropin.run(dropin.Config(**given))
    assert row["of_whole"] <= dropin.MOST_OF_WHOLE and row["of_native"] <= dropin.MOST_OF_NATIVE
    assert num_parts > 1 or row["of_whole"] >= 1.0  # it is the same batch; less would be a meter that reads low
    assert num_parts < 8 or row["of_whole"] < 0.95


def test_a_loop_keeps_no_part() -> None:
    """The peak of a loop over many parts is that of one."""
    mb = random_minibatch(random_graph(4000, 20_000, seed=2), fanouts=(4,), num_seeds=2000)
    x = torch.randn(4000, 64)

    def loop(num_parts: int, stop: int) -> None:
        for position, part in enumerate(micro_batches(mb, num_parts, method="range")):
            F.relu(x[part.node_ids])
            if position + 1 == stop:
                return

    assert measure_peak(lambda: loop(8, 8)) <= 1.1 * measure_peak(lambda: loop(8, 2))
