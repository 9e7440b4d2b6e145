"""A model that fails on demand, and its gradient accumulation with or without recovery."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.training.faults import out_of_memory
from tests.training.toys import PlainModel, relative_difference
from workbench.core.minibatch import MiniBatch
from workbench.memory.training_setup import Recovery
from workbench.training.accumulate import accumulate

TOLERANCE = 1e-10


class Splits(list):
    """An `on_split` callback that records its arguments."""

    def __call__(self, mb: MiniBatch, parts: list[MiniBatch], error: Exception) -> None:
        self.append((mb, parts, error))


class Faulty(PlainModel):
    """Calls `fault(phase, num_seeds)` in the forward pass and after computing the hidden layer's gradient."""

    def __init__(self, fault: Callable[[str, int], object]) -> None:
        super().__init__()
        self.fault = fault
        self.double()

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        first, second = self.layers
        self.fault("forward", blocks[-1].num_dst)
        h = first(blocks[0], x).tanh()
        if h.requires_grad:
            h.register_hook(lambda _: self._in_backward(blocks[-1].num_dst))
        return second(blocks[1], h)

    def _in_backward(self, num_seeds: int) -> None:
        self.fault("backward", num_seeds)


def faulty(fault: Callable[[str, int], object]) -> Faulty:
    torch.manual_seed(3)
    return Faulty(fault)


FEATURES = torch.linspace(-1, 1, 160, dtype=torch.float64).sin().view(40, 4)
LABELS = torch.arange(40) % 3


def run(model: nn.Module, micro: Any, recover: Recovery | None = None, **options: Any) -> Tensor:
    return accumulate(
        model,
        micro,
        lambda m: FEATURES[m.node_ids],
        lambda out, m: (out.square().sum(1) * (1 + m.seeds)).sum(),
        recover=recover,
        **options,
    )


def nothing(where: str, num_seeds: int) -> None:
    pass


def above(limit: int, where: str, error: Callable[[], Exception] = out_of_memory) -> Callable[[str, int], None]:
    """A fault for batches of more than `limit` seeds."""

    def fault(here: str, num_seeds: int) -> None:
        if here == where and num_seeds > limit:
            raise error()

    return fault


def assert_same(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert relative_difference(a, b) <= TOLERANCE
