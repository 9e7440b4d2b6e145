"""PyG's own loaders beside ours: the same samples in distribution, and micro-batches of their batches are exact.

They draw with the samplers of torch-sparse, which the first test compiles.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import workbench as wb
from tests.strategies import random_graph
from tests.torch_sparse import use_samplers
from workbench.interop import count_hops
from workbench.links import EdgeBatch

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*without a 'pyg-lib' installation")]

NODES, FANOUTS, SEEDS = 800, [4, 3], torch.arange(40)
GRAPH = random_graph(NODES, 9_000, seed=3)
DATA_EDGES = torch.stack([GRAPH.indices, torch.repeat_interleave(torch.arange(NODES), GRAPH.in_degrees())])
X = torch.linspace(-9, 9, NODES * 4, dtype=torch.float64).sin().view(NODES, 4)
SHIFT = 5.0
"""Standard errors by which means of samples may differ: they do so in one of two million runs."""


@pytest.fixture(autouse=True)
def _samplers(monkeypatch: pytest.MonkeyPatch) -> None:
    use_samplers(monkeypatch)


def pyg_data() -> Any:
    from torch_geometric.data import Data

    return Data(edge_index=DATA_EDGES, num_nodes=NODES)


def node_batches(count: int) -> Iterator[Any]:
    from torch_geometric.loader import NeighborLoader

    loader = NeighborLoader(pyg_data(), num_neighbors=FANOUTS, input_nodes=SEEDS, batch_size=len(SEEDS))
    for _ in range(count):
        for batch in loader:
            yield count_hops(batch, len(FANOUTS))


def assert_same_mean(one: list[int], other: list[int]) -> None:
    a, b = torch.tensor(one).double(), torch.tensor(other).double()
    error = (a.var() / len(a) + b.var() / len(b)).sqrt()
    assert abs(a.mean() - b.mean()) <= SHIFT * error, (a.mean(), b.mean(), error)


def test_neighbor_loader_samples_as_dense_sampler():
    """One sample per node, of the size of the hop that reached it first, uniform among its in-neighbours."""
    theirs = [wb.MiniBatch.from_pyg(batch) for batch in node_batches(200)]
    sampler = wb.DenseSampler(FANOUTS[::-1], seed=1)
    ours = [sampler.sample(GRAPH, SEEDS, step=step) for step in range(200)]
    for batch in (theirs[0], ours[0]):
        assert torch.equal(batch.blocks[-1].in_degrees(), GRAPH.in_degrees()[SEEDS].clamp(max=FANOUTS[0]))
    assert_same_mean([mb.num_inputs for mb in theirs], [mb.num_inputs for mb in ours])
    assert_same_mean([mb.blocks[0].num_edges for mb in theirs], [mb.blocks[0].num_edges for mb in ours])
    hub = int(GRAPH.in_degrees()[SEEDS].argmax())
    lowest = GRAPH.indices[GRAPH.indptr[hub] : GRAPH.indptr[hub + 1]].min()

    def includes_lowest(mb: wb.MiniBatch) -> int:
        block = mb.blocks[-1]
        return int((mb.node_ids[block.indices[block.indptr[hub] : block.indptr[hub + 1]]] == lowest).sum())

    assert_same_mean([includes_lowest(mb) for mb in theirs], [includes_lowest(mb) for mb in ours])


class Net(nn.Module):
    def __init__(self, num_relations: int = 0) -> None:
        from torch_geometric.nn import RGCNConv, SAGEConv

        super().__init__()
        torch.manual_seed(0)
        layer = (lambda: RGCNConv(4, 4, num_relations)) if num_relations else (lambda: SAGEConv(4, 4))
        self.layers = nn.ModuleList(layer() for _ in FANOUTS).double()

    def forward(self, x: Tensor, *edges: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, *edges).sin()
        return x


def gradients(model: nn.Module, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


def assert_sum(parts: list[list[Tensor]], whole: list[Tensor]) -> None:
    for *terms, expected in zip(*parts, whole, strict=True):
        torch.testing.assert_close(torch.stack(terms).sum(0), expected, rtol=1e-10, atol=1e-10)


def test_micro_batches_of_neighbor_loader_are_exact():
    model, (batch,) = Net(), node_batches(1)

    def loss(part: Any) -> Tensor:
        return model(X[part.n_id], part.edge_index)[: part.batch_size].square().sum()

    parts = list(wb.micro_batches(batch, 4, method="random"))
    assert len(parts) == 4 and all(len(part.n_id) < len(batch.n_id) for part in parts)
    assert_sum([gradients(model, loss(part)) for part in parts], gradients(model, loss(batch)))


def link_batches(count: int, **options: Any) -> Iterator[Any]:
    from torch_geometric.loader import LinkNeighborLoader

    pairs = DATA_EDGES[:, :60]
    loader = LinkNeighborLoader(pyg_data(), FANOUTS, edge_label_index=pairs, batch_size=pairs.shape[1], **options)
    for _ in range(count):
        for batch in loader:
            yield count_hops(batch, len(FANOUTS))


def test_link_neighbor_loader_samples_as_edge_batches():
    theirs = [wb.MiniBatch.from_pyg(batch) for batch in link_batches(200)]
    sampler = wb.DenseSampler(FANOUTS[::-1], seed=1)
    options = {"sampler": sampler, "batch_size": 60, "exclude": "none", "shuffle": False}
    loader = wb.edge_batches(GRAPH, DATA_EDGES[:, :60], **options)
    ours = [mb for _ in range(200) for _, _, mb in loader]
    assert torch.equal(theirs[0].seeds.sort().values, ours[0].seeds.sort().values)
    assert_same_mean([mb.num_inputs for mb in theirs], [mb.num_inputs for mb in ours])


def test_pairs_of_link_neighbor_loader_are_split_by_pairs():
    """As the error says that refuses to split the seeds."""
    (whole,) = link_batches(1, neg_sampling_ratio=1.0)
    with pytest.raises(ValueError, match="edge_label_index"):
        wb.micro_batches(whole, 3)
    batch, (src, dst) = wb.MiniBatch.from_pyg(whole), whole.edge_label_index
    model = Net()

    def loss(mb: wb.MiniBatch, src: Tensor, dst: Tensor) -> Tensor:
        part = mb.to_pyg("edge_index")
        h = model(X[part.n_id], part.edge_index)
        return (h[src] * h[dst]).sum().sin()

    pairs = EdgeBatch(batch.seeds, src, dst).split(torch.arange(len(src)) % 3)
    parts = batch.select([part.parent for part in pairs if part.parent is not None])
    sums = [gradients(model, loss(mb, part.src, part.dst)) for mb, part in zip(parts, pairs, strict=True)]
    each = [loss(batch, src[part], dst[part]) for part in (torch.arange(len(src)).view(-1, 3).T)]
    assert_sum(sums, gradients(model, torch.stack(each).sum()))


def test_hgt_loader_batch_is_a_graph_whose_micro_batches_are_exact():
    """A batch of HGTLoader has no hops: it is a graph of several node and edge types, read in full from its seeds."""
    from torch_geometric.data import HeteroData
    from torch_geometric.loader import HGTLoader

    generator = torch.Generator().manual_seed(2)
    data = HeteroData()
    data["paper"].x, data["author"].x = X[:500], X[500:]
    for kind in (("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "rev_writes", "author")):
        sizes = [data[kind[0]].num_nodes, data[kind[2]].num_nodes]
        data[kind].edge_index = torch.stack([torch.randint(n, (3_000,), generator=generator) for n in sizes])
    loader = HGTLoader(data, num_samples=[60, 60], input_nodes=("paper", SEEDS), batch_size=len(SEEDS))
    (batch,) = list(loader)
    whole = batch.to_homogeneous()
    assert whole.num_edges > 100 and torch.equal(batch["paper"].n_id[: len(SEEDS)], SEEDS)
    model = Net(num_relations=3)
    expected = model(whole.x, whole.edge_index, whole.edge_type)[: len(SEEDS)].square().sum()

    graph = wb.Graph.from_pyg(whole)
    read = wb.FullNeighborSampler(len(FANOUTS)).sample(graph, SEEDS).to_pyg("edge_index")
    parts = [
        model(whole.x[part.n_id], part.edge_index, part.edge_type)[: part.batch_size].square().sum()
        for part in wb.micro_batches(read, 4, method="random")
    ]
    assert len(parts) == 4
    assert_sum([gradients(model, part) for part in parts], gradients(model, expected))
