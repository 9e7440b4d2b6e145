"""Legal inputs that few pass: strided, expanded and one-column tensors, weights that are trained, pickles."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

import workbench as wb
from tests.hop_loader import HopLoader
from tests.strategies import random_graph
from workbench.features.memory_rows import MemoryRows

NODES = 40
SEEDS = torch.arange(0, NODES, 3)


@pytest.fixture(scope="module")
def graph() -> wb.Graph:
    return random_graph(NODES, 300)


def drawn(mb: wb.MiniBatch) -> list[list[list[int]]]:
    return [[mb.node_ids.tolist(), block.indptr.tolist(), block.indices.tolist()] for block in mb.blocks]


STRIDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "column": lambda v: torch.stack([v, torch.zeros_like(v)], 1)[:, 0],
    "every third": lambda v: v.repeat_interleave(3)[::3],
}


@pytest.mark.parametrize("how", STRIDED)
@pytest.mark.parametrize(
    "sampler",
    [
        wb.FullNeighborSampler(2),
        wb.NeighborSampler([3, 50]),
        wb.LaborSampler([3, 3]),
        wb.LaborSampler([3, 3], importance=2),
        wb.DenseSampler([3, 50]),
    ],
    ids=repr,
)
def test_a_strided_graph_is_the_same_graph(graph: wb.Graph, how: str, sampler: Any) -> None:
    strided = wb.Graph(STRIDED[how](graph.indptr), STRIDED[how](graph.indices))
    plain = wb.Graph(graph.indptr, graph.indices)
    assert drawn(sampler.sample(strided, SEEDS)) == drawn(sampler.sample(plain, SEEDS))


def test_an_expanded_source_is_every_edges() -> None:
    star = wb.Graph(torch.tensor([0, 0, 3, 6]), torch.zeros(1, dtype=torch.int32).expand(6))
    mb = wb.FullNeighborSampler(1).sample(star, torch.tensor([1, 2]))
    assert mb.node_ids[mb.blocks[0].indices].tolist() == [0] * 6


def test_sources_that_are_no_nodes_are_refused_before_they_are_counted() -> None:
    wrong = wb.Graph(torch.tensor([0, 1, 1, 1]), torch.tensor([7]))
    for call in (
        lambda: wb.partition_graph(wrong, 2),
        lambda: wb.DenseSampler([2], out_fanouts=[2]).sample(wrong, torch.tensor([0])),
    ):
        with pytest.raises(IndexError, match=r"indices contains 7; sources must be in \[0, 3\)"):
            call()


def test_weights_that_are_trained_are_those_of_the_step(graph: wb.Graph) -> None:
    weight = nn.Parameter(torch.rand(graph.num_edges) + 0.5)
    trained = wb.Graph(graph.indptr, graph.indices, edge_weight=weight)
    dense = wb.DenseSampler([3], out_fanouts=[3])
    optimizer = torch.optim.SGD([weight], lr=0.1)
    sums = []
    for _ in range(2):
        optimizer.zero_grad()
        (block,) = dense.sample(trained, SEEDS).blocks
        assert block.edge_weight is not None
        sums.append(float(block.edge_weight.detach().sum()))
        block.edge_weight.sum().backward()
        optimizer.step()
    assert sums[1] < sums[0], "a copy of the first step's would be the same"


@pytest.mark.parametrize("sampler", [wb.NeighborSampler([3], weighted=True), wb.DenseSampler([3], weighted=True)])
def test_draws_by_weights_that_are_trained(graph: wb.Graph, sampler: Any) -> None:
    weight = torch.rand(graph.num_edges)
    plain, trained = (wb.Graph(graph.indptr, graph.indices, edge_weight=w) for w in (weight, nn.Parameter(weight)))
    assert drawn(sampler.sample(trained, SEEDS)) == drawn(sampler.sample(plain, SEEDS))


def test_factors_with_a_gradient(graph: wb.Graph) -> None:
    factors = torch.ones(NODES).masked_fill(torch.arange(NODES) < 9, 4.0)
    plain, trained = (wb.LadiesSampler([8, 8], factors=f) for f in (factors, factors.clone().requires_grad_()))
    assert drawn(trained.sample(graph, SEEDS)) == drawn(plain.sample(graph, SEEDS))


def test_half_precision_weights_of_two_dense_layers(graph: wb.Graph) -> None:
    weighted = wb.Graph(graph.indptr, graph.indices, edge_weight=torch.rand(graph.num_edges).bfloat16())
    single = replace(weighted, edge_weight=torch.as_tensor(weighted.edge_weight).float())
    mb, whole = (wb.DenseSampler([3, 3]).sample(g, SEEDS) for g in (weighted, single))
    for block, other in zip(mb.blocks, whole.blocks, strict=True):
        assert torch.as_tensor(block.edge_weight).float().equal(torch.as_tensor(other.edge_weight))


def test_sums_of_duplicates_beyond_half_precision_are_refused() -> None:
    weight = torch.tensor([4e4, 4e4]).half()
    with pytest.raises(ValueError, match="duplicates summed, contains inf"):
        wb.Graph.from_edges([0, 0], [1, 1], undirected=True, edge_weight=weight)


def test_a_graph_owns_its_types() -> None:
    types = torch.tensor([0, 1])
    graph = wb.Graph.from_edges([0], [1], node_type=types)
    types[0] = 5
    assert torch.as_tensor(graph.node_type).tolist() == [0, 1]


COLUMNS = {
    "numpy's": torch.from_numpy(np.arange(40_000.0)[:, None]),
    "transposed": torch.arange(40_000.0).view(1, -1).T,
}


@pytest.mark.parametrize("name", COLUMNS)
def test_one_column_of_any_stride(name: str) -> None:
    x, ids = COLUMNS[name], torch.arange(39_999, -1, -1)
    assert x.stride() != (1, 1) and x.is_contiguous()
    store = MemoryRows(x)
    assert torch.equal(store.read(ids), x.flip(0)) and store.read(ids[:0]).shape == (0, 1)


def test_targets_of_one_numpy_column_are_trained_on(graph: wb.Graph) -> None:
    x, y = torch.rand(NODES, 4), torch.from_numpy(np.ones(NODES, np.float32)[:, None])
    model = wb.build_model("sage-mean", in_dim=4, hidden_dim=4, out_dim=1, num_layers=1, seed=0)
    mb = wb.NeighborSampler([3]).sample(graph, SEEDS)
    assert wb.train_step(model, mb, x, y, bce, torch.optim.SGD(model.parameters())).isfinite()


def test_rows_with_a_gradient_are_copied_to_an_output() -> None:
    x = torch.rand(9, 2, requires_grad=True)
    for ids in (torch.tensor([8, 1]), torch.arange(9).repeat(9000)):
        out = torch.empty(len(ids), 2)
        assert torch.equal(MemoryRows(x).read(ids, out=out), x.detach()[ids]) and not out.requires_grad


def test_learnt_rows_that_share_memory_are_refused() -> None:
    with pytest.raises(ValueError, match="values is expanded"):
        wb.LearnedRows(torch.zeros(1, 8).expand(5, 8))


def test_groups_of_devices_that_can_be_listed_once() -> None:
    options: dict[str, Any] = {"num_devices": 4, "rows_per_device": 3, "peer_cost": 0.2}
    probability = torch.linspace(0.1, 0.9, 12)
    once: Any = (iter(pair) for pair in ([0, 1], [2, 3]))
    placed = [wb.placement.place_rows(probability, groups=groups, **options) for groups in ([[0, 1], [2, 3]], once)]
    assert [rows.tolist() for rows in placed[0].buffers] == [rows.tolist() for rows in placed[1].buffers]


def test_stores_that_count_can_be_pickled(tmp_path: Any) -> None:
    wb.MappedRows.create(tmp_path / "rows", torch.rand(5, 2))
    traffic = wb.Traffic()
    memory = MemoryRows(torch.rand(5, 2), traffic=traffic)
    for store in (wb.DiskRows(tmp_path / "rows", traffic=traffic), memory):
        store.read(torch.tensor([1]))
        copy = pickle.loads(pickle.dumps(store))
        assert torch.equal(copy.read(torch.arange(5)), store.read(torch.arange(5)))
    assert pickle.loads(pickle.dumps(traffic)).row() == {} != traffic.row(), "another process counts its own"


def test_batches_that_carry_data_of_dgl_can_be_pickled(graph: wb.Graph) -> None:
    blocks = wb.NeighborSampler([3, 3]).sample(graph, SEEDS).to_dgl()
    blocks[0].edata["z"] = torch.rand(blocks[0].num_edges())
    mb = wb.MiniBatch.from_dgl(blocks)
    for batch in (mb, *mb.split(torch.arange(mb.num_seeds) % 2)):
        copy = pickle.loads(pickle.dumps(batch))
        assert torch.equal(copy.to_dgl()[0].edata["z"], batch.to_dgl()[0].edata["z"])


def test_batches_that_carry_data_of_pyg_can_be_pickled(graph: wb.Graph) -> None:
    data = wb.Graph(graph.indptr, graph.indices).to_pyg()
    data.x, data.z = torch.rand(NODES, 2), torch.rand(data.num_edges)
    for batch in HopLoader(data, [300, 300], SEEDS, batch_size=5, shuffle=True):
        mb = wb.MiniBatch.from_pyg(batch)
        copy = pickle.loads(pickle.dumps(mb))
        assert copy.carried is not None and mb.carried is not None
        for ours, theirs in zip(copy.carried.edges(), mb.carried.edges(), strict=True):
            assert torch.as_tensor(ours).equal(torch.as_tensor(theirs))


def test_cuts_into_clusters_are_the_callers() -> None:
    mb = wb.NeighborSampler([3]).sample(random_graph(NODES, 300, 1), SEEDS)
    node_parts = torch.arange(NODES) % 2
    prepared = wb.partition.Partitioner("cluster", node_parts=node_parts).prepare(mb)
    prepared.cut(2).assignment.zero_()
    assert prepared.cut(2).assignment.unique().tolist() == [0, 1]
