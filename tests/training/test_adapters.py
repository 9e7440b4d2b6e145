"""Micro-batches for training loops of one's own: in DGL's form, in PyG's and in the library's."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.strategies import random_graph, random_minibatch
from tests.training.toys import gradients, relative_difference, toy_batch
from workbench.core.minibatch import MiniBatch
from workbench.interop import graph_to_dgl
from workbench.kernels.threads import get_num_threads, run_tasks, set_num_threads
from workbench.links.edge_batch import EdgeBatch
from workbench.nn.gcn import symmetric_norm
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


def test_the_recipe_of_graph_conv_is_exact_and_equals_norm_both() -> None:
    dgl_nn = pytest.importorskip("dgl.nn")

    class Gcn(nn.Module):
        def __init__(self, norm: str) -> None:
            super().__init__()
            torch.manual_seed(0)
            options = {"norm": norm, "allow_zero_in_degree": True}
            self.layers = nn.ModuleList([dgl_nn.GraphConv(6, 8, **options), dgl_nn.GraphConv(8, CLASSES, **options)])
            self.double()

        def forward(self, blocks: list, h: Tensor) -> Tensor:
            for layer, block in zip(self.layers, blocks, strict=True):
                weight = block.edata.get("edge_weight") if layer._norm == "none" else None
                h = layer(block, h, edge_weight=weight).tanh()
            return h

    blocks = random_minibatch(random_graph(NUM_NODES, 1500, seed=1), fanouts=(4, 3), num_seeds=40).to_dgl()
    both, weighted = Gcn("both"), Gcn("none")
    with pytest.warns(
        RuntimeWarning, match=r'GraphConv \(layers.0\) .* norm="none" .* workbench.nn.symmetric_norm\(batch\)'
    ):
        train_step(
            both,
            MiniBatch.from_dgl(blocks).split(torch.arange(40) % 4),
            X,
            Y,
            F.cross_entropy,
            torch.optim.SGD(both.parameters(), lr=0.0),
            forward=lambda mb, inputs: both(mb.to_dgl(), inputs.x),
        )
    node_ids = MiniBatch.from_dgl(blocks).node_ids
    expected = both(blocks, X[node_ids])
    batch = symmetric_norm(MiniBatch.from_dgl(blocks), torch.float64)
    torch.testing.assert_close(weighted(batch.to_dgl(), X[node_ids]), expected)
    for part in micro_batches(batch, 4, method="random"):
        assert part.parent is not None
        out = weighted(part.to_dgl(), X[part.node_ids])
        torch.testing.assert_close(out, expected[part.parent[: part.num_seeds]], rtol=1e-10, atol=1e-10)


def pyg_link_batch(**attributes: Tensor) -> SimpleNamespace:
    batch = random_minibatch(GRAPH, fanouts=(-1, -1), num_seeds=12).to_pyg()
    return SimpleNamespace(**(batch.to_dict() if hasattr(batch, "to_dict") else vars(batch)), **attributes)


def test_batches_sampled_for_pairs_are_refused() -> None:
    pairs = torch.tensor([[0, 1, 2], [5, 4, 3]])
    for name in ("edge_label_index", "src_index"):
        with pytest.raises(
            ValueError, match=rf"a batch with {name} \(of PyG's LinkNeighborLoader\).*EdgeBatch.*edge_b"
        ):
            micro_batches(pyg_link_batch(**{name: pairs}), 2)


def test_batches_of_dgls_edge_prediction_are_refused() -> None:
    dgl = pytest.importorskip("dgl")
    sampler = dgl.dataloading.as_edge_prediction_sampler(
        dgl.dataloading.NeighborSampler([4, 3]), negative_sampler=dgl.dataloading.negative_sampler.Uniform(1)
    )
    batch = next(iter(dgl.dataloading.DataLoader(graph_to_dgl(GRAPH), torch.arange(20), sampler, batch_size=10)))
    for given in (batch, tuple(batch)):
        with pytest.raises(ValueError, match=r"a batch of DGL's edge prediction by its seeds: .*EdgeBatch"):
            micro_batches(given, 2)


def test_the_remedy_for_pairs_is_exact() -> None:
    """As the refusal says: split the pairs, and select the seeds of each part."""
    batch = pyg_link_batch(edge_label_index=torch.tensor([[0, 1, 2, 3, 0], [5, 4, 3, 11, 7]]))
    mb, model = MiniBatch.from_pyg(batch), build_model("sage-mean", in_dim=6, hidden_dim=8, out_dim=CLASSES).double()
    pairs = EdgeBatch(mb.seeds, *batch.edge_label_index)

    def scores(part: MiniBatch, of: EdgeBatch) -> Tensor:
        out = model(part.blocks, X[part.node_ids])
        return (out[of.src] * out[of.dst]).sum(1)

    scores(mb, pairs).square().sum().backward()
    expected = gradients(model)
    model.zero_grad()
    parts = pairs.split(torch.tensor([0, 1, 1, 0, 2]))
    seeds = [part.parent for part in parts if part.parent is not None]
    for micro, part in zip(mb.select(seeds), parts, strict=True):
        scores(micro, part).square().sum().backward()
    assert relative_difference(gradients(model), expected) <= 1e-10
