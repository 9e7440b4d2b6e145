"""Rows read from disk: the bytes of the file whatever their alignment, clear errors, nothing left behind."""

import errno
import json
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from tests.features.disk import KILOBYTES, PREADV, SPREAD, io_threads, open_descriptors, random_rows, replace_reads
from workbench.core.errors import CorruptFileError
from workbench.core.machine import Traffic
from workbench.features import direct_file
from workbench.features.disk_rows import MAX_READ, DiskRows
from workbench.features.memory_rows import MappedRows

DTYPES = (torch.float32, torch.float16, torch.int64, torch.uint8)


def same_bytes(found: Tensor, expected: Tensor) -> bool:
    return found.dtype == expected.dtype and torch.equal(found.view(torch.uint8), expected.view(torch.uint8))


@pytest.fixture
def store(folder: Path, direct: bool, monkeypatch: pytest.MonkeyPatch) -> DiskRows:
    """Rows read by 4 threads, on machines of fewer cores too."""
    monkeypatch.setattr(direct_file, "get_num_threads", lambda: 4)
    return DiskRows(folder, direct=direct, threads=16 if direct else 4)


@given(data=st.data(), dtype=st.sampled_from(DTYPES), threads=st.sampled_from([1, 2, 16]))
def test_equals_the_tensor_bit_by_bit(direct: bool, data: st.DataObject, dtype: torch.dtype, threads: int) -> None:
    width = data.draw(st.integers(1, 5000 // dtype.itemsize))
    rows = random_rows(data.draw(st.integers(1, 200)), width, dtype)
    ids = torch.tensor(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1)))
    with TemporaryDirectory() as name:
        MappedRows.create(f"{name}/rows", rows)
        store = DiskRows(f"{name}/rows", direct=direct, threads=threads)
        assert store.direct == direct
        assert same_bytes(store.read(ids), rows[ids])
        assert same_bytes(store.read(torch.arange(len(rows))), rows)


@pytest.mark.parametrize("row_bytes", [1, 511, 512, 513, 4095, 4097, MAX_READ - 1, MAX_READ + 1, 3 * MAX_READ])
def test_rows_across_blocks_and_reads(row_bytes: int, direct: bool, tmp_path: Path) -> None:
    rows = random_rows(7, row_bytes, torch.uint8)
    MappedRows.create(tmp_path / "rows", rows)
    store = DiskRows(tmp_path / "rows", direct=direct, threads=2)
    for ids in (torch.tensor([6]), torch.tensor([6, 0, 6, 3]), torch.arange(7)):
        assert torch.equal(store.read(ids), rows[ids])


def test_buffers_of_other_layouts(store: DiskRows) -> None:
    out = torch.zeros(256, 5, dtype=torch.int32).t()
    assert store.read(SPREAD, out=out) is out and torch.equal(out, KILOBYTES[SPREAD])


@pytest.mark.parametrize("count", [0, 1])
def test_buffers_of_a_single_value_have_any_stride(direct: bool, tmp_path: Path, count: int) -> None:
    MappedRows.create(tmp_path / "rows", torch.arange(5.0))
    store, ids = DiskRows(tmp_path / "rows", direct=direct), torch.full((count,), 2)
    out = torch.zeros(2 * count)[::2]
    assert store.read(ids, out=out) is out and out.tolist() == [2.0] * count
    pool = torch.zeros(2)[1::2]
    store.read_to(ids, pool, torch.zeros(count, dtype=torch.int64))
    assert pool.tolist() == [2.0 * count]


def test_bytes_are_counted(folder: Path, direct: bool) -> None:
    links = Traffic()
    store = DiskRows(folder, direct=direct, traffic=links)
    assert links.row() == {"disk_rows": 0, "disk_rows_bytes": 0} and store.read_bytes == 0
    assert str(store.amplification) == "nan"
    store.read(torch.tensor([5, 2000, 5]))  # far apart: two reads
    assert links.row() == {"disk_rows": 3, "disk_rows_bytes": 3 << 10} and store.read_bytes == 2 << 10
    store.read(torch.tensor([100, 104]))  # 3 KiB apart: one read
    assert store.read_bytes == (2 + 5) << 10 and store.amplification == 7 / 5


def test_rows_to_places_of_a_larger_tensor(store: DiskRows) -> None:
    rows, places = torch.full((9, 256), -1, dtype=torch.int32), torch.tensor([7, 0, 3, 4, 8])
    store.read_to(SPREAD, rows, places)
    assert torch.equal(rows[places], KILOBYTES[SPREAD]) and (rows[[1, 2, 5, 6]] == -1).all()
    store.read_to(SPREAD[:0], rows, places[:0])
    with pytest.raises(IndexError, match="9"):
        store.read_to(SPREAD[:1], rows, torch.tensor([9]))
    with pytest.raises(ValueError, match="places has shape"):
        store.read_to(SPREAD, rows, places[:2])
    with pytest.raises(ValueError, match="not contiguous"):
        store.read_to(SPREAD, torch.zeros(256, 9, dtype=torch.int32).t(), places)


