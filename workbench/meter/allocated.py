"""Bytes that a call allocates on the CPU, freed or not: what reusing memory saves."""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Self

import torch
from torch import Tensor, nn

from workbench.core.errors import complete_despite_interrupt, deferred_interrupt
from workbench.meter.allocation_tracker import AllocationTracker, rounded_bytes, storages_of


def measure_allocated(fn: Callable[[], object]) -> int:
    """Measure the sum of all allocations of a call, each storage rounded up to 512 bytes.

    Args:
        fn: function to call once, without arguments. Results of PyTorch operators and buffers from `torch.empty` are
            counted; workspace inside operators and NumPy arrays are not.

    Returns:
        Bytes, including those that were freed during the call.
    """
    requests: list[int] = []
    tracker, block = AllocationTracker(lambda requested, live: requests.append(requested)), ExitStack()
    try:
        with deferred_interrupt(), paused_collection():
            tracker.start()
            block.callback(tracker.stop)
        fn()
    finally:
        complete_despite_interrupt(block.close)
    return sum(requests)


def allocated_bytes(tensors: Iterable[Tensor | None]) -> int:
    """Return the bytes that the allocator reserves for the tensors' storages, each storage once, with its full size.

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


@contextmanager
def paused_collection() -> Iterator[None]:
    """Keep reference cycles from being collected in the few steps from the count of live memory to the freeze."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class FrozenGarbage:
    """Keeps reference cycles that already exist from being collected in a `with` block, where they would free memory.

    Collecting them at entry would take long in a large process. If a block is active already, or the user froze the
    garbage collector, the block does nothing.
    """

    def __enter__(self) -> Self:
        self._frozen_here = gc.get_freeze_count() == 0
        if self._frozen_here:
            gc.freeze()
        return self

    def __exit__(self, *_: object) -> None:
        if self._frozen_here:
            gc.unfreeze()
