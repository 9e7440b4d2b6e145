"""Reads by the kernel's queue: all of them or, where it takes fewer, the others without it."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.features.disk import KILOBYTES, SPREAD
from workbench.features import direct_file
from workbench.features.direct_file import DirectFile
from workbench.features.disk_rows import DiskRows

FAR_APART = torch.arange(0, 3000, 30)
"""Of which each row has a read of its own."""


@pytest.fixture
def store(folder: Path, direct: bool) -> DiskRows:
    return DiskRows(folder, direct=direct, threads=4)


@pytest.fixture
def file(folder: Path) -> DirectFile:
    found = DirectFile(folder / "rows.bin", direct="auto")
    if not found._has_queue:
        pytest.skip("this system has no queue, or can't read the temporary folder directly")
    return found


def read_kilobytes(file: DirectFile, places: list[int]) -> tuple[list[int], torch.Tensor]:
    """Read rows of 1 KiB by the queue."""
    with file.buffer(len(places) << 10) as buffer:
        sizes, offsets = np.full(len(places), 1 << 10), np.array(places) << 10
        counts = file.read_all(buffer, np.arange(len(places)) << 10, offsets, sizes, depth=3)
        return counts, torch.from_numpy(buffer[: len(places) << 10].copy()).view(torch.int32).view(-1, 256)


@pytest.mark.parametrize("cores", [1, 2, 16])
@pytest.mark.parametrize("reads", [1, 3, 4, 9, 16, 1000])
def test_threads_ask_for_as_many_reads_as_are_wanted(
    file: DirectFile, reads: int, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_file, "get_num_threads", lambda: cores)
    threads, depth = file.threads_for(reads)
    assert 1 <= threads <= min(cores, 4) and 1 <= depth <= 64
    assert reads <= threads * depth < reads + threads or depth == 64
    assert depth >= min(reads, 4)


def test_through_the_page_cache_each_read_has_a_thread(folder: Path) -> None:
    assert DirectFile(folder / "rows.bin", direct=False).threads_for(16) == (16, 1)


def test_more_reads_than_the_queue_has_room_for(file: DirectFile) -> None:
    places = torch.randperm(3000, generator=torch.Generator().manual_seed(0)).tolist()
    counts, rows = read_kilobytes(file, places)
    assert counts == [1 << 10] * 3000 and torch.equal(rows, KILOBYTES[places])


def test_the_kernel_refuses_some_requests_and_reports_errors_of_others(file: DirectFile) -> None:
    """It takes requests up to the first of no open file; a read past the end brings nothing, another an error."""
    requests, buffer, done = np.zeros((5, 8), np.int64), np.zeros(1 << 14, np.uint8), np.full(5, -1)
    aligned = -(-buffer.ctypes.data // 4096) * 4096
    requests[:, 0], requests[:, 2], requests[:, 4] = np.arange(5), file._descriptor << 32, 1 << 10
    requests[:, 3], requests[:, 5] = aligned + 1024 * np.arange(5), 1024 * np.arange(5)
    requests[1, 5] = file.size
    requests[2, 5] = 1  # inside a block
    requests[3, 2] = (1 << 20) << 32
    with direct_file.lent_queue() as queue:
        direct_file._queue_all(queue, 2, requests, done)
    assert done[0] == 1 << 10 and done[1] == 0 and done[2] < 0 and (done[3:] == -1).all()


@pytest.mark.parametrize("missing", ["queues", "a valid queue"])
def test_without_a_queue_reads_are_done_one_by_one(
    folder: Path, missing: str, file: DirectFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "queues":
        monkeypatch.setattr(direct_file, "_idle_queues", [])
        monkeypatch.setattr(direct_file, "_new_queue", lambda *_: -1)
        assert DirectFile(folder / "rows.bin", direct=True).threads_for(8) == (8, 1)
    else:
        monkeypatch.setattr(direct_file, "_idle_queues", [12345])
    counts, rows = read_kilobytes(file, FAR_APART.tolist())
    assert counts == [1 << 10] * len(FAR_APART) and torch.equal(rows, KILOBYTES[FAR_APART])


@pytest.mark.parametrize("name", ["_pread_all", "_queue_all"])
@pytest.mark.parametrize("missing", [slice(0, 1), slice(1, None, 2)])
def test_reads_that_compiled_code_does_not_complete_are_done_again(
    store: DiskRows, name: str, missing: slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, called = getattr(direct_file, name), list[int]()
    whole = DiskRows(store._folder, direct=store.direct)
    assert torch.equal(whole.read(FAR_APART), KILOBYTES[FAR_APART])

    def some(*args: Any) -> None:
        compiled(*args)
        called.append(len(args[-1]))
        args[-1][missing] -= 1

    monkeypatch.setattr(direct_file, name, some)
    assert torch.equal(store.read(FAR_APART), KILOBYTES[FAR_APART])
    assert (store.read_bytes, store.num_reads) == (whole.read_bytes, whole.num_reads)
    assert bool(called) == (store._file._has_queue == (name == "_queue_all"))


def test_signals_interrupt_the_wait_but_no_read(file: DirectFile) -> None:
    arrived, places = list[int](), [*range(3000)]
    before = signal.signal(signal.SIGALRM, lambda number, _: arrived.append(number))
    signal.setitimer(signal.ITIMER_REAL, 1e-3, 1e-3)
    try:
        while len(arrived) < 20:
            counts, rows = read_kilobytes(file, places)
            assert counts == [1 << 10] * 3000 and torch.equal(rows, KILOBYTES)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_queue_is_used_again_by_the_next_read_and_not_by_a_child(store: DiskRows) -> None:
    store.read(SPREAD)
    idle = list(direct_file._idle_queues)
    store.read(SPREAD)
    assert direct_file._idle_queues == idle and (idle or not store._file._has_queue)
    child = os.fork()
    if not child:
        own = direct_file._idle_queues == [] and torch.equal(store.read(SPREAD), KILOBYTES[SPREAD])
        os._exit(0 if own else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert torch.equal(store.read(SPREAD), KILOBYTES[SPREAD])
