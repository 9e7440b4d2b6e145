"""Damaged, missing and foreign files of a partition store, short reads and writes, and disks that are full."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench as wb
from workbench.core.errors import CorruptFileError
from workbench.outofcore import store_files as partition_file
from workbench.outofcore.store_layout import BLOCK

NODES, EDGES, P = 50, 600, 6
SRC, DST = torch.randint(0, NODES, (2, EDGES), generator=torch.Generator().manual_seed(1))
GRAPH = wb.Graph.from_edges(SRC, DST, num_nodes=NODES)
ORDER = wb.outofcore.beta_order(P, 3)
ALL = torch.arange(NODES)
WIDTH = 300  # a record of several blocks
PREADV, PWRITEV = os.preadv, os.pwritev


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    x = torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(0))
    wb.outofcore.PartitionStore.build(folder / "features", GRAPH, rows=x, num_partitions=P, seed=1)
    wb.outofcore.PartitionStore.build(
        folder / "learnt", GRAPH, rows=wb.outofcore.LearntInit(WIDTH), num_partitions=P, seed=1
    )
    wb.outofcore.PartitionStore.build(folder / "other", GRAPH, rows=x[:, :9], num_partitions=P - 1, seed=1)
    return folder


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built / "features", tmp_path / "store"))


@pytest.fixture
def learnt(built: Path, tmp_path: Path) -> wb.outofcore.PartitionStore:
    return wb.outofcore.PartitionStore.open(shutil.copytree(built / "learnt", tmp_path / "learnt"))


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 64
    file.write_bytes(content)


def read_all(store: wb.outofcore.PartitionStore, **options: Any) -> torch.Tensor:
    """Read rows as an epoch does."""
    rows = torch.zeros(NODES, WIDTH)
    with wb.outofcore.PartitionBuffer(store, capacity=3, **options) as buffer:
        for state in buffer.epoch(ORDER):
            ids = ALL[torch.isin(ALL // store.partition_rows, state.partitions)]
            rows[ids] = state.rows.read(ids)
    return rows


def add_one(store: wb.outofcore.PartitionStore, **options: Any) -> None:
    """Write every row in every state."""
    with wb.outofcore.PartitionBuffer(store, capacity=3, **options) as buffer:
        for state in buffer.epoch(ORDER):
            ids = ALL[torch.isin(ALL // store.partition_rows, state.partitions)]
            state.rows.write(ids, state.rows.read(ids) + 1)


def visits(store: wb.outofcore.PartitionStore) -> torch.Tensor:
    """How often `add_one` adds to every node."""
    return ORDER.states.flatten().bincount()[ALL // store.partition_rows].float()


@pytest.mark.parametrize("partition", range(P))
def test_a_flipped_byte_names_its_partition(folder: Path, partition: int) -> None:
    store = wb.outofcore.PartitionStore.open(folder)
    flip(folder / "rows.bin", partition * store.partition_bytes + 1234)
    assert store.damaged() == [partition]
    for prefetch in (True, False):
        with pytest.raises(CorruptFileError, match=rf"partition {partition} of .*rows\.bin is damaged: bytes"):
            read_all(store, prefetch=prefetch)


@pytest.mark.parametrize("bucket", [0, 7, P * P - 1])
def test_a_flipped_byte_names_its_bucket(folder: Path, bucket: int) -> None:
    store = wb.outofcore.PartitionStore.open(folder)
    nbytes = store.bucket_edges.flatten() * store.layout.edge_bytes
    flip(folder / "edges.bin", int((-(-nbytes // 8) * 8)[:bucket].sum()) + 3)
    with pytest.raises(CorruptFileError, match=rf"from partition {bucket // P} to partition {bucket % P} of .*edges"):
        read_all(store)


@pytest.mark.parametrize("name", ["store.json", "table.json", "index", "rows.bin", "edges.bin"])
def test_missing_and_foreign_files(built: Path, folder: Path, name: str) -> None:
    file = folder / name
    shutil.rmtree(file) if file.is_dir() else file.unlink()
    with pytest.raises((FileNotFoundError, CorruptFileError), match=name):
        wb.outofcore.PartitionStore.open(folder)
    other = built / "other" / name
    shutil.copytree(other, file) if other.is_dir() else shutil.copy(other, file)
    with pytest.raises(CorruptFileError, match=r"build (it|the store) again|index of another store"):
        read_all(wb.outofcore.PartitionStore.open(folder))


@pytest.mark.parametrize("name", ["store.json", "table.json"])
def test_any_flipped_byte_of_a_header(folder: Path, name: str) -> None:
    file = folder / name
    content = file.read_bytes()
    for at in range(0, len(content), 5):
        flip(file, at)
        if content[at : at + 1].isspace():
            continue
        with pytest.raises(CorruptFileError, match=name):
            wb.outofcore.PartitionStore.open(folder)
        file.write_bytes(content)


@pytest.mark.parametrize("name", ["rows.bin", "edges.bin"])
def test_shortened_files(folder: Path, name: str) -> None:
    store = wb.outofcore.PartitionStore.open(folder)
    with wb.outofcore.PartitionBuffer(store, capacity=3) as buffer:
        os.truncate(folder / name, (folder / name).stat().st_size - 1)
        with pytest.raises(CorruptFileError, match=rf"{name} ends at byte \d+, but had \d+ bytes when it was opened"):
            list(buffer.epoch(ORDER))
    with pytest.raises(CorruptFileError, match=rf"{name} has \d+ bytes, but \d+ belong to the store's header"):
        wb.outofcore.PartitionStore.open(folder)


@pytest.mark.parametrize("direct", ["auto", False])
def test_short_reads_and_writes_are_continued(
    learnt: wb.outofcore.PartitionStore, direct: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = learnt.read()
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: PREADV(fd, [buffers[0][:BLOCK]], offset))
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, offset: PWRITEV(fd, [buffers[0][:BLOCK]], offset))
    add_one(learnt, direct=direct)
    torch.testing.assert_close(read_all(learnt, direct=direct), before + visits(learnt)[:, None])
    assert not learnt.damaged()


def full_disk(after: int, real: Callable[..., Any]) -> Callable[..., Any]:
    """Fail as a full disk from call `after` on."""
    left = iter(range(after))

    def call(*arguments: Any) -> Any:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    return call


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("after", [0, 1, 4])
@pytest.mark.parametrize("where", ["rows", "table"])
def test_a_full_disk_loses_nothing_that_was_written(
    learnt: wb.outofcore.PartitionStore, where: str, after: int, prefetch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = learnt.read()
    owner, name = (os, "pwritev") if where == "rows" else (partition_file, "write_table")
    monkeypatch.setattr(owner, name, full_disk(after, getattr(owner, name)))
    with pytest.raises(
        OSError, match=r"No space left on device when writing partition \d, .* remains as it was"
    ) as caught:
        add_one(learnt, prefetch=prefetch)
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.undo()
    again = wb.outofcore.PartitionStore.open(learnt.folder)
    assert not again.damaged()
    added = (again.read() - before).round().view(NODES, WIDTH)
    written = [added[ALL // again.partition_rows == partition].unique() for partition in range(P)]
    assert all(len(values) <= 1 for values in written)  # whole partitions
    assert sum(int(values.abs().sum()) > 0 for values in written) == min(after, P)
    add_one(again)
    assert (read_all(again) - before - added - visits(again)[:, None]).abs().max() < 1e-3


def test_a_full_disk_leaves_no_half_built_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for after in range(2):
        monkeypatch.setattr(os, "posix_fallocate", full_disk(after, os.posix_fallocate))
        with pytest.raises(OSError, match="No space left on device"):
            wb.outofcore.PartitionStore.build(
                tmp_path / "store", GRAPH, rows=wb.outofcore.LearntInit(4), num_partitions=P
            )
        monkeypatch.undo()
        assert not list(tmp_path.iterdir())


def test_an_error_of_the_disk_is_raised_where_the_state_is_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = wb.outofcore.PartitionStore.open(folder)
    with wb.outofcore.PartitionBuffer(store, capacity=3) as buffer:
        states = buffer.epoch(ORDER)
        next(states)
        monkeypatch.setattr(os, "preadv", full_disk(0, PREADV))
        with pytest.raises(OSError, match=r"when reading \d+ bytes at offset"):
            list(states)
        monkeypatch.undo()
        assert len(list(buffer.epoch(ORDER))) == ORDER.num_states  # and the buffer can be used again
