"""A custom model over blocks in plain torch, and small batches."""

import torch
from torch import Tensor, nn

from tests.strategies import random_graph, random_minibatch
from workbench.core.block import Block
from workbench.core.minibatch import MiniBatch


class PlainLayer(nn.Module):
    """Mean over the in-neighbours plus the node itself."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.self_linear, self.neighbour_linear = nn.Linear(in_dim, out_dim), nn.Linear(in_dim, out_dim, bias=False)

    def forward(self, block: Block, h: Tensor) -> Tensor:
        messages = self.neighbour_linear(h)[block.indices]
        total = h.new_zeros(block.num_dst, messages.shape[1]).index_add(0, block.destinations, messages)
        return self.self_linear(h[: block.num_dst]) + total / block.in_degrees().clamp(min=1)[:, None]


class PlainModel(nn.Module):
    """A two-layer model whose forward takes only `(blocks, x)`."""

    def __init__(self, in_dim: int = 4, out_dim: int = 3, hidden_dim: int = 5) -> None:
        super().__init__()
        self.layers = nn.ModuleList([PlainLayer(in_dim, hidden_dim), PlainLayer(hidden_dim, out_dim)])

    def forward(self, blocks: tuple[Block, ...], x: Tensor) -> Tensor:
        first, second = self.layers
        return second(blocks[1], first(blocks[0], x).tanh())


def toy_batch(num_nodes: int = 40, num_seeds: int = 13, step: int = 3) -> MiniBatch:
    """A two-layer batch of a random graph."""
    return random_minibatch(random_graph(num_nodes, 5 * num_nodes), fanouts=(3, 2), num_seeds=num_seeds, step=step)


def gradients(model: nn.Module) -> Tensor:
    """All gradients as one vector, zeros for parameters without one."""
    return torch.cat(
        [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in model.parameters()]
    )


def relative_difference(a: Tensor, b: Tensor) -> float:
    """‖a − b‖ / ‖b‖."""
    return float((a - b).norm() / b.norm())
