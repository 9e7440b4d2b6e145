"""Tensors of a known size."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

KIB = 1024


def kib(count: int) -> Tensor:
    return torch.empty(count * KIB, dtype=torch.uint8)


def graph(nodes: int = 500, edges: int = 4000, width: int = 32) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(nodes, width), torch.randint(0, nodes, (edges,)), torch.randint(0, nodes, (edges,))


def gathered(
    gather: Callable[[Tensor, Tensor], Tensor], add: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Callable[[], Callable[[], object]]:
    """Return the setup of a layer in plain torch whose sources require a gradient and are used twice."""

    def setup() -> Callable[[], object]:
        x, src, dst = graph()
        weight = nn.Parameter(torch.randn(32, 32))

        def step() -> None:
            h = x @ weight
            messages = gather(h, src)  # kept alive, so that the peak is where their gradient is summed by source
            (add(torch.zeros_like(h), dst, messages) + h).relu().square().sum().backward()
            weight.grad = None

        return step

    return setup


def by_select(h: Tensor, src: Tensor) -> Tensor:
    return h.index_select(0, src)
