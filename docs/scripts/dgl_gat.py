"""DGL: GAT of several heads, with weight decay and clipped gradients."""

import torch
import torch.nn.functional as F
from dgl.dataloading import DataLoader, NeighborSampler
from dgl.nn import GATConv
from torch import nn

import workbench as wb


class Net(nn.Module):
    def __init__(self, in_size, hidden_size, out_size, heads=4):
        super().__init__()
        self.first = GATConv(in_size, hidden_size, heads, activation=F.elu, allow_zero_in_degree=True)
        self.second = GATConv(hidden_size * heads, out_size, 1, allow_zero_in_degree=True)

    def forward(self, blocks, h):
        return self.second(blocks[1], self.first(blocks[0], h).flatten(1)).mean(1)


def train(graph, train_idx, model, epochs):
    sampler = NeighborSampler([10, 10], prefetch_node_feats=["feat"], prefetch_labels=["label"])
    loader = DataLoader(graph, train_idx, sampler, batch_size=512, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.005, weight_decay=5e-4)
    losses = []
    for _ in range(epochs):
        for _, _, blocks in loader:
            optimizer.zero_grad()
            out = model(blocks, blocks[0].srcdata["feat"])
            loss = F.cross_entropy(out, blocks[-1].dstdata["label"])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    return losses


def train_in_parts(graph, train_idx, model, epochs):
    sampler = NeighborSampler([10, 10], prefetch_node_feats=["feat"], prefetch_labels=["label"])
    loader = DataLoader(graph, train_idx, sampler, batch_size=512, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.005, weight_decay=5e-4)
    losses = []
    for _ in range(epochs):
        for _, seeds, blocks in loader:
            optimizer.zero_grad()
            losses.append(0.0)
            for blocks in wb.micro_batches(blocks, 4):
                out = model(blocks, blocks[0].srcdata["feat"])
                loss = F.cross_entropy(out, blocks[-1].dstdata["label"], reduction="sum") / len(seeds)
                loss.backward()
                losses[-1] += loss.item()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return losses
