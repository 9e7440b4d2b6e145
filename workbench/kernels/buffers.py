"""Large buffers on huge pages, copies to and from a GPU through pinned memory, constants, and bounds of values."""

import ctypes
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

_MIN_BYTES = 1 << 22

_PAGE = 4096

_MADV_RANDOM, _MADV_HUGEPAGE = 1, 14


@cache
def _madvise() -> Any:
    """Return the system call, or None on systems without it."""
    if not sys.platform.startswith("linux"):
        return None
    call = getattr(ctypes.CDLL(None), "madvise", None)
    if call is not None:
        call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return call


def uninitialised(like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """Allocate an uninitialised tensor like `like.new_empty(shape)`, on huge pages if it is large.

    Args:
        like: tensor with the device and default dtype.
        shape: shape of the result.
        dtype: dtype of the result; by default that of `like`.
    """
    out = like.new_empty(shape, dtype=dtype)
    call = _madvise()
    if out.nbytes >= _MIN_BYTES and out.device.type == "cpu" and call is not None:
        first = -(-out.data_ptr() // _PAGE) * _PAGE
        length = (out.data_ptr() + out.nbytes - first) // _PAGE * _PAGE
        call(first, length, _MADV_HUGEPAGE)  # only advice, so errors are ignored
    return out


def byte_view(tensor: Tensor) -> Tensor:
    """The bytes of a tensor in row-major order, uint8 [nbytes]: a view of one that is contiguous.

    A vector of one value or none is contiguous whatever its stride, as slices and NumPy's empty arrays have them, but
    `Tensor.view` shows the bytes of vectors with a stride of 1 alone.
    """
    rows = tensor.detach().contiguous()
    return rows.as_strided((rows.numel(),), (1,)).view(torch.uint8)


def read_singly(mapped: Tensor) -> None:
    """Let the system read a memory-mapped tensor a page at a time; where it has no such advice, nothing changes."""
    call = _madvise()
    if call is not None and mapped.nbytes:
        first = mapped.data_ptr() // _PAGE * _PAGE
        call(first, mapped.data_ptr() + mapped.nbytes - first, _MADV_RANDOM)


def filled(*shape: int, value: float, dtype: torch.dtype, device: Any = "cpu") -> Tensor:
    """Allocate a tensor full of a value; torch.full would wake OpenMP threads, whose spinning slows CPU kernels."""
    if torch.device(device).type != "cpu":
        return torch.full(shape, value, dtype=dtype, device=device)
    out = torch.empty(shape, dtype=dtype)
    out.numpy().fill(value)
    return out


def to_device(tensor: Tensor, device: Any, *, non_blocking: bool = False) -> Tensor:
    """Copy a tensor to a device; from the host to a GPU without waiting, through pinned memory.

    torch's allocator of pinned memory reuses a block once the copy from it is complete, so the caller may write to
    `tensor` at once. A copy from pageable memory would make the host wait for all work that is queued on the GPU.

    Args:
        tensor: of any kind; one that requires a gradient, or is pinned itself, is copied as `tensor.to` does.
        device: target device; on it already, the tensor is returned as it is.
        non_blocking: of other copies: asynchronous where torch can.
    """
    device = torch.device(device)
    pageable = device.type == "cuda" and tensor.device.type == "cpu" and not tensor.is_pinned()
    if pageable and tensor.layout is torch.strided and not tensor.requires_grad and tensor.numel():
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device, non_blocking=non_blocking)


@cache
def copy_stream(device: torch.device, direction: str) -> torch.cuda.Stream:
    """Return the stream of this process for copies that overlap with the steps of the current stream.

    There is one per GPU and direction, since torch's allocator keeps freed memory per stream.

    Args:
        device: a GPU, with its number.
        direction: "to" or "from" the device, which copy at the same time.
    """
    return torch.cuda.Stream(device)


def download(tensor: Tensor) -> Callable[[], Tensor]:
    """Begin to copy a tensor of a GPU to pinned memory, on a stream of its own.

    Returns:
        A function that waits for this copy, not for what was queued after it, and returns it.
    """
    stream = copy_stream(tensor.device, "from")
    stream.wait_stream(torch.cuda.current_stream(tensor.device))
    with torch.cuda.stream(stream):
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
    done = stream.record_event()
    tensor.record_stream(stream)

    def wait() -> Tensor:
        done.synchronize()
        return copy

    return wait


def downloaded(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Copy tensors to the host one after the other: each while the next one is computed.

    Args:
        tensors: yields tensors of one device; those of the host are yielded as they are.
    """
    waiting: Callable[[], Tensor] | None = None
    for tensor in tensors:
        if not tensor.is_cuda:
            yield tensor
            continue
        begun = download(tensor)
        del tensor  # while the next one is computed, its memory is free
        if waiting is not None:
            yield waiting()
        waiting = begun
    if waiting is not None:
        yield waiting()


constants: dict[tuple[int, torch.device], Tensor] = {}
"""Constant tables on GPUs, by the table's id and the device."""


def constant(table: np.ndarray, device: torch.device) -> Tensor:
    """Return a constant table on a device, which keeps it for the life of the process.

    The first copy waits, so that any stream may read the table.

    Args:
        table: a module's constant, which nothing changes.
        device: the device.
    """
    if device.type == "cpu":
        return torch.from_numpy(table)
    key = id(table), device
    if key not in constants:
        constants[key] = torch.from_numpy(table).to(device)
    return constants[key]


def bounds(values: Tensor) -> tuple[int, int]:
    """Return the smallest and the largest of integers, for which the host waits once if they are on a GPU.

    Args:
        values: integers [n], n > 0.
    """
    low, high = torch.stack(torch.aminmax(values)).tolist()
    return low, high
