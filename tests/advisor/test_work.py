"""`step_work`: what a step's layers read, however they are nested."""

from typing import Any

import torch
from torch.nn.functional import cross_entropy

import workbench as wb
from workbench.advisor.work import step_work
from workbench.nn.sage import SAGELayer


class Wrapped(torch.nn.Module):
    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, block: wb.Block, h: torch.Tensor) -> Any:
        return self.layer(block, h)


class Twice(torch.nn.Module):
    """Calls one layer on all blocks."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, blocks: list[wb.Block], h: torch.Tensor) -> torch.Tensor:
        for block in blocks:
            h = self.layer(block, h)
        return h


def test_a_layer_inside_another_is_counted_once_per_call():
    ids = torch.arange(20)
    graph = wb.Graph.from_edges(torch.cat([ids, ids]), torch.cat([ids.roll(1), ids.roll(2)]), num_nodes=20)
    mb = wb.NeighborSampler([2, 2]).sample(graph, ids[:4])
    layer = SAGELayer(8, 8)
    bare, nested = (
        step_work(Twice(each), mb, torch.ones(20, 8), ids % 8, cross_entropy)
        for each in (layer, Wrapped(Wrapped(layer)))
    )
    assert nested == bare
    assert bare.widths == (32, 32)


def test_the_work_of_the_optimizer_does_not_grow_with_the_batch():
    ids = torch.arange(400)
    graph = wb.Graph.from_edges(torch.cat([ids, ids]), torch.cat([ids.roll(1), ids.roll(2)]), num_nodes=400)
    model = wb.build_model("sage-mean", in_dim=8, hidden_dim=8, out_dim=8, seed=0)
    x, y, sampler = torch.ones(400, 8), ids % 8, wb.NeighborSampler([2, 2])
    few, many = (step_work(model, sampler.sample(graph, ids[:n]), x, y, cross_entropy) for n in (10, 300))
    assert many.optimizer_bytes == few.optimizer_bytes > 6 * sum(p.nbytes for p in model.parameters())
    assert many.nbytes > 10 * few.nbytes
