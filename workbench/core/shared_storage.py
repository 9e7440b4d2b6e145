"""Copying and counting tensors that may share storage, each storage once."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor

from workbench.kernels.buffers import byte_view, to_device

Record = TypeVar("Record")

_ALIGNMENT = 512  # of CUDA's allocator: packed tensors occupy as much of the device as separate ones


def _key(tensor: Tensor) -> int:
    """Return the storage's identity; its address would not do, since two arrays over one memory map may share it."""
    return tensor.untyped_storage()._cdata


def _whole(tensor: Tensor) -> Tensor:
    """Return the tensor's whole storage as a vector of bytes."""
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))


def _users(tensors: Iterable[Tensor | None]) -> Counter[int]:
    """Count the tensors of each storage."""
    return Counter(_key(t) for t in tensors if t is not None and t.numel())


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
    users = _users(tensors.values())
    moved: dict[int, Tensor] = {}

    def move(tensor: Tensor | None) -> Tensor | None:
        if tensor is None or not tensor.numel() or users[_key(tensor)] == 1 or tensor.requires_grad:
            return None if tensor is None else to_device(tensor, device, non_blocking=non_blocking)
        if (key := _key(tensor)) not in moved:
            moved[key] = to_device(_whole(tensor), device, non_blocking=non_blocking)
        return _view(moved[key], tensor)

    return {name: move(tensor) for name, tensor in tensors.items()}


def _view(whole: Tensor, like: Tensor) -> Tensor:
    """View bytes, uint8 [n], as a tensor in the place that another one has in its storage."""
    size = like.element_size()
    words = whole[: len(whole) // size * size].view(like.dtype)
    return words.as_strided(like.size(), like.stride(), words.storage_offset() + like.storage_offset())


def pack(tensors: Mapping[Any, Tensor | None]) -> dict[Any, Tensor]:
    """Copy tensors of the host into one buffer of pinned memory, which `move_all` copies to a GPU at once.

    Args:
        tensors: tensors by name. None, empty tensors, tensors of a device and those that require a gradient are left
            out, and so are all if they are in one pinned buffer already.

    Returns:
        The copies by name, contiguous, but for views of one storage, which stay views of one storage.
    """
    users, sources = _users(tensors.values()), dict[Any, Tensor]()
    host = {name: t for name, t in tensors.items() if t is not None and t.numel() and _is_data_of_host(t)}
    if len({_key(t) for t in host.values()}) == 1 and next(iter(host.values())).is_pinned():
        return {}
    for name, tensor in host.items():
        if users[_key(tensor)] == 1:
            sources[name] = byte_view(tensor)
        else:
            sources.setdefault(_key(tensor), _whole(tensor))
    sizes = [-(-len(source) // _ALIGNMENT) * _ALIGNMENT for source in sources.values()]
    buffer = torch.empty(sum(sizes), dtype=torch.uint8, pin_memory=bool(sizes))
    rooms = dict(zip(sources, buffer.split(sizes), strict=True)) if sizes else {}
    for place, source in sources.items():
        rooms[place][: len(source)].copy_(source)
    return {
        name: rooms[name][: t.nbytes].view(t.dtype).view(t.shape) if name in rooms else _view(rooms[_key(t)], t)
        for name, t in host.items()
    }


def move_packed(
    tensors: Mapping[Any, Tensor | None], device: Any, *, non_blocking: bool = False
) -> dict[Any, Tensor | None]:
    """Copy named tensors to a device, to a GPU in one copy that the host does not wait for. Arguments as `move_all`."""
    packed = pack(tensors) if torch.device(device).type == "cuda" else {}
    others = {name: tensor for name, tensor in tensors.items() if name not in packed}
    return move_all(others, device, non_blocking=non_blocking) | move_all(packed, device, non_blocking=True)


def _is_data_of_host(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.requires_grad


class TensorRecord:
    """Base of frozen records of tensors.

    Args:
        is_packed: all arrays go to a GPU in one copy, through one buffer of pinned memory; not for records as large as
            a graph.
    """

    is_packed: ClassVar[bool] = True

    def _tensors(self) -> Mapping[Any, Tensor | None]:
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, counting each storage once."""
        return total_bytes(self._tensors().values())

    def to(self, device: Any, *, non_blocking: bool = False) -> Self:
        """Copy the record to a device; arrays that share storage keep sharing it."""
        moved = self._moved(device, non_blocking)
        return replace(self, **moved)  # pyright: ignore[reportArgumentType]

    def record_stream(self, stream: Any) -> None:
        """Keep the arrays' memory from being reused before a stream of a GPU, which reads them, has come this far."""
        once = {_key(t): t for t in self._tensors().values() if t is not None and t.numel() and t.is_cuda}
        for tensor in once.values():
            tensor.record_stream(stream)

    def _moved(self, device: Any, non_blocking: bool) -> dict[Any, Tensor | None]:
        """Copy the tensors to a device."""
        move = move_packed if self.is_packed else move_all
        return move(self._tensors(), device, non_blocking=non_blocking)


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
