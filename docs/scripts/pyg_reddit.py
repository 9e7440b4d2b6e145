"""PyG: GraphSAGE as in the Reddit example, its layers recomputed in the backward pass (checkpointing)."""

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv

import workbench as wb


class Net(torch.nn.Module):
    def __init__(self, in_size, hidden_size, out_size):
        super().__init__()
        self.convs = torch.nn.ModuleList([SAGEConv(in_size, hidden_size), SAGEConv(hidden_size, out_size)])

    def forward(self, x, edge_index):
        for i, conv in enumerate(self.convs):
            x = checkpoint(conv, x, edge_index, use_reentrant=False)
            if i < len(self.convs) - 1:
                x = x.relu()
        return x


def train(data, train_idx, model, epochs):
    loader = NeighborLoader(data, num_neighbors=[25, 10], input_nodes=train_idx, batch_size=1024, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    device = next(model.parameters()).device
    losses = []
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            y_hat = model(batch.x.to(device), batch.edge_index.to(device))[: batch.batch_size]
            y = batch.y[: batch.batch_size].to(device)
            loss = F.cross_entropy(y_hat, y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def train_in_parts(data, train_idx, model, epochs):
    loader = NeighborLoader(data, num_neighbors=[25, 10], input_nodes=train_idx, batch_size=1024, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    device = next(model.parameters()).device
    losses = []
    for _ in range(epochs):
        for whole in loader:
            optimizer.zero_grad()
            losses.append(0.0)
            for batch in wb.micro_batches(whole, 4):
                y_hat = model(batch.x.to(device), batch.edge_index.to(device))[: batch.batch_size]
                y = batch.y[: batch.batch_size].to(device)
                loss = F.cross_entropy(y_hat, y, reduction="sum") / whole.batch_size
                loss.backward()
                losses[-1] += loss.item()
            optimizer.step()
    return losses
