"""Modules without an analytic model, and their estimates beside the meter."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.memory.traced.test_sub_batches import skewed_batch
from workbench.core.minibatch import MiniBatch
from workbench.memory.estimate import MemoryEstimate
from workbench.memory.traced.predictor import TracedEstimator
from workbench.training.profile import EpochMemory, meter_epoch
from workbench.training.step import train_step

NODES = 6_000

BATCHES = {
    1: skewed_batch(NODES, 2_000, [7]),
    2: skewed_batch(NODES, 700, [4, 6]),
    3: skewed_batch(NODES, 150, [3, 4, 5]),
}

X, Y = torch.randn(NODES, 24), torch.arange(NODES) % 5

WITHIN = 0.1


def split(mb: MiniBatch, num_parts: int) -> list[MiniBatch]:
    """Split into parts of consecutive seeds and uneven lengths."""
    return mb.split((torch.linspace(0, 1, mb.num_seeds) ** 1.5 * num_parts).long().clamp(max=num_parts - 1))


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters())


def estimates(fitted: TracedEstimator, parts: Sequence[MiniBatch]) -> list[MemoryEstimate]:
    return [fitted(part, accumulating=position > 0) for position, part in enumerate(parts)]


def before_the_step(estimate: MemoryEstimate) -> int:
    return max(estimate.phase_bytes["forward"], estimate.phase_bytes["backward"])


def measure(
    model: nn.Module,
    parts: Sequence[MiniBatch],
    optimizer: torch.optim.Optimizer,
    y: Tensor = Y,
    loss_fn: Callable[..., Tensor] = F.cross_entropy,
    **options: Any,
) -> EpochMemory:
    """Metered memory of a step, after a warm-up step."""
    x = X.to(next(model.parameters()).dtype)

    def run(step: Sequence[MiniBatch], phase: Any) -> Tensor:
        return train_step(model, step, x, y, loss_fn, optimizer, phase=phase, verify=False, **options)

    train_step(model, parts[-1], x, y, loss_fn, optimizer)
    model.zero_grad()
    return meter_epoch(model, optimizer, [parts], run)


def errors(
    fitted: TracedEstimator, model: nn.Module, mb: MiniBatch, num_parts: int, optimizer: Any = None
) -> list[float]:
    """Relative errors of each part's forward and backward pass, and of the optimizer step."""
    parts = split(mb, num_parts)
    measured, expected = measure(model, parts, optimizer or adam(model)), estimates(fitted, parts)
    pairs = [
        *zip(map(before_the_step, expected), measured.by_part, strict=True),
        (expected[-1].phase_bytes["step"], measured.by_phase["step"]),
    ]
    return [e / m - 1 for e, m in pairs]
