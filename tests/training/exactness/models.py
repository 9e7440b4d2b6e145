"""Models with and without rows that depend on each other, and batches for them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import workbench as wb
from tests.training.toys import PlainLayer, toy_batch

BATCH = toy_batch()

X = torch.linspace(-1, 1, 160).sin().view(40, 4)


class Centred(nn.Module):
    """Subtracts the mean over all nodes."""

    def forward(self, h: Tensor) -> Tensor:
        return h - h.mean(0)


class Two(nn.Module):
    """Two layers with a module in between, and whatever a test needs."""

    def __init__(self, between: nn.Module | Callable[[Tensor], Tensor] = torch.tanh, *, dim: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList([PlainLayer(dim, 5), PlainLayer(5, 3)])
        self.between = between

    def forward(self, blocks: Any, x: Tensor) -> Any:
        return self.layers[1](blocks[1], self.between(self.layers[0](blocks[0], x)))


def train(model: nn.Module, micro: Any, **options: Any) -> None:
    accumulate_options = {"read": lambda m: X[m.node_ids], "loss_of": lambda out, m: out.sum()}
    wb.accumulate(model, micro, *accumulate_options.values(), **options)


def halves(mb: wb.MiniBatch = BATCH) -> list[wb.MiniBatch]:
    return mb.split(torch.arange(mb.num_seeds) % 2)
