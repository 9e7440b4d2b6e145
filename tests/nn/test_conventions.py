"""Models of DGL and PyG are called as they are written, by steps and by estimates."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from tests.strategies import random_graph, random_minibatch
from tests.training.toys import PlainModel, gradients, relative_difference
from workbench.core.minibatch import MiniBatch
from workbench.memory.estimator import estimate_memory
from workbench.memory.plan import plan_micro_batches
from workbench.nn.losses import Inputs
from workbench.nn.model import build_model
from workbench.nn.signature import convention_of, default_forward
from workbench.sampling.neighbor import FullNeighborSampler
from workbench.training.profile import profile_epoch
from workbench.training.step import train_step

NUM_NODES, WIDTH, CLASSES = 60, 6, 3
GRAPH = random_graph(NUM_NODES, 240, seed=1, edge_weight=torch.float64)
X = torch.linspace(-9, 9, NUM_NODES * WIDTH, dtype=torch.float64).sin().view(NUM_NODES, WIDTH)
Y = torch.arange(NUM_NODES) % CLASSES
SAMPLED = random_minibatch(GRAPH, fanouts=(3, 2), num_seeds=20)
FULL = FullNeighborSampler(2).sample(GRAPH, torch.arange(20))


def dgl_model(kind: str = "weighted") -> nn.Module:
    conv = pytest.importorskip("dgl.nn").SAGEConv

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([conv(WIDTH, 8, "mean"), conv(8, CLASSES, "mean")])

        def layer(self, position: int, block, h: Tensor) -> Tensor:
            return self.layers[position](block, h, edge_weight=block.edata["edge_weight"])

    class BlocksFirst(Net):
        def forward(self, mfgs, x: Tensor) -> Tensor:
            return self.layer(1, mfgs[1], self.layer(0, mfgs[0], x).relu())

    class FeaturesFirst(Net):
        def forward(self, h: Tensor, blocks, step: int) -> Tensor:
            assert step == SAMPLED.step
            return self.layer(1, blocks[1], self.layer(0, blocks[0], h).relu())

    return {"blocks first": BlocksFirst, "features first": FeaturesFirst}[kind]().double()


def own_sage(model: Any) -> nn.Module:
    """The same model in plain torch, on the library's blocks."""

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, blocks, x: Tensor) -> Tensor:
            for position, block in enumerate(blocks):
                conv = self.model.layers[position]
                messages = x[block.indices] * block.edge_weight[:, None]
                total = x.new_zeros(block.num_dst, x.shape[1]).index_add(0, block.destinations, messages)
                mean = total / block.in_degrees().clamp(min=1)[:, None]
                x = conv.fc_self(x[: block.num_dst]) + conv.fc_neigh(mean)
                x = x if position else x.relu()
            return x

    return Own()


def trained(model: nn.Module, micro: Sequence[MiniBatch], y: Tensor = Y) -> tuple[Tensor, Tensor]:
    loss = train_step(model, micro, X, y, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.0))
    return loss, gradients(model)


@pytest.mark.parametrize("kind", ["blocks first", "features first"])
def test_modules_of_dgl_layers_get_dgl_blocks(kind: str) -> None:
    model = dgl_model(kind)
    loss, expected = trained(own_sage(model), [SAMPLED])
    for micro in ([SAMPLED], SAMPLED.split(torch.arange(20) % 3)):
        theirs, gradient = trained(model, micro)
        assert relative_difference(gradient, expected) <= 1e-10
        assert theirs.item() == pytest.approx(loss.item(), rel=1e-10)


def test_one_layer_of_dgl_gets_one_block() -> None:
    conv = pytest.importorskip("dgl.nn").SAGEConv(WIDTH, CLASSES, "mean").double()
    mb = random_minibatch(GRAPH, fanouts=(4,), num_seeds=9)
    expected = conv(mb.to_dgl()[0], X[mb.node_ids], edge_weight=mb.blocks[0].edge_weight)
    assert torch.equal(default_forward(conv)(mb, Inputs(X[mb.node_ids])), expected)


class Adjs(nn.Module):
    """One layer per entry of `adjs`, weighted if the batch is."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2 * WIDTH, 8), nn.Linear(16, CLASSES)]).double()

    def forward(self, x: Tensor, adjs: Any, edge_weight: Any = None) -> Tensor:
        for layer, (edge_index, _, (_, count)), weight in zip(self.layers, adjs, edge_weight, strict=True):
            messages = x[edge_index[0]] * weight[:, None]
            total = x.new_zeros(count, x.shape[1]).index_add(0, edge_index[1], messages)
            x = layer(torch.cat([x[:count], total], 1)).tanh()
        return x


class EdgeIndex(Adjs):
    """The same layers on all nodes and edges, as PyG's examples write them."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:  # pyright: ignore
        assert edge_weight is not None
        for layer in self.layers:
            total = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]] * edge_weight[:, None])
            x = layer(torch.cat([x, total], 1)).tanh()
        return x


