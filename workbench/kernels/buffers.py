"""Allocation of large results on huge pages.

The first write to a new array of hundreds of megabytes causes one page fault per 4 KiB, which often takes longer than
computing the values. NumPy requests huge pages from 4 MiB on; torch does not by default, so this module does.
"""

import ctypes
import sys
from functools import cache
from typing import Any

import torch
from torch import Tensor

_MIN_BYTES = 1 << 22
_PAGE = 4096
_MADV_HUGEPAGE = 14


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
        call(
            first, (out.data_ptr() + out.nbytes - first) // _PAGE * _PAGE, _MADV_HUGEPAGE
        )  # only advice, so errors are ignored
    return out
