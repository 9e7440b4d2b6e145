"""Micro-batches for training loops of one's own: in DGL's form, in PyG's and in the library's."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.strategies import random_graph, random_minibatch
from tests.training.toys import gradients, relative_difference, toy_batch
from workbench.core.minibatch import MiniBatch
from workbench.interop import graph_to_dgl
from workbench.kernels.threads import get_num_threads, run_tasks, set_num_threads
from workbench.nn.model import build_model
from workbench.partition.batch import partition_batch
from workbench.training.adapters import micro_batches
from workbench.training.step import train_step

NUM_NODES, CLASSES = 200, 4
GRAPH = random_graph(NUM_NODES, 1500, seed=1, edge_weight=torch.float64)
X = torch.linspace(-9, 9, NUM_NODES * 6, dtype=torch.float64).sin().view(NUM_NODES, 6)
Y = torch.arange(NUM_NODES) % CLASSES
TRAIN = torch.arange(0, NUM_NODES, 2)


def test_a_mini_batch_gives_mini_batches() -> None:
    mb = toy_batch()
    micro = micro_batches(mb, 4, method="random", seed=7)
    expected = mb.split(partition_batch(mb, 4, method="random", seed=7))
    assert len(micro) == 4
    assert all(torch.equal(part.node_ids, other.node_ids) for part, other in zip(micro, expected, strict=True))


def test_the_last_batch_of_an_epoch_may_be_small() -> None:
    assert [part.num_seeds for part in micro_batches(toy_batch(num_seeds=3), 8, method="random")] == [1, 1, 1]
    assert list(micro_batches(toy_batch(num_seeds=0), 8)) == []


def test_other_things_are_refused() -> None:
    with pytest.raises(TypeError, match="can't split a Tensor"):
        micro_batches(torch.ones(3), 2)


class PygStyle(nn.Module):
    """Convolutions over `edge_index`, as PyG's examples write them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(12, 8), nn.Linear(16, CLASSES)]).double()

    def forward(self, x: Tensor, adjs: list) -> Tensor:
        for layer, (edge_index, _, (_, num_targets)) in zip(self.layers, adjs, strict=True):
            summed = x.new_zeros(num_targets, x.shape[1]).index_add(0, edge_index[1], x[edge_index[0]])
            x = layer(torch.cat([x[:num_targets], summed], dim=1)).tanh()
        return x


def test_pyg_batches_train_as_a_whole() -> None:
    batch = random_minibatch(GRAPH, fanouts=(4, 3), num_seeds=40).to_pyg()
    model = PygStyle()
    F.cross_entropy(model(X[batch.n_id], batch.adjs), Y[batch.n_id[: batch.batch_size]]).backward()
    expected = gradients(model)
    model.zero_grad()
    parts = micro_batches(batch, 5, method="random")
    for part in parts:
        out = model(X[part.n_id], part.adjs)
        loss = F.cross_entropy(out, Y[part.n_id[: part.batch_size]], reduction="sum") / batch.batch_size
        loss.backward()
    assert len(parts) == 5
    assert relative_difference(gradients(model), expected) <= 1e-10


