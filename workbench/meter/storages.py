"""Storages of tensors, and the bytes that an allocator reserves for them."""

import gc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, UntypedStorage

ALLOCATION_BYTES = 512
"""Granularity of CUDA's caching allocator; storages are rounded up to it on every device."""

_PROBE = torch.empty(0)  # found among the live tensors if their classes can be seen


def rounded_bytes(nbytes: int) -> int:
    """Return the bytes that the allocator reserves for a storage.

    >>> rounded_bytes(0), rounded_bytes(1), rounded_bytes(512)
    (0, 512, 512)
    """
    return -(-nbytes // ALLOCATION_BYTES) * ALLOCATION_BYTES


def storages_of(value: Tensor) -> Iterator[UntypedStorage]:
    """Yield the storages of a tensor: one, or those of a sparse tensor's components."""
    if value.layout is torch.strided:
        try:
            yield value.untyped_storage()
        except (NotImplementedError, RuntimeError, ValueError):  # wrapper subclasses and lazy parameters have no memory
            return
    elif value.layout is torch.sparse_coo:
        yield value._indices().untyped_storage()
        yield value._values().untyped_storage()
    elif value.layout in (torch.sparse_csr, torch.sparse_bsr):
        yield from (t.untyped_storage() for t in (value.crow_indices(), value.col_indices(), value.values()))
    elif value.layout in (torch.sparse_csc, torch.sparse_bsc):
        yield from (t.untyped_storage() for t in (value.ccol_indices(), value.row_indices(), value.values()))


def add_tensors(values: object, found: list[Tensor]) -> None:
    """Append the tensors in nested tuples, lists and dictionaries to a list; tree_leaves is as slow as an op."""
    if isinstance(values, Tensor):
        found.append(values)
    elif isinstance(values, tuple | list):
        for value in values:
            add_tensors(value, found)
    elif isinstance(values, dict):
        for value in values.values():
            add_tensors(value, found)


def live_storages() -> Iterator[UntypedStorage]:
    """Yield the storages of all tensors known to the garbage collector and of their gradients."""
    for tensor in _live_tensors():
        yield from storages_of(tensor)
        with suppress(RuntimeError):  # views whose attributes autograd does not allow to read
            if tensor.is_leaf and tensor.grad is not None:
                yield from storages_of(tensor.grad)


def _live_tensors() -> list[Tensor]:
    """All tensors that the garbage collector tracks.

    Instances refer to their class, so the collector's own pass over referrers of the tensor classes finds them in less
    than half the time of a Python loop over all objects. That loop remains for builds whose tensors hide their class.
    """
    found = _tensors_among(gc.get_referrers(*_tensor_classes()))
    return found if any(tensor is _PROBE for tensor in found) else _tensors_among(gc.get_objects())


def _tensors_among(objects: list[Any]) -> list[Tensor]:
    return [obj for obj in objects if issubclass(type(obj), Tensor)]  # isinstance() triggers warnings of proxy objects


def _tensor_classes() -> list[type]:
    classes: list[type] = [Tensor]
    for kind in classes:  # grows while it is read: subclasses of subclasses
        classes += [sub for sub in type.__subclasses__(kind) if sub not in classes]
    return classes
