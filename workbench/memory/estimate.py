"""`estimate_memory`: what a training step needs on the device, before it runs."""

from collections.abc import Callable
from types import NoneType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from workbench.core.errors import check_at_least, check_type
from workbench.core.minibatch import MiniBatch
from workbench.memory.analytic.dense import NORMS, SAVE_INPUT, SAVE_RESULT
from workbench.memory.analytic.layers import PRICES
from workbench.memory.analytic.loss import price_of
from workbench.memory.analytic.step import input_width, price_step
from workbench.memory.kernels import Kernels
from workbench.memory.optimizer import OPTIMIZERS, OptimizerMemory
from workbench.memory.record import MemoryEstimate
from workbench.memory.sizes import BatchSizes
from workbench.nn.dropout import HashDropout
from workbench.nn.model import GNN
from workbench.nn.sage import SAGELayer

Optimizer = str | torch.optim.Optimizer


class Estimator(Protocol):
    """Estimates micro-batches of one model."""

    def __call__(self, mb: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate: ...


def estimate_memory(
    model: nn.Module,
    mb: MiniBatch,
    *,
    optimizer: Optimizer = "adam",
    kernels: Kernels | str | None = None,
    accumulating: bool = False,
    recover: bool = False,
    in_dim: int | None = None,
    loss_fn: Callable[..., Tensor] = cross_entropy,
) -> MemoryEstimate:
    """What `workbench.train_step` needs on the device for one micro-batch, by term and by phase.

    Models of `workbench.build_model` are priced from the batch's sizes alone, in about half a millisecond (an LSTM,
    which makes tensors for every in-degree, in some more): every tensor of the step is followed from its making to its
    end, as the kernels and torch's autograd make and drop them. Any other module is traced on small parts of `mb`, the
    sizes of its tensors are matched to those of the batch, and the estimate says how far off it was on parts held out.

    Args:
        model: as `train_step` calls it, in the mode (train or eval) that it is in; features come in its dtype.
        mb: the micro-batch, or the whole batch; all of its seeds have labels.
        optimizer: "adam", "adamw" or "sgd" with torch's defaults, or an optimizer; its state counts as there.
        kernels: which to price, or just "cpu" or "cuda"; None: those of the model's device. A model on the CPU can be
            priced for a GPU.
        accumulating: gradients of earlier micro-batches of the same batch are there: true for all but the first.
        recover: the step is one with `train_step(recover=…)`, which keeps a micro-batch's gradients apart.
        in_dim: channels of the features, needed for modules that are traced.
        loss_fn: of torch: `cross_entropy` with classes, or `binary_cross_entropy_with_logits` with labels in the
            dtype of the model; any with classes for modules that are traced.

    Returns:
        The estimate; `peak_bytes` is comparable with that of `workbench.profile_epoch`.

    Raises:
        ValueError: a model of another number of layers than the batch has or of another width, an unknown optimizer or
            one of another model, a loss that is not priced, kernels for a module that must be traced where it is, or a
            traced step that fails.
        TypeError: something else than a batch or an optimizer.

    Source: Betty (ASPLOS 2023), section 4.4, goes by eight terms: `workbench.memory.betty`.
    """
    options = {"optimizer": optimizer, "kernels": kernels, "recover": recover, "in_dim": in_dim, "loss_fn": loss_fn}
    return estimator_for(model, mb, **options)(mb, accumulating=accumulating)


def estimator_for(
    model: nn.Module,
    mb: MiniBatch,
    *,
    optimizer: Optimizer = "adam",
    kernels: Kernels | str | None = None,
    recover: bool = False,
    in_dim: int | None = None,
    loss_fn: Callable[..., Tensor] = cross_entropy,
) -> Estimator:
    """`estimate_memory` for many micro-batches of one batch: what does not depend on them is found once.

    Args:
        model: see `estimate_memory`, as for all others.
        mb: the batch that they are parts of; modules that are not known are traced on parts of it.

    Raises:
        ValueError: see `estimate_memory`.
    """
    check_type("model", model, nn.Module, "pass the torch.nn.Module first, then the batch")
    if not isinstance(mb, MiniBatch):
        raise TypeError(f"mb is a {type(mb).__name__}; pass a MiniBatch (MiniBatch.from_dgl makes one of DGL's blocks)")
    check_type("kernels", kernels, (Kernels, str, NoneType), 'pass "cpu", "cuda", a Kernels, or None')
    if not isinstance(optimizer, str | torch.optim.Optimizer):
        raise TypeError(f"optimizer is {optimizer!r}; pass a name ({', '.join(OPTIMIZERS)}) or an optimizer")
    if in_dim is not None:
        check_at_least("in_dim", in_dim, 1, most=2**31 - 1)
    wanted = Kernels(kernels) if isinstance(kernels, str) else kernels
    if not is_known(model):
        return _traced(model, mb, wanted, optimizer=optimizer, in_dim=in_dim, loss_fn=loss_fn, recover=recover)
    assert isinstance(model, GNN)
    _check_fits(model, mb, in_dim)
    chosen, price_loss = (wanted or Kernels.of(model)).serving(model), price_of(loss_fn)
    held = OptimizerMemory.of(optimizer, model, on_cuda=chosen.device == "cuda")
    degrees = any(isinstance(layer, SAGELayer) and layer.aggregator == "lstm" for layer in model.layers)

    def estimate(part: MiniBatch, /, *, accumulating: bool = False) -> MemoryEstimate:
        sizes = BatchSizes.of(part, degrees=degrees)
        return price_step(model, sizes, held, chosen, price_loss, accumulating=accumulating, recover=recover)

    return estimate


def _traced(
    model: nn.Module, mb: MiniBatch, kernels: Kernels | None, *, in_dim: int | None, **options: Any
) -> Estimator:
    from workbench.memory.traced.fit import fit_memory

    name = type(model).__name__
    if in_dim is None:
        raise ValueError(f"a {name} is not known and must be traced; say how wide its features are: in_dim=x.shape[1]")
    if kernels is not None and kernels.device != Kernels.of(model).device:
        raise ValueError(
            f"kernels are {kernels}, but a {name} is not known and must be traced where it is; move it to that "
            "device, or leave kernels out"
        )
    return fit_memory(model, mb, in_dim=in_dim, **options)


def _check_fits(model: GNN, mb: MiniBatch, in_dim: int | None) -> None:
    if len(model.layers) != len(mb.blocks):
        raise ValueError(
            f"the model has {len(model.layers)} layers, the batch {len(mb.blocks)} blocks; give it one each"
        )
    if in_dim not in (None, input_width(model)):
        raise ValueError(f"in_dim is {in_dim}, but the model reads {input_width(model)} channels; leave it out")


def is_known(model: nn.Module) -> bool:
    """Whether the analytic model prices all of a model: its layers and all that they are made of."""
    if type(model) is not GNN or type(model.activation) not in (*SAVE_RESULT, *SAVE_INPUT):
        return False
    between = all(type(norm) in NORMS for norm in model.norms) and all(type(d) is HashDropout for d in model.dropouts)
    return between and all(type(layer) in PRICES and _is_plain(layer) for layer in model.layers)


def _is_plain(layer: nn.Module) -> bool:
    """Made of what its constructor makes; subclasses and parametrised modules are of other types."""
    return all(
        type(child) in (nn.Linear, nn.LSTM)
        or (name == "mlp" and all(type(part) in (nn.Linear, nn.ReLU, *NORMS) for part in child.children()))
        for name, child in layer.named_children()
    )
