"""`DiskRows` at the edges of its file and of what the system grants: tiny stores, refused and interrupted reads."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.features.disk import KILOBYTES, PREADV, io_threads, open_descriptors, random_rows, replace_reads
from workbench.core.errors import CorruptFileError
from workbench.features.disk_rows import MAX_READ, DiskRows
from workbench.features.memory_rows import MappedRows


@pytest.mark.parametrize("row_bytes", [1, 4096, 4097, 3 * MAX_READ + 1])
def test_a_store_of_one_row(row_bytes: int, direct: bool, tmp_path: Path) -> None:
    rows = random_rows(1, row_bytes, torch.uint8)
    MappedRows.create(tmp_path / "rows", rows)
    store = DiskRows(tmp_path / "rows", direct=direct, threads=3)
    assert torch.equal(store.read(torch.tensor([0, 0, 0])), rows[[0, 0, 0]])
    assert store.read(torch.empty(0, dtype=torch.int32)).shape == (0, row_bytes)
    with pytest.raises(IndexError, match=r"ids contains 1; ids must be in \[0, 1\)"):
        store.read(torch.tensor([1]))


@pytest.mark.parametrize("kept", [0, 512, 1024, 1025, 2999 << 10])
def test_a_file_that_is_cut_off_anywhere_while_open(kept: int, direct: bool, tmp_path: Path) -> None:
    MappedRows.create(tmp_path / "rows", KILOBYTES)
    store = DiskRows(tmp_path / "rows", direct=direct, threads=4)
    os.truncate(tmp_path / "rows" / "rows.bin", kept)
    whole = torch.arange(kept >> 10)
    assert torch.equal(store.read(whole), KILOBYTES[whole])
    out = torch.full((3, 256), -1, dtype=torch.int32)
    with pytest.raises(CorruptFileError, match=rf"rows\.bin ends at byte {kept}, but had 3072000 bytes when it was op"):
        store.read(torch.tensor([2999, 2999, 2999]), out=out)
    assert io_threads() == 0 and bool((out == -1).all()) and store.read_bytes == kept >> 10 << 10, (
        "the failed read is not counted"
    )


def test_a_file_that_grows_while_open_is_read_as_it_was(direct: bool, tmp_path: Path) -> None:
    rows = random_rows(10, 100, torch.uint8)
    MappedRows.create(tmp_path / "rows", rows)
    store = DiskRows(tmp_path / "rows", direct=direct)
    with (tmp_path / "rows" / "rows.bin").open("ab") as file:
        file.write(b"more" * 1000)
    assert torch.equal(store.read(torch.arange(10)), rows)


def denied(*_: Any) -> int:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "rows.bin")


def test_a_file_that_may_not_be_read(direct: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_descriptors(folder)
    monkeypatch.setattr(os, "open", denied)
    for option in (direct, "auto"):
        with pytest.raises(PermissionError, match=r"Permission denied: 'rows\.bin'"):
            DiskRows(folder, direct=option)
    assert open_descriptors(folder) == before


def refused_at(number: int, code: int) -> Callable[..., int]:
    """Reads whose `number`-th call fails."""
    calls = iter(range(10**9))

    def preadv(fd: int, buffers: list[memoryview], offset: int) -> int:
        if next(calls) == number:
            raise OSError(code, os.strerror(code))
        return PREADV(fd, buffers, offset)

    return preadv


@pytest.mark.parametrize(("code", "remedy"), [(errno.EINVAL, "pass direct=False"), (errno.EIO, "check the disk")])
def test_a_file_system_that_refuses_some_direct_reads(
    code: int, remedy: str, direct: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DiskRows(folder, direct=direct, threads=1)
    replace_reads(monkeypatch, refused_at(1, code))
    if not direct:
        remedy = "check the disk"
    with pytest.raises(OSError, match=rf"when reading \d+ bytes at offset \d+; {remedy}") as caught:
        store.read(torch.tensor([2999, 0, 1500]))
    assert caught.value.errno == code
    assert torch.equal(store.read(torch.tensor([2999, 0])), KILOBYTES[[2999, 0]]), "the next read succeeds"


@pytest.mark.parametrize("number", range(6))
def test_whichever_read_fails_nothing_is_left_behind_or_counted(
    number: int, direct: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, ids = DiskRows(folder, direct=direct, threads=3), torch.arange(0, 3000, 500)
    replace_reads(monkeypatch, refused_at(number, errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        store.read(ids)
    assert io_threads() == 0 and store.read_bytes == 0
    monkeypatch.undo()
    assert torch.equal(store.read(ids), KILOBYTES[ids])
