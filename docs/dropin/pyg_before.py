"""A training loop of PyG: features and labels in the batches of its NeighborLoader."""

import torch
import torch.nn.functional as F
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv


class SAGE(torch.nn.Module):
    def __init__(self, in_size, hidden_size, out_size):
        super().__init__()
        self.first, self.second = SAGEConv(in_size, hidden_size), SAGEConv(hidden_size, out_size)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def train(data, train_idx, model, optimizer, epochs):
    loader = NeighborLoader(data, num_neighbors=[25, 10], input_nodes=train_idx, batch_size=64, shuffle=True)
    history = []
    for _ in range(epochs):
        total_loss = total_correct = 0
        for batch in loader:
            optimizer.zero_grad()
            y = batch.y[: batch.batch_size]
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, y)
            loss.backward()
            optimizer.step()
            total_loss += loss.item() * batch.batch_size
            total_correct += int((out.argmax(dim=1) == y).sum())
        history.append((total_loss / len(train_idx), total_correct / len(train_idx)))
    return history
