"""Rows on disk for the tests of `DiskRows`, and what its reads may leave behind."""

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from workbench.features import direct_file

KILOBYTES = torch.arange(3000 * 256, dtype=torch.int32).view(3000, 256)
"""Rows of 1 KiB: two blocks."""

SPREAD = torch.tensor([2999, 0, 1500, 1500, 700])
PREADV = os.preadv


def random_rows(count: int, width: int, dtype: torch.dtype) -> Tensor:
    """Rows of random bytes."""
    bits = torch.randint(256, (count, width * dtype.itemsize), dtype=torch.uint8, generator=torch.Generator())
    return bits.view(dtype)


def open_descriptors(folder: Path) -> int:
    gc.collect()  # a store of an earlier test may be part of a cycle
    target = str(folder / "rows.bin")
    links = [link for link in Path("/proc/self/fd").glob("*") if link.is_symlink()]
    return sum(os.path.realpath(link) == os.path.realpath(target) for link in links)


def io_threads() -> int:
    return sum(thread.name == "workbench-io" for thread in threading.enumerate())


def replace_reads(monkeypatch: pytest.MonkeyPatch, preadv: Callable[..., int]) -> None:
    """Let this do all reads, one by one, of which compiled code does none."""
    for compiled in ("_pread_all", "_queue_all"):
        monkeypatch.setattr(direct_file, compiled, lambda *_: None)
    monkeypatch.setattr(os, "preadv", preadv)
