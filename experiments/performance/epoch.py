"""An epoch of training beside DGL: sampling, reading features, forward and backward passes, and Adam's steps.

Both sides train GraphSAGE with mean aggregation on the same training nodes with the same fanouts, from the same initial
weights, in one process on the same threads. The library's first layer aggregates the features where they are
(`workbench.training.AggregateOnRead`). DGL runs its own sampler, on the format that it samples from, built beforehand,
and its own layers in the loop of its tutorials, without the overhead of its `DataLoader`.

Reasons for the ratios: narrow layers consist of sampling, reading features and sums of rows, which are the library's
own; wide ones mostly of dense products, which are torch's on both sides and bound the ratio. Features have the width of
the published data set, and random values, on which times do not depend.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Literal

import pandas as pd
import torch
from pydantic import PositiveInt
from torch import nn
from torch.nn import functional as F

import workbench as wb
from experiments.performance import speedup
from experiments.performance.timing import beside_dgl, import_dgl
from workbench.core.dataset import Dataset
from workbench.experiment import claims
from workbench.experiment.config import ModelConfig
from workbench.experiment.finding import Finding
from workbench.interop import graph_to_dgl
from workbench.nn.gnn import GNN

NARROW, EVERY = 2.0, 1.2
"""Claimed ratios: of the narrowest model, and of all."""


class Config(ModelConfig):
    """One width of the model.

    Args:
        model: DGL is compared in this model alone.
        device: only the CPU is benchmarked.
        batch_size: seeds of a batch.
        max_batches: batches of an epoch, which ends early; None: all.
        repeats: rounds that are timed, of one epoch per side each.
    """

    model: Literal["sage-mean"] = "sage-mean"
    device: Literal["cpu"] = "cpu"
    batch_size: PositiveInt
    max_batches: PositiveInt | None = None
    repeats: PositiveInt


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    ids = data.train_idx[: None if config.max_batches is None else config.max_batches * config.batch_size]
    model, peer = config.build(data), DglSage(data.num_features, config.hidden_dim, data.num_classes, config.fanouts)
    for ours, theirs in zip(model.layers, peer.layers, strict=True):
        ours.load_state_dict(theirs.state_dict())
    check_equal(config, data, model, peer)
    sides = our_epoch(config, data, ids, model), dgl_epoch(config, data, ids, peer)
    times = beside_dgl(*sides, repeats=config.repeats)
    yield {"graph": config.dataset.name, "num_batches": -(-len(ids) // config.batch_size), **times}


class DglSage(nn.Module):
    """The model of DGL's tutorial on neighbour sampling, with as many layers as fanouts."""

    def __init__(self, in_dim: int, hidden_dim: int, out_dim: int, fanouts: tuple[int, ...]) -> None:
        super().__init__()
        dims = [in_dim, *[hidden_dim] * (len(fanouts) - 1), out_dim]
        conv = import_dgl().nn.SAGEConv
        self.layers = nn.ModuleList([conv(dims[i], dims[i + 1], "mean") for i in range(len(fanouts))])

    def forward(self, blocks: list[Any], x: torch.Tensor) -> torch.Tensor:
        for position, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            x = layer(block, x)
            x = x if position == len(blocks) - 1 else x.relu()
        return x


def check_equal(config: Config, data: Dataset, model: GNN, peer: DglSage) -> None:
    """Check that both models compute the same on one batch.

    Args:
        config: the point.
        data: its data set.
        model: of this library.
        peer: of DGL, with the same weights.

    Raises:
        AssertionError: they differ.
    """
    batch = wb.NeighborSampler(config.fanouts).sample(data.graph, data.train_idx[: config.batch_size])
    x = data.x[batch.node_ids]
    with torch.no_grad():
        torch.testing.assert_close(model(batch.blocks, x), peer(batch.to_dgl(), x), rtol=1e-3, atol=1e-3)


def our_epoch(config: Config, data: Dataset, ids: torch.Tensor, model: GNN) -> Callable[[], None]:
    """A function that trains for an epoch with this library, another one at every call."""
    sampler, epochs, optimizer = wb.NeighborSampler(config.fanouts), count(), torch.optim.Adam(model.parameters())
    x = wb.training.AggregateOnRead(data.x)

    def epoch() -> None:
        batches = wb.batches(
            data.graph, ids, sampler=sampler, batch_size=config.batch_size, epoch=next(epochs), seed=config.seed
        )
        for _, batch in batches:
            wb.train_step(model, batch, x, data.y, F.cross_entropy, optimizer)

    return epoch


def dgl_epoch(config: Config, data: Dataset, ids: torch.Tensor, model: DglSage) -> Callable[[], None]:
    """A function that trains for an epoch with DGL."""
    graph = graph_to_dgl(data.graph).formats("csc")
    sampler = import_dgl().dataloading.NeighborSampler(list(config.fanouts))
    optimizer = torch.optim.Adam(model.parameters())

    def epoch() -> None:
        for seeds in ids[torch.randperm(len(ids))].split(config.batch_size):
            inputs, outputs, blocks = sampler.sample_blocks(graph, seeds)
            loss = F.cross_entropy(model(blocks, data.x[inputs]), data.y[outputs])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return epoch


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    rows = table.assign(width=table.hidden_dim.map("width {}".format), seeds=table.batch_size.map("{:,} seeds".format))
    return speedup.draw_ratios(rows, panel="graph", case=["width"], group="seeds", title="An epoch of training")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    ratio = {"value": "ratio_best", "by": ["graph", "hidden_dim"], "form": ".2f", "timed": True}
    narrow = table.query("hidden_dim == hidden_dim.min()")
    every = f"an epoch takes DGL at least {EVERY:g} times as long at every width"
    least = f"and at least {NARROW:g} times as long at the smallest width"
    return [
        claims.within("faster-at-every-width", every, table, least=EVERY, **ratio),
        claims.within("faster-in-narrow-layers", least, narrow, least=NARROW, **ratio),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Ratios over all widths, and by width."""
    of = f"an epoch of training, batches of {table.batch_size.iloc[0]:,} seeds"
    widths = {f"{of}: width {width}": rows for width, rows in table.groupby("hidden_dim", sort=False)}
    return speedup.summary({of: table, **widths})
