"""Tensors that are allocated before a training step starts: parameters, buffers and optimizer state."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from workbench.meter.storages import rounded_bytes, storages_of


def allocated_bytes(tensors: Iterable[Tensor | None]) -> int:
    """Return the bytes that the allocator reserves for the tensors' storages, each storage once, with its full size.

    Args:
        tensors: tensors of any kind; None is skipped.

    >>> a = torch.zeros(100)
    >>> allocated_bytes([a, a[1:], None, torch.zeros(1)])
    1024
    """
    given = (tensor for tensor in tensors if tensor is not None)
    storages = {storage._cdata: storage.nbytes() for tensor in given for storage in storages_of(tensor)}
    return sum(rounded_bytes(nbytes) for nbytes in storages.values())


def parameter_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the parameters and buffers of the model and all parameters of the optimizer, possibly repeated."""
    return [*model.parameters(), *model.buffers(), *(p for group in optimizer.param_groups for p in group["params"])]


def state_tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the tensors of the optimizer's state, without Adam's step counts, which are on the host by default."""
    return [
        value
        for values in optimizer.state.values()
        for name, value in values.items()
        if isinstance(value, Tensor) and (name != "step" or value.is_cuda)
    ]
