"""Runs a model on the side: in another dtype, without dropout, and with everything that changes put back."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from workbench.core.interrupts import complete_despite_interrupt
from workbench.nn.signature import model_device

MODES = ("given", "stateful", "eval")
"""Modules that keep their mode: all but dropout, which a module may also apply by itself; those with buffers (such as
running statistics) and recurrent ones, which cuDNN differentiates in training mode only; none."""


@contextmanager
def borrowed_model(model: nn.Module, dtype: torch.dtype | None, *, modes: str = "stateful") -> Iterator[list[Tensor]]:
    """Give a model other parameters and buffers, of the same values, for the duration of a `with` block.

    Calls inside the block, also those by a function that has kept the model, compute with these. Afterwards the model's
    attributes are those from before: parameters, gradients, buffers, modes, hooks and values that layers cache. So is
    torch's random state, of the CPU and of the model's device.

    Args:
        model: a module whose parameters are not compiled or scripted.
        dtype: dtype of floating parameters and buffers; None for their own, which shares the parameters' memory.
        modes: a name of `MODES`, which modules keep their mode; all others run in eval mode, which turns dropout off.

    Yields:
        The parameters in use that require a gradient; gradients are accumulated in these alone.
    """
    modules = list(model.modules())
    before = [(module, dict(module.__dict__)) for module in modules]
    random = random_state(model)

    def put_back() -> None:
        for module, attributes in before:
            module.__dict__.clear()
            module.__dict__.update(attributes)
        torch.set_rng_state(random[0])
        if len(random) > 1:
            torch.cuda.set_rng_state(random[1], model_device(model) or "cuda")

    try:
        parameters: dict[nn.Parameter, nn.Parameter] = {}
        for module in modules:
            _lend(module, dtype, modes, parameters)
        yield [parameter for parameter in parameters.values() if parameter.requires_grad]
    finally:
        complete_despite_interrupt(put_back)


def random_state(model: nn.Module) -> list[Tensor]:
    """Return torch's random state, of the CPU and of the model's device, if that is a GPU."""
    device = model_device(model)
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device and device.type == "cuda" else ())]


def _lend(
    module: nn.Module, dtype: torch.dtype | None, modes: str, parameters: dict[nn.Parameter, nn.Parameter]
) -> None:
    """Replace a module's parameters, buffers, hooks and mode; parameters shared between modules stay shared."""
    given = module.__dict__
    for parameter in module._parameters.values():
        if parameter is not None and parameter not in parameters:
            value = _converted(parameter.detach(), dtype)
            parameters[parameter] = nn.Parameter(value, requires_grad=parameter.requires_grad)
    buffers = {
        name: None if buffer is None else _converted(buffer.detach(), dtype).clone()
        for name, buffer in module._buffers.items()
    }
    recurrent = isinstance(module, nn.RNNBase)
    given["_parameters"] = {name: None if p is None else parameters[p] for name, p in module._parameters.items()}
    given["_buffers"] = buffers
    given["_forward_hooks"] = module._forward_hooks.copy()
    stateful = recurrent or any(buffer is not None for buffer in buffers.values())
    is_kept = {"given": not isinstance(module, nn.modules.dropout._DropoutNd), "stateful": stateful, "eval": False}[
        modes
    ]
    given["training"] = module.training and is_kept
    if recurrent:
        given["dropout"] = 0.0


def _converted(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    return tensor if dtype is None or not tensor.is_floating_point() else tensor.to(dtype)