class DglModel(nn.Module):
    """Two of DGL's own layers, with edge weights where they take them."""

    def __init__(self, kind: str) -> None:
        dgl_nn = pytest.importorskip("dgl.nn")
        super().__init__()
        self.weighted = kind != "gat"
        if kind == "gat":
            first, second = dgl_nn.GATConv(6, 4, 2), dgl_nn.GATConv(8, CLASSES, 1)
        elif kind == "gcn":
            first, second = (
                dgl_nn.GraphConv(*dims, norm="right", allow_zero_in_degree=True) for dims in ((6, 8), (8, CLASSES))
            )
        else:
            first, second = dgl_nn.SAGEConv(6, 8, kind), dgl_nn.SAGEConv(8, CLASSES, kind)
        self.layers = nn.ModuleList([first, second]).double()

    def forward(self, blocks: list, h: Tensor) -> Tensor:
        for layer, block in zip(self.layers, blocks, strict=True):
            h = layer(block, h, edge_weight=block.edata["edge_weight"]) if self.weighted else layer(block, h)
            h = h.flatten(1).tanh()
        return h


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["mean", "pool", "gcn", "gat"])
def test_a_training_loop_of_dgl_is_exact(kind: str, workers: int) -> None:
    dgl = pytest.importorskip("dgl")
    model = DglModel(kind)
    graph = graph_to_dgl(GRAPH)
    graph = graph if kind != "gat" else dgl.add_self_loop(graph)
    sampler = dgl.dataloading.NeighborSampler([4, 3], prefetch_edge_feats=["edge_weight"] * model.weighted)
    loader = dgl.dataloading.DataLoader(graph, TRAIN, sampler, batch_size=40, num_workers=workers)
    batches = 0
    for _, seeds, blocks in loader:
        model.zero_grad()
        whole = F.cross_entropy(model(blocks, X[blocks[0].srcdata[dgl.NID]]), Y[seeds])
        whole.backward()
        expected = gradients(model)
        model.zero_grad()
        total = 0.0
        for part in micro_batches(blocks, 4, method="random"):
            out = model(part, X[part[0].srcdata[dgl.NID]])
            loss = F.cross_entropy(out, Y[part[-1].dstdata[dgl.NID]], reduction="sum") / len(seeds)
            loss.backward()
            total += float(loss.detach())
        assert relative_difference(gradients(model), expected) <= 1e-10
        assert total == pytest.approx(float(whole.detach()), rel=1e-10)
        batches += 1
    assert batches == 3


def test_data_of_nodes_and_edges_goes_along() -> None:
    dgl = pytest.importorskip("dgl")
    graph = graph_to_dgl(GRAPH)
    graph.ndata["feat"], graph.ndata["label"] = X, Y
    sampler = dgl.dataloading.NeighborSampler([4, 3], prefetch_node_feats=["feat"], prefetch_labels=["label"])
    _, _, blocks = next(iter(dgl.dataloading.DataLoader(graph, TRAIN, sampler, batch_size=30)))
    src, dst = (torch.empty(GRAPH.num_edges, dtype=torch.int64) for _ in range(2))
    src[graph.edges(order="eid", form="eid")], dst[graph.edges(order="eid", form="eid")] = graph.edges(order="eid")
    for part in micro_batches(blocks, 4, method="random"):
        assert torch.equal(part[0].srcdata["feat"], X[part[0].srcdata[dgl.NID]])
        assert torch.equal(part[-1].dstdata["label"], Y[part[-1].dstdata[dgl.NID]])
        for block in part:
            (local_src, local_dst), edges = block.edges(), block.edata[dgl.EID]
            assert torch.equal(block.srcdata[dgl.NID][local_src], src[edges])
            assert torch.equal(block.dstdata[dgl.NID][local_dst], dst[edges])


def test_workers_fork_after_the_librarys_threads_ran() -> None:
    dgl = pytest.importorskip("dgl")
    before = get_num_threads()
    set_num_threads(2)
    try:
        run_tasks([lambda: None] * 4)  # the pool's threads are there now, and not in the workers
        model = build_model("sage-mean", in_dim=6, hidden_dim=8, out_dim=CLASSES).double()
        optimizer = torch.optim.Adam(model.parameters())
        sampler = dgl.dataloading.NeighborSampler([4, 3])
        loader = dgl.dataloading.DataLoader(graph_to_dgl(GRAPH), TRAIN, sampler, batch_size=50, num_workers=2)
        for _ in range(2):
            losses = [
                float(train_step(model, MiniBatch.from_dgl(blocks, step=step), X, Y, F.cross_entropy, optimizer))
                for step, (_, _, blocks) in enumerate(loader)
            ]
            assert len(losses) == 2
    finally:
        set_num_threads(before)
