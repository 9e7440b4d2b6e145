"""A training loop of DGL: features and labels in the graph, fetched by its DataLoader."""

import torch
import torch.nn.functional as F
from dgl.dataloading import DataLoader, NeighborSampler
from dgl.nn import SAGEConv

import workbench as wb


class SAGE(torch.nn.Module):
    def __init__(self, in_size, hidden_size, out_size):
        super().__init__()
        self.first, self.second = SAGEConv(in_size, hidden_size, "mean"), SAGEConv(hidden_size, out_size, "mean")

    def forward(self, blocks, x):
        return self.second(blocks[1], self.first(blocks[0], x).relu())


def train(graph, train_idx, model, optimizer, epochs):
    sampler = NeighborSampler([10, 25], prefetch_node_feats=["feat"], prefetch_labels=["label"])
    loader = DataLoader(graph, train_idx, sampler, batch_size=64, shuffle=True)
    losses = []
    for _ in range(epochs):
        total_loss = 0
        for _, seeds, blocks in loader:
            optimizer.zero_grad()
            for blocks in wb.micro_batches(blocks, 4):
                x = blocks[0].srcdata["feat"]
                y = blocks[-1].dstdata["label"]
                out = model(blocks, x)
                loss = F.cross_entropy(out, y, reduction="sum") / len(seeds)
                loss.backward()
                total_loss += loss.item()
            optimizer.step()
        losses.append(total_loss / len(loader))
    return losses
