"""Lightning: a module whose training step returns a loss, and one that optimises by hand to add up parts."""

import torch
import torch.nn.functional as F
from pytorch_lightning import LightningModule, Trainer
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv

import workbench as wb


class Net(torch.nn.Module):
    def __init__(self, in_size, hidden_size, out_size):
        super().__init__()
        self.convs = torch.nn.ModuleList([SAGEConv(in_size, hidden_size), SAGEConv(hidden_size, out_size)])

    def forward(self, x, edge_index):
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


class Whole(LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model, self.losses = model, []

    def training_step(self, batch, _):
        out = self.model(batch.x, batch.edge_index)[: batch.batch_size]
        loss = F.cross_entropy(out, batch.y[: batch.batch_size])
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.003)


class InParts(LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model, self.losses = model, []
        self.automatic_optimization = False

    def training_step(self, whole, _):
        self.optimizers().zero_grad()
        self.losses.append(0.0)
        for batch in wb.micro_batches(whole, 4):
            out = self.model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size], reduction="sum") / whole.batch_size
            self.manual_backward(loss)
            self.losses[-1] += loss.item()
        self.optimizers().step()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.003)


def fit(module, data, train_idx, epochs):
    loader = NeighborLoader(data, num_neighbors=[15, 10], input_nodes=train_idx, batch_size=1024, shuffle=True)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    Trainer(max_epochs=epochs, accelerator="cpu", **quiet).fit(module, loader)
    return module.losses


def train(data, train_idx, model, epochs):
    return fit(Whole(model), data, train_idx, epochs)


def train_in_parts(data, train_idx, model, epochs):
    return fit(InParts(model), data, train_idx, epochs)