def test_modules_with_adjs_get_one_per_layer() -> None:
    model = Adjs()
    out = default_forward(model)(SAMPLED, Inputs(X[SAMPLED.node_ids]))
    weights = [block.edge_weight for block in SAMPLED.blocks]
    assert torch.equal(out, model(X[SAMPLED.node_ids], SAMPLED.to_pyg().adjs, weights))
    whole, parts = trained(model, [SAMPLED]), trained(model, SAMPLED.split(torch.arange(20) % 3))
    assert relative_difference(parts[1], whole[1]) <= 1e-10


def test_modules_with_an_edge_index_agree_with_those_per_layer() -> None:
    per_layer, one = Adjs(), EdgeIndex()
    one.load_state_dict(per_layer.state_dict())
    expected = trained(per_layer, [FULL])[1]
    for micro in ([FULL], FULL.split(torch.arange(20) % 3)):
        assert relative_difference(trained(one, micro)[1], expected) <= 1e-10


def test_an_edge_index_for_a_sample_per_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="sample per layer: before the split, let every node keep one"):
        trained(EdgeIndex(), [SAMPLED])


def test_models_of_pyg_return_the_seeds_rows() -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    model = pyg.GraphSAGE(WIDTH, 8, 2, CLASSES).double()
    batch = FULL.to_pyg()
    expected = model(X[batch.n_id], batch.edge_index)[: FULL.num_seeds]
    assert torch.allclose(default_forward(model)(FULL, Inputs(X[FULL.node_ids])), expected, rtol=1e-10)


class Trimmed(EdgeIndex):
    def forward(self, x, edge_index, num_sampled_nodes_per_hop, edge_weight=None):  # pyright: ignore
        assert sum(num_sampled_nodes_per_hop) == len(x)
        out = super().forward(x, edge_index, edge_weight)
        return out, out.sum(1)


def test_counts_of_hops_are_passed_if_required_and_tuples_are_cut() -> None:
    out, sums = default_forward(Trimmed())(FULL, Inputs(X[FULL.node_ids]))
    assert out.shape == (20, CLASSES) and sums.shape == (20,)


class Outputs(NamedTuple):
    logits: Tensor
    others: Any


@pytest.mark.parametrize(
    "structure",
    [lambda out: Outputs(out, [out.sum(1)]), lambda out: {"logits": out, "others": (out.sum(1), 7)}],
    ids=["namedtuple", "dict"],
)
def test_outputs_of_any_structure_are_cut_to_the_seeds(structure: Callable[[Tensor], Any]) -> None:
    class Structured(EdgeIndex):
        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Any:
            return structure(super().forward(x, edge_index, edge_weight))

    found = default_forward(Structured())(FULL, Inputs(X[FULL.node_ids]))
    expected = structure(torch.empty(FULL.num_seeds, CLASSES))
    assert type(found) is type(expected)
    shapes = [[getattr(leaf, "shape", leaf) for leaf in tree_leaves(out)] for out in (found, expected)]
    assert shapes[0] == shapes[1]


class Wrapper(nn.Module):
    """Converts the library's blocks itself."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, blocks, x: Tensor) -> Tensor:
        return self.inner(MiniBatch(torch.arange(len(x)), blocks).to_dgl()[0], x)


def test_the_librarys_blocks_go_to_everything_else() -> None:
    conv = pytest.importorskip("dgl.nn").SAGEConv(WIDTH, CLASSES, "mean")
    for model in (PlainModel(), Wrapper(conv), build_model("gcn", in_dim=WIDTH, hidden_dim=4, out_dim=3, num_layers=1)):
        assert convention_of(model).name == "blocks, x"


def test_foreign_modules_are_estimated_and_planned_without_an_adapter() -> None:
    """The estimate is the measured peak; for DGL's blocks, which reference cycles keep longer, at most 3 % more."""
    graph = random_graph(2000, 20_000, seed=2, edge_weight=torch.float32)
    x, y = torch.randn(2000, WIDTH), torch.arange(2000) % CLASSES
    mb = random_minibatch(graph, fanouts=(5, 4), num_seeds=400)
    for model, in_dim, most in ((dgl_model("blocks first").float(), None, 1.03), (Adjs().float(), WIDTH, 1.0)):
        optimizer = torch.optim.Adam(model.parameters())
        measured = profile_epoch(model, [[mb]], x, y, F.cross_entropy, optimizer).peak_bytes
        assert measured is not None
        estimate = estimate_memory(model, mb, optimizer=optimizer, in_dim=in_dim)
        assert measured <= estimate.peak_bytes <= most * measured
    with pytest.raises(ValueError, match="inputs of in_dim 12"):  # inferred from the first layer, which is wider
        estimate_memory(model, mb)


def test_a_module_of_dgl_layers_is_planned_with_a_capacity_in_words() -> None:
    graph = random_graph(2000, 20_000, seed=2, edge_weight=torch.float32)
    mb = random_minibatch(graph, fanouts=(5, 4), num_seeds=400)
    plan = plan_micro_batches(dgl_model("blocks first").float(), mb, memory="300 KiB", method="range")
    assert plan.memory_bytes == 300 * 1024 and 1 < plan.num_parts < 40
