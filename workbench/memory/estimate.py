"""`estimate_memory`: what a training step needs on the device, before it runs."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from workbench.core.minibatch import MiniBatch
from workbench.memory.kernels import Kernels
from workbench.memory.layers import PRICES
from workbench.memory.optimizer import OptimizerMemory
from workbench.memory.record import MemoryEstimate
from workbench.memory.sizes import BatchSizes
from workbench.memory.step import price_step
from workbench.nn.model import GNN
from workbench.nn.sage import SAGELayer

Optimizer = str | torch.optim.Optimizer


class Estimator(Protocol):
    """Estimates micro-batches of one model."""

    def __call__(self, mb: MiniBatch | BatchSizes, /, *, accumulating: bool = False) -> MemoryEstimate: ...


def estimate_memory(
    model: nn.Module,
    mb: MiniBatch,
    *,
    optimizer: Optimizer = "adam",
    kernels: Kernels | None = None,
    accumulating: bool = False,
    recover: bool = False,
    in_dim: int | None = None,
    loss_fn: Callable[..., Tensor] = cross_entropy,
) -> MemoryEstimate:
    return estimator_for(
        model, mb, optimizer=optimizer, kernels=kernels, recover=recover, in_dim=in_dim, loss_fn=loss_fn
    )(mb, accumulating=accumulating)


def estimator_for(
    model: nn.Module,
    mb: MiniBatch,
    *,
    optimizer: Optimizer = "adam",
    kernels: Kernels | None = None,
    recover: bool = False,
    in_dim: int | None = None,
    loss_fn: Callable[..., Tensor] = cross_entropy,
) -> Estimator:
    if not is_known(model):
        from workbench.memory.fit import fit_memory

        return fit_memory(model, mb, optimizer=optimizer, in_dim=in_dim, loss_fn=loss_fn, recover=recover)
    assert isinstance(model, GNN)
    kernels = kernels or Kernels.of(model)
    held = OptimizerMemory.of(optimizer, model, on_cuda=kernels.device == "cuda")
    degrees = any(isinstance(layer, SAGELayer) and layer.aggregator == "lstm" for layer in model.layers)

    def estimate(batch: MiniBatch | BatchSizes, /, *, accumulating: bool = False) -> MemoryEstimate:
        sizes = batch if isinstance(batch, BatchSizes) else BatchSizes.of(batch, degrees=degrees)
        return price_step(model, sizes, held, kernels, accumulating=accumulating, recover=recover)

    return estimate


def is_known(model: nn.Module) -> bool:
    """Whether the analytic model prices all of a model's layers."""
    return type(model) is GNN and all(type(layer) in PRICES for layer in model.layers)
