"""A training loop in plain torch: the whole graph in every step."""

import torch
import torch.nn.functional as F

import workbench as wb


class Mean(torch.nn.Module):
    def __init__(self, in_size, out_size):
        super().__init__()
        self.own, self.neighbours = torch.nn.Linear(in_size, out_size), torch.nn.Linear(in_size, out_size)

    def forward(self, x, edge_index):
        src, dst = edge_index
        total = torch.zeros_like(x).index_add(0, dst, x[src])
        degree = torch.bincount(dst, minlength=len(x)).clamp(min=1)
        return self.own(x) + self.neighbours(total / degree[:, None])


class Net(torch.nn.Module):
    def __init__(self, in_size, hidden_size, out_size):
        super().__init__()
        self.first, self.second = Mean(in_size, hidden_size), Mean(hidden_size, out_size)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def train(x, y, edge_index, train_idx, model, optimizer, epochs):
    graph = wb.Graph.from_edges(*edge_index, num_nodes=len(x))
    whole = wb.FullNeighborSampler(2).sample(graph, train_idx)
    parts = list(wb.micro_batches(whole.to_pyg(), 4))
    losses = []
    for _ in range(epochs):
        total_loss = 0
        optimizer.zero_grad()
        for part in parts:
            out = model(x[part.n_id], part.edge_index)[: part.batch_size]
            loss = F.cross_entropy(out, y[part.n_id[: part.batch_size]], reduction="sum") / len(train_idx)
            loss.backward()
            total_loss += loss.item()
        optimizer.step()
        losses.append(total_loss)
    return losses
