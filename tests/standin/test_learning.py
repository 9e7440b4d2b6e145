"""Labels of stand-ins: a GNN of two layers learns them, an MLP on the features alone does not."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from workbench.core.dataset import Dataset
from workbench.nn.model import build_model
from workbench.sampling.neighbor import NeighborSampler
from workbench.standin import build_standin
from workbench.standin.graph_statistics import simple_undirected
from workbench.training.step import train_step


def _mlp_accuracy(data: Dataset, seed: int) -> float:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(data.num_features, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, data.num_classes))
    optimizer, best = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4), 0.0
    for _ in range(8):
        model.train()
        for ids in data.train_idx[torch.randperm(len(data.train_idx))].split(256):
            optimizer.zero_grad()
            F.cross_entropy(model(data.x[ids]), data.y[ids]).backward()
            optimizer.step()
        best = max(best, _accuracy(model.eval()(data.x[data.test_idx]), data.y[data.test_idx]))
    return best


def _gnn_accuracy(data: Dataset, seed: int) -> float:
    graph, sampler = simple_undirected(data.graph), NeighborSampler([5, 10], seed=seed)
    model = build_model(
        "sage-mean", in_dim=data.num_features, hidden_dim=64, out_dim=data.num_classes, dropout=0.5, seed=seed
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    order = torch.randperm(len(data.train_idx), generator=torch.Generator().manual_seed(seed))
    for step, ids in enumerate(data.train_idx[order.repeat(3)].split(256)):
        batch = sampler.sample(graph, ids.unique(), step=step)
        train_step(model, batch, data.x, data.y, F.cross_entropy, optimizer)
    batch = sampler.sample(graph, data.test_idx[:2000], step=10**6)
    with torch.no_grad():
        return _accuracy(model.eval()(batch.blocks, data.x[batch.node_ids]), data.y[batch.seeds])


def _accuracy(scores: torch.Tensor, y: torch.Tensor) -> float:
    return float((scores.argmax(1) == y).double().mean())


@pytest.mark.parametrize(
    ("name", "scale", "margin"),
    [("synthetic-arxiv", 0.05, 0.25), ("synthetic-products", 0.02, 0.3)],
)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_gnn_is_more_accurate_than_an_mlp(name, scale, margin, seed):
    data = build_standin(name, scale=scale, seed=seed)
    assert isinstance(data, Dataset)
    majority = int(data.y[data.test_idx].bincount().max()) / len(data.test_idx)
    mlp, gnn = _mlp_accuracy(data, seed), _gnn_accuracy(data, seed)
    assert gnn > mlp + margin and gnn > majority + margin
