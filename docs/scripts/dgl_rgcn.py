"""DGL: R-GCN on a graph with edge types, whose nodes have learned embeddings instead of features."""

import dgl
import torch
import torch.nn.functional as F
from dgl.dataloading import DataLoader, NeighborSampler
from dgl.nn import RelGraphConv
from torch import nn

import workbench as wb


class Net(nn.Module):
    def __init__(self, num_nodes, hidden_size, out_size, num_types=3):
        super().__init__()
        self.embedding = nn.Embedding(num_nodes, hidden_size)
        self.first = RelGraphConv(hidden_size, hidden_size, num_types, regularizer="basis", num_bases=2)
        self.second = RelGraphConv(hidden_size, out_size, num_types, regularizer="basis", num_bases=2)

    def forward(self, blocks):
        h = self.embedding(blocks[0].srcdata[dgl.NID])
        h = self.first(blocks[0], h, blocks[0].edata["type"]).relu()
        return self.second(blocks[1], h, blocks[1].edata["type"])


def train(graph, train_idx, model, epochs):
    loader = DataLoader(graph, train_idx, NeighborSampler([10, 10]), batch_size=512, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(epochs):
        for _, seeds, blocks in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(blocks), graph.ndata["label"][seeds])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def train_in_parts(graph, train_idx, model, epochs):
    loader = DataLoader(graph, train_idx, NeighborSampler([10, 10]), batch_size=512, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(epochs):
        for _, seeds, blocks in loader:
            optimizer.zero_grad()
            losses.append(0.0)
            for blocks in wb.micro_batches(blocks, 4):
                labels = graph.ndata["label"][blocks[-1].dstdata[dgl.NID]]
                loss = F.cross_entropy(model(blocks), labels, reduction="sum") / len(seeds)
                loss.backward()
                losses[-1] += loss.item()
            optimizer.step()
    return losses
