"""DGL: messages computed from edge features, and two losses: the class, and the node's first feature again."""

import dgl.function as fn
import torch
import torch.nn.functional as F
from dgl.dataloading import DataLoader, NeighborSampler
from torch import nn

import workbench as wb


class EdgeConv(nn.Module):
    def __init__(self, in_size, edge_size, out_size):
        super().__init__()
        self.message, self.own = nn.Linear(in_size + edge_size, out_size), nn.Linear(in_size, out_size)

    def forward(self, block, h):
        with block.local_scope():
            block.srcdata["h"] = h
            block.apply_edges(lambda edges: {"m": self.message(torch.cat([edges.src["h"], edges.data["feat"]], 1))})
            block.update_all(fn.copy_e("m", "m"), fn.mean("m", "mean"))
            return self.own(h[: block.num_dst_nodes()]) + block.dstdata["mean"]


class Net(nn.Module):
    def __init__(self, in_size, hidden_size, out_size, edge_size=4):
        super().__init__()
        self.first, self.second = (
            EdgeConv(in_size, edge_size, hidden_size),
            EdgeConv(hidden_size, edge_size, hidden_size),
        )
        self.label, self.feature = nn.Linear(hidden_size, out_size), nn.Linear(hidden_size, 1)

    def forward(self, blocks, h):
        h = self.second(blocks[1], self.first(blocks[0], h).relu()).relu()
        return self.label(h), self.feature(h)[:, 0]


def train(graph, train_idx, model, epochs):
    sampler = NeighborSampler([10, 10], prefetch_node_feats=["feat"], prefetch_edge_feats=["feat"])
    loader = DataLoader(graph, train_idx, sampler, batch_size=512, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(epochs):
        for _, seeds, blocks in loader:
            optimizer.zero_grad()
            label, feature = model(blocks, blocks[0].srcdata["feat"])
            loss = F.cross_entropy(label, graph.ndata["label"][seeds])
            loss = loss + 0.1 * F.mse_loss(feature, graph.ndata["feat"][seeds, 0])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def train_in_parts(graph, train_idx, model, epochs):
    sampler = NeighborSampler([10, 10], prefetch_node_feats=["feat"], prefetch_edge_feats=["feat"])
    loader = DataLoader(graph, train_idx, sampler, batch_size=512, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(epochs):
        for _, whole, blocks in loader:
            optimizer.zero_grad()
            losses.append(0.0)
            for blocks in wb.micro_batches(blocks, 4):
                seeds = blocks[-1].dstdata["_ID"]
                label, feature = model(blocks, blocks[0].srcdata["feat"])
                loss = F.cross_entropy(label, graph.ndata["label"][seeds], reduction="sum")
                loss = loss + 0.1 * F.mse_loss(feature, graph.ndata["feat"][seeds, 0], reduction="sum")
                loss = loss / len(whole)
                loss.backward()
                losses[-1] += loss.item()
            optimizer.step()
    return losses
