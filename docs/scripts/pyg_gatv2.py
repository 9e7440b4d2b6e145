"""PyG: GATv2, whose attention reads edge attributes; only some classes are weighted in the loss."""

import torch
import torch.nn.functional as F
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GATv2Conv

import workbench as wb


class Net(torch.nn.Module):
    def __init__(self, in_size, hidden_size, out_size, edge_size=4, heads=2):
        super().__init__()
        self.first = GATv2Conv(in_size, hidden_size, heads, edge_dim=edge_size, add_self_loops=False)
        self.second = GATv2Conv(heads * hidden_size, out_size, edge_dim=edge_size, add_self_loops=False)

    def forward(self, x, edge_index, edge_attr):
        return self.second(F.elu(self.first(x, edge_index, edge_attr)), edge_index, edge_attr)


def train(data, train_idx, model, epochs):
    loader = NeighborLoader(data, num_neighbors=[10, 10], input_nodes=train_idx, batch_size=512, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    weight = torch.tensor([1.0, 2.0, 0.5]).to(data.x.dtype)
    losses = []
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index, batch.edge_attr)[: batch.batch_size]
            y = batch.y[: batch.batch_size]
            loss = F.cross_entropy(out, y, weight)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def train_in_parts(data, train_idx, model, epochs):
    loader = NeighborLoader(data, num_neighbors=[10, 10], input_nodes=train_idx, batch_size=512, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    weight = torch.tensor([1.0, 2.0, 0.5]).to(data.x.dtype)
    losses = []
    for _ in range(epochs):
        for whole in loader:
            optimizer.zero_grad()
            losses.append(0.0)
            total = weight[whole.y[: whole.batch_size]].sum()  # the mean of a weighted loss is by weight
            for batch in wb.micro_batches(whole, 4):
                out = model(batch.x, batch.edge_index, batch.edge_attr)[: batch.batch_size]
                y = batch.y[: batch.batch_size]
                loss = F.cross_entropy(out, y, weight, reduction="sum") / total
                loss.backward()
                losses[-1] += loss.item()
            optimizer.step()
    return losses
