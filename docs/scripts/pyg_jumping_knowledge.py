"""PyG: jumping knowledge over three layers, compiled, with a learning rate that falls when the loss stalls."""

import torch
import torch.nn.functional as F
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GCNConv, JumpingKnowledge

import workbench as wb


class Net(torch.nn.Module):
    def __init__(self, in_size, hidden_size, out_size):
        super().__init__()
        sizes = [in_size, hidden_size, hidden_size]
        self.convs = torch.nn.ModuleList(GCNConv(size, hidden_size, normalize=False) for size in sizes)
        self.jump = JumpingKnowledge("cat")
        self.out = torch.nn.Linear(3 * hidden_size, out_size)

    def forward(self, x, edge_index):
        hidden = []
        for conv in self.convs:
            x = conv(x, edge_index).relu()
            hidden.append(x)
        return self.out(self.jump(hidden))


def train(data, train_idx, model, epochs):
    loader = NeighborLoader(data, num_neighbors=[10, 10, 10], input_nodes=train_idx, batch_size=512, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    compiled = torch.compile(model, dynamic=True)
    losses = []
    for _ in range(epochs):
        total_loss = 0
        for batch in loader:
            optimizer.zero_grad()
            out = compiled(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            total_loss += loss.item()
        scheduler.step(total_loss)
        losses.append(total_loss)
    return losses


def train_in_parts(data, train_idx, model, epochs):
    loader = NeighborLoader(data, num_neighbors=[10, 10, 10], input_nodes=train_idx, batch_size=512, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    compiled = torch.compile(model, dynamic=True)
    losses = []
    for _ in range(epochs):
        total_loss = 0
        for whole in loader:
            optimizer.zero_grad()
            for batch in wb.micro_batches(whole, 4):
                out = compiled(batch.x, batch.edge_index)[: batch.batch_size]
                loss = F.cross_entropy(out, batch.y[: batch.batch_size], reduction="sum") / whole.batch_size
                loss.backward()
                total_loss += loss.item()
            optimizer.step()
        scheduler.step(total_loss)
        losses.append(total_loss)
    return losses
