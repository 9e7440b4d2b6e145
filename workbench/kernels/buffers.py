"""Large results of kernels, on huge pages where the system offers them.

A fresh array of hundreds of megabytes costs one page fault per 4 KiB when it is first written, often more than the sums
written to it. NumPy asks for huge pages from 4 MiB on; torch does not unless told to, so it is asked for here.
"""

import ctypes
import sys
from functools import cache
from typing import Any

import torch
from torch import Tensor

_LEAST_BYTES = 1 << 22
_PAGE = 4096
_MADV_HUGEPAGE = 14


@cache
def _madvise() -> Any:
    """The system call, or None where there is none such."""
    if not sys.platform.startswith("linux"):
        return None
    call = getattr(ctypes.CDLL(None), "madvise", None)
    if call is not None:
        call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return call


def uninitialised(like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """`like.new_empty(shape)`, its pages huge where it is large.

    Args:
        like: gives device and dtype.
        shape: of the result.
        dtype: of the result; None: that of `like`.
    """
    out = like.new_empty(shape, dtype=dtype)
    call = _madvise()
    if out.nbytes >= _LEAST_BYTES and out.device.type == "cpu" and call is not None:
        first = -(-out.data_ptr() // _PAGE) * _PAGE
        call(first, (out.data_ptr() + out.nbytes - first) // _PAGE * _PAGE, _MADV_HUGEPAGE)  # advice: may be refused
    return out
