"""What lies on a device before a training step begins, as its allocator holds it."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from workbench.core.cpu_gauge import rounded_bytes, storages_of


def allocated_bytes(tensors: Iterable[Tensor | None]) -> int:
    """Bytes that the allocator gives to the tensors' storages, each once and whole.

    >>> a = torch.zeros(100)
    >>> allocated_bytes([a, a[1:], None, torch.zeros(1)])
    1024
    """
    storages = {storage._cdata: storage.nbytes() for tensor in tensors for storage in storages_of(tensor)}
    return sum(rounded_bytes(nbytes) for nbytes in storages.values())


def parameter_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Parameters and buffers of the model, and what else the optimizer updates."""
    return [*model.parameters(), *model.buffers(), *(p for group in optimizer.param_groups for p in group["params"])]


def state_tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The optimizer's state; without Adam's step counts, which are on the host unless made on a GPU."""
    return [
        value
        for values in optimizer.state.values()
        for name, value in values.items()
        if isinstance(value, Tensor) and (name != "step" or value.is_cuda)
    ]