@pytest.mark.parametrize(("gap", "expected"), [(0, (3 << 10, 3)), ("3 KiB", (6 << 10, 2)), (1 << 63, (6 << 10, 2))])
def test_gaps_and_costs(folder: Path, direct: bool, gap: int | str, expected: tuple[int, int]) -> None:
    store = DiskRows(folder, direct=direct, gap_bytes=gap)
    ids = torch.tensor([2000, 4, 0])  # 3 KiB apart, and more than one read is long
    assert store.cost_of(ids) == expected and store.num_reads == 0
    assert torch.equal(store.read(ids), KILOBYTES[ids])
    assert (store.read_bytes, store.num_reads) == expected
    again = pickle.loads(pickle.dumps(store))
    assert again.cost_of(ids) == expected and again.num_reads == 0 and again.cost_of(ids[:0]) == (0, 0)
    with pytest.raises(ValueError, match="gap_bytes is -1"):
        DiskRows(folder, gap_bytes=-1)


def test_whole_blocks_are_counted(tmp_path: Path, direct: bool) -> None:
    MappedRows.create(tmp_path / "rows", random_rows(10_000, 10, torch.uint8))
    store = DiskRows(tmp_path / "rows", direct=direct)
    store.read(torch.tensor([51]))  # bytes 510 to 520
    assert store.read_bytes == (2 * 512 if direct else 10)
    store.read(torch.tensor([9999]))  # the file ends at byte 100,000, in the middle of a block
    assert store.read_bytes == (2 * 512 + 100_000 % 512 if direct else 20)


