"""Copying and counting tensors that may share storage, each storage once."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

from workbench.kernels.buffers import to_device

Record = TypeVar("Record")


def _key(tensor: Tensor) -> int:
    """Return the storage's identity; its address would not do, since two arrays over one memory map may share it."""
    return tensor.untyped_storage()._cdata


def _whole(tensor: Tensor) -> Tensor:
    """Return the tensor's whole storage as a vector of its dtype."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    return torch.as_strided(tensor.detach(), (size,), (1,), 0)


def total_bytes(tensors: Iterable[Tensor | None]) -> int:
    """Return the bytes of the tensors; a storage that several of them share counts once, with its full size."""
    return sum(storage_bytes(tensors))


def storage_bytes(tensors: Iterable[Tensor | None]) -> list[int]:
    """Return the bytes of each storage that `move_all` would allocate for the tensors.

    Args:
        tensors: tensors of any kind; None and empty tensors are skipped.
    """
    present = [t for t in tensors if t is not None and t.numel()]
    users = Counter(_key(t) for t in present)
    shared = {_key(t): t.untyped_storage().nbytes() for t in present if users[_key(t)] > 1}
    return [t.numel() * t.element_size() for t in present if users[_key(t)] == 1] + list(shared.values())


def move_all(
    tensors: Mapping[Any, Tensor | None], device: Any, *, non_blocking: bool = False
) -> dict[Any, Tensor | None]:
    """Copy named tensors to a device; views of one storage stay views of one storage, unless they require gradients.

    Args:
        tensors: tensors by name; None stays None.
        device: target device.
        non_blocking: copy asynchronously from memory that is pinned, too; copies from pageable memory to a GPU are.
    """
    users = Counter(_key(t) for t in tensors.values() if t is not None and t.numel())
    moved: dict[Any, Tensor] = {}

    def move(tensor: Tensor | None) -> Tensor | None:
        if tensor is None or not tensor.numel() or users[_key(tensor)] == 1 or tensor.requires_grad:
            return None if tensor is None else to_device(tensor, device, non_blocking=non_blocking)
        key = (_key(tensor), tensor.dtype)
        if key not in moved:
            moved[key] = to_device(_whole(tensor), device, non_blocking=non_blocking)
        return moved[key].as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    return {name: move(tensor) for name, tensor in tensors.items()}


class TensorRecord:
    """Base of frozen records of tensors."""

    def _tensors(self) -> Mapping[Any, Tensor | None]:
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, counting each storage once."""
        return total_bytes(self._tensors().values())

    def to(self, device: Any, *, non_blocking: bool = False) -> Self:
        """Copy the record to a device; arrays that share storage keep sharing it."""
        moved = move_all(self._tensors(), device, non_blocking=non_blocking)
        return replace(self, **moved)  # pyright: ignore[reportArgumentType]


def all_on(tensors: Iterable[Tensor | None], device: Any) -> bool:
    """Return whether all tensors are on the device already, so that `move_all` would copy nothing."""
    device = torch.device(device)
    return all(t is None or t.device == device for t in tensors)


def same_record(record: Record, **changes: Any) -> Record:
    """Return a new record with the fields of a frozen dataclass, but without the arrays cached in it.

    The constructor's checks are not repeated, which take as long as a layer's pass over a small micro-batch.

    Args:
        changes: values of fields that differ, such that the new record is valid too.
    """
    new = object.__new__(type(record))
    values = {field.name: getattr(record, field.name) for field in fields(record)}  # type: ignore[arg-type]
    new.__dict__.update(values | changes)
    return new
