"""PyG: a heterogeneous graph made homogeneous, and R-GCN on its edge types."""

import torch
import torch.nn.functional as F
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import RGCNConv

import workbench as wb


class Net(torch.nn.Module):
    def __init__(self, in_size, hidden_size, out_size, num_types=3):
        super().__init__()
        self.first = RGCNConv(in_size, hidden_size, num_types, num_bases=2)
        self.second = RGCNConv(hidden_size, out_size, num_types, num_bases=2)

    def forward(self, x, edge_index, edge_type):
        return self.second(self.first(x, edge_index, edge_type).relu(), edge_index, edge_type)


def train(hetero, train_idx, model, epochs):
    data = hetero.to_homogeneous()
    loader = NeighborLoader(data, num_neighbors=[10, 10], input_nodes=train_idx, batch_size=512, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    losses = []
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index, batch.edge_type)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def train_in_parts(hetero, train_idx, model, epochs):
    data = hetero.to_homogeneous()
    loader = NeighborLoader(data, num_neighbors=[10, 10], input_nodes=train_idx, batch_size=512, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    losses = []
    for _ in range(epochs):
        for whole in loader:
            optimizer.zero_grad()
            losses.append(0.0)
            for batch in wb.micro_batches(whole, 4):
                out = model(batch.x, batch.edge_index, batch.edge_type)[: batch.batch_size]
                loss = F.cross_entropy(out, batch.y[: batch.batch_size], reduction="sum") / whole.batch_size
                loss.backward()
                losses[-1] += loss.item()
            optimizer.step()
    return losses
