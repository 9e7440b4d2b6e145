"""PyG: GraphSAGE as in the ogbn-products example, with loss and accuracy of every epoch."""

import torch
import torch.nn.functional as F
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv

import workbench as wb


class Net(torch.nn.Module):
    def __init__(self, in_size, hidden_size, out_size):
        super().__init__()
        self.convs = torch.nn.ModuleList([SAGEConv(in_size, hidden_size), SAGEConv(hidden_size, out_size)])

    def forward(self, x, edge_index):
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index).log_softmax(dim=-1)


def train(data, train_idx, model, epochs):
    loader = NeighborLoader(data, num_neighbors=[15, 10], input_nodes=train_idx, batch_size=1024, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    history = []
    for _ in range(epochs):
        total_loss = total_correct = 0
        for batch in loader:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            y = batch.y[: batch.batch_size]
            loss = F.nll_loss(out, y)
            loss.backward()
            optimizer.step()
            total_loss += loss.item() * batch.batch_size
            total_correct += int(out.argmax(dim=-1).eq(y).sum())
        history += [total_loss / len(train_idx), total_correct / len(train_idx)]
    return history


def train_in_parts(data, train_idx, model, epochs):
    loader = NeighborLoader(data, num_neighbors=[15, 10], input_nodes=train_idx, batch_size=1024, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    history = []
    for _ in range(epochs):
        total_loss = total_correct = 0
        for whole in loader:
            optimizer.zero_grad()
            for batch in wb.micro_batches(whole, 4):
                out = model(batch.x, batch.edge_index)[: batch.batch_size]
                y = batch.y[: batch.batch_size]
                loss = F.nll_loss(out, y, reduction="sum")
                (loss / whole.batch_size).backward()
                total_loss += loss.item()
                total_correct += int(out.argmax(dim=-1).eq(y).sum())
            optimizer.step()
        history += [total_loss / len(train_idx), total_correct / len(train_idx)]
    return history