@pytest.mark.parametrize("most", [1, 511, 700, 1024])
def test_short_reads_are_continued(store: DiskRows, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if store.direct and most < 512:
        pytest.skip("a device reads whole blocks")
    replace_reads(monkeypatch, lambda fd, buffers, offset: PREADV(fd, [buffers[0][:most]], offset))
    if store.direct and most % 512:  # the system ends a read inside a block: it must be continued at the block
        replace_reads(monkeypatch, lambda fd, buffers, offset: min(PREADV(fd, buffers, offset), most))
    assert torch.equal(store.read(SPREAD), KILOBYTES[SPREAD])


def test_errors_of_the_disk_name_file_and_offset(
    store: DiskRows, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links, before = Traffic(), open_descriptors(folder)
    failing = DiskRows(folder, direct=store.direct, threads=4, traffic=links)

    def preadv(fd: int, buffers: list[memoryview], offset: int) -> int:
        if offset == 1500 << 10:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return PREADV(fd, buffers, offset)

    replace_reads(monkeypatch, preadv)
    message = r"\[Errno 5\] Input/output error when reading 1024 bytes at offset 1536000; .*rows\.bin"
    with pytest.raises(OSError, match=message) as caught:
        failing.read(SPREAD)
    assert caught.value.errno == errno.EIO
    assert io_threads() == 0 and links.snapshot().count("disk") == 0 and failing.read_bytes == 0
    monkeypatch.undo()
    assert torch.equal(failing.read(SPREAD), KILOBYTES[SPREAD])
    del failing, caught
    assert open_descriptors(folder) == before


def test_a_file_that_is_cut_off_while_open(direct: bool, tmp_path: Path) -> None:
    MappedRows.create(tmp_path / "rows", KILOBYTES)
    store = DiskRows(tmp_path / "rows", direct=direct)
    os.truncate(tmp_path / "rows" / "rows.bin", (2999 << 10) + 700)
    assert torch.equal(store.read(SPREAD[1:]), KILOBYTES[SPREAD[1:]])
    with pytest.raises(CorruptFileError, match=r"rows\.bin ends at byte 3071676, but had 3072000 bytes when"):
        store.read(SPREAD)


def refuse_open(path: Any, flags: int, *args: Any) -> int:
    if flags & os.O_DIRECT:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return OPEN(path, flags, *args)


def refuse_reads(fd: int, buffers: list[memoryview], offset: int) -> int:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


OPEN = os.open


@pytest.mark.parametrize(("name", "refusal"), [("open", refuse_open), ("preadv", refuse_reads)])
def test_file_systems_without_direct_reads(
    folder: Path, name: str, refusal: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_descriptors(folder)
    monkeypatch.setattr(os, name, refusal)
    with pytest.raises(ValueError, match=r'direct is True, but the file system of .* pass direct="auto"'):
        DiskRows(folder, direct=True)
    assert open_descriptors(folder) == before
    with pytest.warns(
        RuntimeWarning, match="the file system of .* does not support O_DIRECT, so rows are .*=False"
    ) as w:
        store = DiskRows(folder)
    assert [warning.filename for warning in w] == [__file__], "where the store is made"
    DiskRows(folder, direct=False)  # which asks for no more: no warning
    monkeypatch.undo()
    assert not store.direct and repr(store).endswith("2.93 MiB, buffered, 16 threads)")
    assert torch.equal(store.read(SPREAD), KILOBYTES[SPREAD])


def test_devices_with_large_blocks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def preadv(fd: int, buffers: list[memoryview], offset: int) -> int:
        if offset % 4096 or len(buffers[0]) % 4096:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return PREADV(fd, buffers, offset)

    replace_reads(monkeypatch, preadv)
    store = DiskRows(folder)
    if not store.direct:
        pytest.skip("the file system of temporary folders does not support O_DIRECT")
    assert torch.equal(store.read(SPREAD), KILOBYTES[SPREAD])
    assert store.read_bytes == 4 * 4096


def test_errors_while_opening_leave_no_descriptor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(fd: int, buffers: list[memoryview], offset: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    before = open_descriptors(folder)
    replace_reads(monkeypatch, fails)
    with pytest.raises(OSError, match="Input/output error"):
        DiskRows(folder, direct=True)
    assert open_descriptors(folder) == before


@pytest.mark.parametrize("in_main", [True, False])
def test_interrupts_leave_nothing_behind(store: DiskRows, in_main: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal arrives while the main thread reads, or while it waits for the others."""
    started = threading.Event()

    def preadv(fd: int, buffers: list[memoryview], offset: int) -> int:
        if (threading.current_thread() is threading.main_thread()) == in_main and not started.is_set():
            started.set()
            os.kill(os.getpid(), signal.SIGINT)
        return PREADV(fd, buffers, offset)

    replace_reads(monkeypatch, preadv)
    read = torch.randint(3000, (400,), generator=torch.Generator())
    reads = (store.read(read) for _ in range(20_000))  # quick helpers may leave none to the main thread for long
    with pytest.raises(KeyboardInterrupt):
        deque(reads, maxlen=0)
    monkeypatch.undo()
    assert io_threads() == 0
    assert torch.equal(store.read(read), KILOBYTES[read])


def test_the_descriptor_is_closed_with_the_store(folder: Path) -> None:
    before = open_descriptors(folder)
    store = DiskRows(folder)
    store.read(SPREAD)
    assert open_descriptors(folder) == before + 1 and io_threads() == 0
    del store
    assert open_descriptors(folder) == before


def test_a_forked_child_has_buffers_of_its_own(store: DiskRows) -> None:
    """Buffers are shared memory: a child that kept its parent's would overwrite what the parent is reading."""
    store.read(SPREAD)
    others = torch.arange(1, 3000, 37)
    expected, kept = KILOBYTES[others].numpy(), store._file._process.buffers
    before = [buffer.copy() for buffer in kept]
    child = os.fork()
    if not child:  # torch's own threads don't exist here
        os._exit(0 if (store.read(others).numpy() == expected).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert before and all((now == then).all() for now, then in zip(kept, before, strict=True))


def test_pickling_opens_the_folder_again(store: DiskRows) -> None:
    store.read(SPREAD)
    other = pickle.loads(pickle.dumps(store))
    assert (other.direct, repr(other), other.read_bytes) == (store.direct, repr(store), 0)
    assert torch.equal(other.read(SPREAD), KILOBYTES[SPREAD])


def test_rows_replaced_later_are_read_as_opened(direct: bool, tmp_path: Path) -> None:
    MappedRows.create(tmp_path / "rows", KILOBYTES)
    stores = DiskRows(tmp_path / "rows", direct=direct), MappedRows(tmp_path / "rows")
    MappedRows.create(tmp_path / "rows", -KILOBYTES, overwrite=True)
    assert all(torch.equal(store.read(SPREAD), KILOBYTES[SPREAD]) for store in stores)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 0}, "threads is 0; it must be a whole number of at least 1"),
        ({"threads": 2.5}, "threads is 2.5; it must be a whole number"),
        ({"direct": "yes"}, "direct is 'yes'"),
        ({"direct": None}, "direct is None"),
    ],
)
def test_wrong_options_are_refused(folder: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DiskRows(folder, **options)


def test_missing_and_damaged_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist; save the rows first"):
        DiskRows(tmp_path / "rows")
    MappedRows.create(tmp_path / "rows", KILOBYTES)
    header = tmp_path / "rows" / "header.json"
    content = json.loads(header.read_text())
    content["arrays"]["rows"]["shape"] = [1500, 512]
    header.write_text(json.dumps(content))
    with pytest.raises(CorruptFileError, match="was modified"):
        DiskRows(tmp_path / "rows")
