"""Packed rows: training as in memory, long reads of what the plan counts, and nothing but complete folders."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.strategies import random_graph
from workbench.core.errors import CapacityError
from workbench.core.trace import AccessTrace
from workbench.features.disk_rows import MAX_READ
from workbench.outofcore.packed_rows import PackedRows, pack_rows
from workbench.outofcore.read_ahead import read_ahead
from workbench.outofcore.row_plan import plan_rows

NODES, WIDTH = 500, 25
GRAPH = random_graph(NODES, 4000, edge_ids=False)
X = torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(0))
Y = torch.arange(NODES) % 3
ROW_BYTES = X[:1].nbytes
ROOM: dict[str, Any] = {"memory": 440 * ROW_BYTES}
EPOCH = wb.batches(GRAPH, torch.arange(0, NODES, 2), sampler=wb.NeighborSampler([2, 3]), batch_size=20, epoch=0)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> wb.DiskRows:
    path = tmp_path_factory.mktemp("rows") / "rows"
    wb.MappedRows.create(path, X)
    return wb.DiskRows(path, threads=2)


def losses(items: Any) -> Tensor:
    model = wb.build_model("sage-mean", in_dim=WIDTH, hidden_dim=8, out_dim=3, seed=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return torch.stack([wb.train_step(model, mb, x, Y, cross_entropy, optimizer) for mb, x in items])


@pytest.mark.parametrize("options", [{}, {"group": 2}, {"group": 3, "overlap": False}])
def test_trains_as_in_memory_by_the_reads_that_are_counted(disk: wb.DiskRows, tmp_path: Path, options: dict) -> None:
    packed = pack_rows(tmp_path / "packed", EPOCH, disk, **ROOM, **options)
    expected = losses((mb, X) for _, mb in EPOCH)
    for _ in range(2):
        found = losses((mb, rows) for _, mb, rows in read_ahead(EPOCH, packed, **ROOM, **options))
        assert torch.equal(found, expected)
    size = options.get("group", 1)
    ids = [mb.node_ids for _, mb in EPOCH]
    trace = AccessTrace.of(torch.cat(ids[i : i + size]) for i in range(0, len(ids), size))
    plan = plan_rows(trace, 440, num_rows=NODES, overlap=options.get("overlap", True))
    wanted = plan.num_rows * ROW_BYTES
    assert packed.num_rows == plan.num_rows and packed.read_bytes <= 2 * (wanted + 2 * 512 * len(plan))
    assert packed.num_reads == 2 * sum(len(ids) > 0 for ids, _ in plan.reads()) and wanted < MAX_READ


def test_rows_are_packed_through_one_piece_of_memory(tmp_path: Path) -> None:
    pieces = []

    class Watched(wb.MemoryRows):
        def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
            assert out is not None
            pieces.append(out.untyped_storage())
            return super().read(ids, out=out)

    packed = pack_rows(tmp_path / "packed", EPOCH, Watched(X), **ROOM)
    assert packed.num_rows > 440 and len(pieces) == -(-packed.num_rows // 440)
    assert {piece.data_ptr() for piece in pieces} == {pieces[0].data_ptr()}
    assert pieces[0].nbytes() == ROOM["memory"]


def test_other_batches_are_an_error_and_a_loop_that_was_left_is_not(disk: wb.DiskRows, tmp_path: Path) -> None:
    packed = pack_rows(tmp_path / "packed", EPOCH, disk, **ROOM)
    for _ in read_ahead(EPOCH, packed, **ROOM):
        break
    assert len(losses((mb, rows) for _, mb, rows in read_ahead(EPOCH, packed, **ROOM))) == len(EPOCH)
    others: list[tuple[Any, dict[str, Any]]] = [(EPOCH.epoch(1), {}), (EPOCH, {"group": 2}), (EPOCH, {"window": 2})]
    for batches, options in others:
        with pytest.raises(ValueError, match=r"they were packed for other\s+batches"):
            list(read_ahead(batches, packed, **ROOM, **options))


def test_reads_in_order_alone(disk: wb.DiskRows, tmp_path: Path) -> None:
    links = wb.Traffic()
    order = pack_rows(tmp_path / "packed", EPOCH, disk, **ROOM)._ids.clone()
    packed = PackedRows(tmp_path / "packed", threads=1, traffic=links)
    assert torch.equal(packed.read(order[:7]), X[order[:7]]) and torch.equal(packed.read(order[7:9]), X[order[7:9]])
    with pytest.raises(ValueError, match="rewind"):
        packed.read(order[:1])
    packed.rewind()
    out = torch.empty(3, WIDTH)
    assert packed.read(order[:3].int(), out=out) is out and torch.equal(out, X[order[:3]])
    assert links.snapshot().count("disk") == 12 and len(packed) == NODES
    assert (packed.row_shape, packed.dtype) == ((WIDTH,), torch.float32) and "PackedRows(" in repr(packed)


def test_a_read_that_failed_is_repeated(disk: wb.DiskRows, tmp_path: Path) -> None:
    packed = pack_rows(tmp_path / "packed", EPOCH, disk, **ROOM)
    order, pool = packed._ids.clone(), torch.empty(9, WIDTH)
    with pytest.raises(TypeError, match=r"out is torch\.float64"):
        packed.read(order[:3], out=torch.empty(3, WIDTH, dtype=torch.float64))
    assert torch.equal(packed.read(order[:3]), X[order[:3]])
    with pytest.raises(ValueError, match="places"):
        packed.read_to(order[3:5], pool, torch.tensor([0]))
    packed.read_to(order[3:5], pool, torch.tensor([7, 2]))
    assert torch.equal(pool[[7, 2]], X[order[3:5]])


def test_two_loops_over_the_same_rows_are_named(disk: wb.DiskRows, tmp_path: Path) -> None:
    room = {**ROOM, "overlap": False}  # a thread would read as the other loop begins, and either could be refused
    packed = pack_rows(tmp_path / "packed", EPOCH, disk, **room)
    one = iter(read_ahead(EPOCH, packed, **room))
    next(one)
    assert len(list(read_ahead(EPOCH, packed, **room))) == len(EPOCH)
    with pytest.raises(ValueError, match="another loop has read from them meanwhile"):
        list(one)


def test_an_interrupted_call_leaves_what_was_there(disk: wb.DiskRows, tmp_path: Path) -> None:
    class Interrupted(wb.MemoryRows):
        def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack_rows(tmp_path / "packed", EPOCH, Interrupted(X), **ROOM)
    assert not os.listdir(tmp_path)
    pack_rows(tmp_path / "packed", EPOCH, disk, **ROOM)
    with pytest.raises(KeyboardInterrupt):
        pack_rows(tmp_path / "packed", EPOCH, Interrupted(X), **ROOM, overwrite=True)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        pack_rows(tmp_path / "packed", EPOCH, disk, **ROOM)
    (tmp_path / "mine").mkdir()
    with pytest.raises(FileExistsError, match="not a folder of packed rows"):
        pack_rows(tmp_path / "mine", EPOCH, disk, **ROOM, overwrite=True)
    assert (
        PackedRows(tmp_path / "packed").num_rows
        == pack_rows(tmp_path / "packed", EPOCH, X, **ROOM, overwrite=True).num_rows
    )
    assert sorted(os.listdir(tmp_path)) == ["mine", "packed"]


def test_an_epoch_without_batches(disk: wb.DiskRows, tmp_path: Path) -> None:
    nothing = wb.batches(GRAPH, torch.arange(0), sampler=wb.NeighborSampler([2]), batch_size=20).epoch(0)
    packed = pack_rows(tmp_path / "packed", nothing, disk, **ROOM)
    assert (packed.num_rows, len(packed), packed.row_shape) == (0, NODES, (WIDTH,))
    assert not list(read_ahead(nothing, packed, **ROOM))


def test_a_disk_without_the_space_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []

    class Watched(wb.MemoryRows):
        def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
            reads.append(len(ids))
            return super().read(ids, out=out)

    num_rows = pack_rows(tmp_path / "packed", EPOCH, X, **ROOM).num_rows
    needed = sum((tmp_path / "packed" / name).stat().st_size for name in ("rows/rows.bin", "order/ids.bin"))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=needed - 1))
    with pytest.raises(CapacityError, match=r"needs .*, but .* free; free some space"):
        pack_rows(tmp_path / "other", EPOCH, Watched(X), **ROOM)
    assert not reads and os.listdir(tmp_path) == ["packed"]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=needed))
    assert pack_rows(tmp_path / "other", EPOCH, Watched(X), **ROOM).num_rows == num_rows


def unread() -> Iterator[Any]:
    raise AssertionError("a batch was sampled")
    yield


def test_a_folder_that_cannot_be_created_is_noticed_before_sampling(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        pack_rows(tmp_path / "file" / "packed", unread(), X, **ROOM)


def test_rows_that_require_a_gradient_are_refused_before_sampling(tmp_path: Path) -> None:
    rows = X.clone().requires_grad_()
    for store in (rows, wb.MemoryRows(rows)):
        with pytest.raises(ValueError, match="rows that require a gradient can't be read ahead"):
            pack_rows(tmp_path / "packed", unread(), store, **ROOM)
    assert not os.listdir(tmp_path)


def test_what_a_killed_call_wrote_is_deleted(disk: wb.DiskRows, tmp_path: Path) -> None:
    draft = tmp_path / f".packed.{'0' * 32}.new"  # of no process that still runs: nobody has locked it
    draft.mkdir()
    (draft / "rows.bin").write_bytes(bytes(1000))
    pack_rows(tmp_path / "packed", EPOCH, disk, **ROOM)
    assert os.listdir(tmp_path) == ["packed"]


@pytest.mark.parametrize("entry", ["notes.txt", "order/notes.txt", "rows/notes.txt"])
def test_files_of_others_are_kept(disk: wb.DiskRows, tmp_path: Path, entry: str) -> None:
    target = tmp_path / "packed"
    pack_rows(target, EPOCH, disk, **ROOM)
    pack_rows(target, EPOCH, disk, **ROOM, overwrite=True)
    (target / entry).write_text("years of work")
    with pytest.raises(FileExistsError, match=rf"packed has {entry.partition('/')[0]}.*, so it is not a folder"):
        pack_rows(target, EPOCH, disk, **ROOM, overwrite=True)
    assert (target / entry).read_text() == "years of work"


def test_a_folder_with_one_called_order_is_kept(disk: wb.DiskRows, tmp_path: Path) -> None:
    (tmp_path / "books" / "order").mkdir(parents=True)
    with pytest.raises(FileExistsError, match=r"books has order, which has no header\.json, so it is not"):
        pack_rows(tmp_path / "books", EPOCH, disk, **ROOM, overwrite=True)
    assert (tmp_path / "books" / "order").is_dir()


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(CapacityError, match=r"there is memory for 5; raise memory to \d+"):
        pack_rows(tmp_path / "packed", EPOCH, X, memory=5 * ROW_BYTES)
    with pytest.raises(ValueError, match="group is 0"):
        pack_rows(tmp_path / "packed", EPOCH, X, **ROOM, group=0)
    with pytest.raises(TypeError, match="not iterable"):
        pack_rows(tmp_path / "packed", 3, X, **ROOM)  # pyright: ignore[reportArgumentType]
    with pytest.raises(FileNotFoundError):
        PackedRows(tmp_path / "packed")
    assert not os.listdir(tmp_path)
    packed = pack_rows(tmp_path / "packed", EPOCH, X, **ROOM)
    ids: Any = [1]
    with pytest.raises(TypeError, match="ids must be an int64 or int32 tensor, not list"):
        packed.read(ids)
    with pytest.raises(TypeError, match="ids must be an int64 or int32 tensor, not list"):
        packed.read_to(ids, torch.empty(1, WIDTH), torch.tensor([0]))
