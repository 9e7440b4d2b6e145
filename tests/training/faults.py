"""Fault injection: OOM errors at chosen allocations of a training step."""

import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

WORK = ("fetch", "transfer", "forward", "backward")


def out_of_memory() -> Exception:
    return torch.OutOfMemoryError("no room")


def cpu_allocator_error() -> Exception:
    """The error that torch's CPU allocator raises."""
    return RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: …")


class FailAt(TorchDispatchMode):
    """Counts the operators that allocate, within phases, and makes some of them fail.

    Args:
        at: numbers, from 0, of the operators that fail.
        phases: phases in which operators count; pass `watch` as the `phase=` of a step.
        error: constructs the error to raise.
    """

    def __init__(
        self,
        at: Collection[int] = (),
        phases: Collection[str] = WORK,
        error: Callable[[], Exception] = out_of_memory,
    ) -> None:
        super().__init__()
        self.at, self.phases, self.error = at, phases, error
        self.count = self.refused = 0
        self._storages: list[weakref.ref] = []  # since the last fetch
        self._inside = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch._dynamo is imported, which takes seconds

    @contextmanager
    def watch(self, name: str) -> Iterator[None]:
        self._inside = name in self.phases
        if name == "fetch":
            self._storages.clear()
        try:
            yield
        finally:
            self._inside = False

    @property
    def alive(self) -> int:
        """Number of storages allocated since the last fetch, within phases, that are still alive."""
        return sum(storage() is not None for storage in self._storages)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self._inside or not _allocates(func):
            return func(*args, **(kwargs or {}))
        self.count += 1
        if self.count - 1 in self.at:
            self.refused += 1
            raise self.error()
        result = func(*args, **(kwargs or {}))
        self._storages += [weakref.ref(t.untyped_storage()) for t in tree_iter(result) if isinstance(t, Tensor)]
        return result


def _allocates(func: Any) -> bool:
    """Return whether an operator is neither in-place, nor a view, nor a profiler event."""
    return (
        func.namespace == "aten" and not func._schema.is_mutable and not any(r.alias_info for r in func._schema.returns)
    )
