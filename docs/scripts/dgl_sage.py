"""DGL: GraphSAGE in bfloat16 by autocast, with a cosine schedule of the learning rate."""

import torch
import torch.nn.functional as F
from dgl.dataloading import DataLoader, NeighborSampler
from dgl.nn import SAGEConv
from torch import nn

import workbench as wb


class Net(nn.Module):
    def __init__(self, in_size, hidden_size, out_size):
        super().__init__()
        self.layers = nn.ModuleList()
        self.layers.append(SAGEConv(in_size, hidden_size, "mean"))
        self.layers.append(SAGEConv(hidden_size, hidden_size, "mean"))
        self.layers.append(SAGEConv(hidden_size, out_size, "mean"))

    def forward(self, blocks, h):
        for i, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            h = layer(block, h)
            if i < len(self.layers) - 1:
                h = h.relu()
        return h


def train(graph, train_idx, model, epochs):
    sampler = NeighborSampler([15, 10, 10], prefetch_node_feats=["feat"], prefetch_labels=["label"])
    loader = DataLoader(graph, train_idx, sampler, batch_size=1024, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    losses = []
    for _ in range(epochs):
        for _, _, blocks in loader:
            optimizer.zero_grad()
            x, y = blocks[0].srcdata["feat"], blocks[-1].dstdata["label"]
            with torch.autocast(x.device.type, torch.bfloat16):
                loss = F.cross_entropy(model(blocks, x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        scheduler.step()
    return losses


def train_in_parts(graph, train_idx, model, epochs):
    sampler = NeighborSampler([15, 10, 10], prefetch_node_feats=["feat"], prefetch_labels=["label"])
    loader = DataLoader(graph, train_idx, sampler, batch_size=1024, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    losses = []
    for _ in range(epochs):
        for _, seeds, blocks in loader:
            optimizer.zero_grad()
            total = 0
            for blocks in wb.micro_batches(blocks, 4):
                x, y = blocks[0].srcdata["feat"], blocks[-1].dstdata["label"]
                with torch.autocast(x.device.type, torch.bfloat16):
                    loss = F.cross_entropy(model(blocks, x), y, reduction="sum") / len(seeds)
                loss.backward()
                total += loss.item()
            optimizer.step()
            losses.append(total)
        scheduler.step()
    return losses
