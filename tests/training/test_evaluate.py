"""Layer-wise inference against the model on one batch with all neighbours."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.covering import pairwise
from tests.strategies import random_graph
from workbench.core.dataset import Dataset
from workbench.core.graph import Graph
from workbench.features.memory_rows import MemoryRows
from workbench.nn.gcn import GCNLayer
from workbench.nn.gnn import GNN
from workbench.nn.model import MODEL_KINDS, TYPED_MODEL_KINDS, build_model
from workbench.sampling.neighbor import FullNeighborSampler
from workbench.training import evaluate as layerwise
from workbench.training.evaluate import (
    accuracy,
    full_neighbour_logits,
    majority_accuracy,
    roc_auc,
    split_accuracies,
)

NODES, IN_DIM, CLASSES = 60, 5, 4
GRAPH = random_graph(
    NODES, 400, seed=3, num_edge_types=3
)  # with hubs, repeated edges, self-loops and nodes without in-edges
WEIGHTED = random_graph(NODES, 400, seed=4, edge_weight=torch.float64, num_edge_types=3)
X = torch.linspace(-9, 9, NODES * IN_DIM, dtype=torch.float64).sin().view(NODES, IN_DIM)
SOME = torch.tensor([7, 3, 59, 0, 21])


def new_model(kind: str, num_layers: int = 2, **options: Any) -> GNN:
    heads = 2 if kind == "gat" else 1
    sizes = {"in_dim": IN_DIM, "hidden_dim": 6, "out_dim": CLASSES, "num_layers": num_layers, "heads": heads}
    relations = {"num_relations": 3, "num_bases": 2} if kind in TYPED_MODEL_KINDS else {}
    return build_model(kind, **sizes, **relations, dropout=0.5, seed=2, **options).double()


def on_one_batch(model: nn.Module, graph: Graph, nodes: Tensor) -> Tensor:
    mb = FullNeighborSampler(len(model.layers)).sample(graph, nodes)  # pyright: ignore[reportArgumentType]
    with torch.no_grad():
        return model.eval()(mb.blocks, X[mb.node_ids])


def difference(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape and a.dtype == b.dtype
    return float((a - b).abs().max())


GRAPHS = {"plain": GRAPH, "weighted": WEIGHTED}


@pytest.mark.parametrize(
    ("kind", "num_layers", "name"), pairwise([*MODEL_KINDS, *TYPED_MODEL_KINDS], [1, 2, 3], GRAPHS)
)
def test_every_layer_kind(kind: str, num_layers: int, name: str) -> None:
    graph = GRAPHS[name]
    model = new_model(kind, num_layers)
    expected = on_one_batch(model, graph, torch.arange(NODES))
    assert expected.abs().max() > 0.01
    for chunk_edges in (1, 37, 10_000):
        found = full_neighbour_logits(model, graph, X, chunk_edges=chunk_edges)
        assert difference(found, expected) <= 1e-10


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_norms_use_their_running_statistics(norm: str) -> None:
    model = new_model("gin", 3, norm=norm)
    mb = FullNeighborSampler(3).sample(GRAPH, torch.arange(NODES))
    model(mb.blocks, X[mb.node_ids])  # running statistics of batch norm
    found = full_neighbour_logits(model, GRAPH, X, chunk_edges=50)
    assert difference(found, on_one_batch(model, GRAPH, torch.arange(NODES))) <= 1e-10


@pytest.mark.parametrize("kind", ["sage-mean", "gat"])
@pytest.mark.parametrize("chunk_edges", [1, 25, 10_000])
def test_some_nodes_in_the_given_order(kind: str, chunk_edges: int) -> None:
    model = new_model(kind, 3)
    found = full_neighbour_logits(model, GRAPH, X, nodes=SOME, chunk_edges=chunk_edges)
    assert difference(found, on_one_batch(model, GRAPH, SOME)) <= 1e-10
    assert full_neighbour_logits(model, GRAPH, X, nodes=SOME[:0]).shape == (0, CLASSES)


def test_only_required_rows_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    far = Graph.from_edges(torch.tensor([1, 2, 4, 5]), torch.tensor([0, 1, 3, 4]), num_nodes=6)
    computed, run = [], layerwise._gathered

    def noted(outputs: Any, num_rows: int, device: Any) -> Tensor:
        computed.append(num_rows)
        return run(outputs, num_rows, device)

    monkeypatch.setattr(layerwise, "_gathered", noted)
    full_neighbour_logits(new_model("sage-mean", 3), far, X[:6], nodes=torch.tensor([0]))
    assert computed == [3, 2, 1]


@pytest.mark.parametrize("chunk_edges", [1, 30, 100])
def test_chunks_respect_their_limit(chunk_edges: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, blocks = new_model("sage-mean", 1), []
    model.layers[0].register_forward_pre_hook(lambda _, given: blocks.append(given))
    full_neighbour_logits(model, GRAPH, X, chunk_edges=chunk_edges)
    assert sum(block.num_dst for block, _ in blocks) == NODES
    for block, h in blocks:
        last = 1 + int(block.in_degrees()[-1])
        assert block.num_edges + block.num_dst - last < chunk_edges
        assert len(h) == block.num_src <= block.num_edges + block.num_dst
    assert len(blocks) >= (NODES + GRAPH.num_edges) / (chunk_edges + int(GRAPH.in_degrees().max()) + 1)


def test_modes_and_gradients_do_not_change() -> None:
    model = new_model("gin", norm="batch").train()
    model.norms[0].eval()
    out = full_neighbour_logits(model, GRAPH, X)
    assert not out.requires_grad and all(p.grad is None for p in model.parameters())
    assert model.training and model.layers[0].training and not model.norms[0].training
    with pytest.raises(IndexError, match="x has 10 rows"):
        full_neighbour_logits(model, GRAPH, X[:10])
    assert model.training


def test_dropout_is_off() -> None:
    model = new_model("sage-mean").train()
    assert torch.equal(full_neighbour_logits(model, GRAPH, X), full_neighbour_logits(model, GRAPH, X))


def test_features_may_come_from_a_store() -> None:
    class Store:
        def read(self, ids: Tensor) -> Tensor:
            return X[ids]

    model = new_model("gcn")
    expected = full_neighbour_logits(model, GRAPH, X)
    assert torch.equal(full_neighbour_logits(model, GRAPH, Store()), expected)
    assert torch.equal(full_neighbour_logits(model, GRAPH, X.numpy()), expected)


def test_labels_by_node_may_come_from_a_store() -> None:
    logits, y = torch.eye(3)[[0, 2, 1, 1]], torch.tensor([9, 0, 1, 2, 1, 9])
    nodes = torch.tensor([1, 3, 4, 2])
    for source in (y, y.numpy(), MemoryRows(y)):
        assert accuracy(logits, source, nodes=nodes) == accuracy(logits, y[nodes]) == 1.0
    with pytest.raises(IndexError, match="ids contains 6"):
        accuracy(logits, y, nodes=nodes + 2)


def test_models_that_cannot_run_layer_by_layer_are_refused() -> None:
    with pytest.raises(TypeError, match=r"model is a Linear; pass a model from workbench\.build_model"):
        full_neighbour_logits(nn.Linear(2, 2), GRAPH, X)
    both = GNN([GCNLayer(IN_DIM, 2, norm="both").double()], [], nn.ReLU(), [])
    with pytest.raises(ValueError, match="layer 0 normalises by out-degrees within the batch"):
        full_neighbour_logits(both, GRAPH, X)
    with pytest.raises(ValueError, match="chunk_edges"):
        full_neighbour_logits(new_model("gcn"), GRAPH, X, chunk_edges=0)
    with pytest.raises(ValueError, match="nodes contains 7 more than once"):
        full_neighbour_logits(new_model("gcn"), GRAPH, X, nodes=torch.tensor([7, 7]))


def test_accuracy_counts_labelled_nodes() -> None:
    logits = torch.tensor([[1.0, 2], [3, 0], [0, 1], [5, 5]])
    assert accuracy(logits, torch.tensor([1, 1, -1, 0])) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="none of 4 nodes has a label"):
        accuracy(logits, torch.full((4,), -1))
    with pytest.raises(ValueError, match=r"logits have shape \(4, 2\) and y \(3,\); pass"):
        accuracy(logits, torch.zeros(3, dtype=torch.int64))
    with pytest.raises(TypeError, match="undefined for multi-labels"):
        accuracy(logits, logits)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_undefined_predictions_count_as_wrong(dtype: torch.dtype) -> None:
    """Whatever is not finite, a constant model would be as good: class 0 must not be its prediction."""
    inf, nan = torch.inf, torch.nan
    undefined = [[inf, inf], [-inf, -inf], [nan, nan], [nan, 1.0], [1.0, nan], [inf, 0.0], [inf, -inf]]
    defined = [[1.0, 0.0], [0.0, -inf]]
    logits = torch.tensor(undefined + defined, dtype=dtype)
    with pytest.warns(RuntimeWarning, match=f"7 of 9 .* {dtype}"):
        assert accuracy(logits, torch.zeros(9, dtype=torch.int64)) == 2 / 9
    assert accuracy(logits[7:], torch.zeros(2, dtype=torch.int64)) == 1  # −∞ excludes a class


def test_accuracies_of_a_split() -> None:
    y = torch.arange(NODES) % CLASSES
    y[40] = -1
    val_idx = torch.tensor([50, 31, 40])
    data = Dataset.build(GRAPH, X, y, train_idx=torch.arange(30), val_idx=val_idx, test_idx=val_idx[:0])
    model = new_model("sage-mean")
    right = on_one_batch(model, GRAPH, torch.arange(NODES)).argmax(1) == y
    found = split_accuracies(model, data, chunk_edges=30)
    assert found == {
        "train_accuracy": pytest.approx(float(right[:30].double().mean())),
        "val_accuracy": pytest.approx(float(right[[50, 31]].double().mean())),
    }
    hidden = Dataset.build(GRAPH, X, y, train_idx=torch.arange(30), val_idx=val_idx[:2], test_idx=val_idx[2:])
    assert split_accuracies(model, hidden, chunk_edges=30) == found, "labels of test nodes are often not published"
    with pytest.raises(ValueError, match="no node of train_idx, val_idx or test_idx has a label"):
        split_accuracies(model, replace(hidden, y=torch.full_like(y, -1)))


def test_area_under_the_roc_curve_counts_pairs():
    scores, y = torch.tensor([0.1, 0.7, 0.7, 0.7, 0.2, 0.9, 5.0]), torch.tensor([0, 1, 0, 1, 1, 0, -1])
    pairs = [(float(p > n) + 0.5 * float(p == n)) for p in scores[y == 1] for n in scores[y == 0]]
    assert roc_auc(scores, y) == pytest.approx(sum(pairs) / len(pairs))
    assert roc_auc(-scores, y) == pytest.approx(1 - sum(pairs) / len(pairs))
    for wrong, told in (
        ((scores, y.clamp(max=0)), "needs nodes of class 0"),
        ((scores, y + 1), "needs nodes of class 0"),
        ((scores[:3], y), "shape"),
        ((scores.log().neg() / 0, y), "NaN or infinite"),
    ):
        with pytest.raises(ValueError, match=told):
            roc_auc(*wrong)


def test_the_majority_is_of_labelled_nodes():
    assert majority_accuracy(torch.tensor([-1, -1, -1, 2, 2, 0, 1])) == 0.5
    with pytest.raises(ValueError, match="none of 1 nodes has a label"):
        majority_accuracy(torch.tensor([-1]))
