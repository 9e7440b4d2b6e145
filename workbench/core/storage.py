"""Tensors that may share storage: move and count each storage once."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor


def _key(tensor: Tensor) -> int:
    """Identity of the storage; its address is none: two arrays over one memory map may begin at the same byte."""
    return tensor.untyped_storage()._cdata


def _whole(tensor: Tensor) -> Tensor:
    """All of the tensor's storage as a vector of its dtype."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    return torch.as_strided(tensor.detach(), (size,), (1,), 0)


def total_bytes(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of the tensors, a storage that several of them share counted once and whole."""
    return sum(storage_bytes(tensors))


def storage_bytes(tensors: Iterable[Tensor | None]) -> list[int]:
    """Bytes of each storage that `move_all` makes of the tensors, empty ones left out."""
    present = [t for t in tensors if t is not None and t.numel()]
    users = Counter(_key(t) for t in present)
    shared = {_key(t): t.untyped_storage().nbytes() for t in present if users[_key(t)] > 1}
    return [t.numel() * t.element_size() for t in present if users[_key(t)] == 1] + list(shared.values())


def move_all(
    tensors: Mapping[Any, Tensor | None], device: Any, *, non_blocking: bool = False
) -> dict[Any, Tensor | None]:
    """Copies of named tensors on `device`; views of one storage stay such, but for those that require a gradient."""
    users = Counter(_key(t) for t in tensors.values() if t is not None and t.numel())
    moved: dict[Any, Tensor] = {}

    def move(tensor: Tensor | None) -> Tensor | None:
        if tensor is None or not tensor.numel() or users[_key(tensor)] == 1 or tensor.requires_grad:
            return None if tensor is None else tensor.to(device, non_blocking=non_blocking)
        key = (_key(tensor), tensor.dtype)
        if key not in moved:
            moved[key] = _whole(tensor).to(device, non_blocking=non_blocking)
        return moved[key].as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    return {name: move(tensor) for name, tensor in tensors.items()}
