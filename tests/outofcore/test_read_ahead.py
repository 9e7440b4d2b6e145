"""Rows read ahead: losses of training in memory, bytes as counted, memory within the budget, nothing left behind."""

import gc
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.functional import cross_entropy

import workbench as wb
from tests.features.disk import open_descriptors
from tests.strategies import random_graph
from workbench.core.errors import CapacityError
from workbench.core.trace import AccessTrace
from workbench.features.stage import windows
from workbench.kernels.buffers import uninitialised
from workbench.outofcore.read_ahead import ReadAhead, read_ahead

NODES, WIDTH = 600, 32
GRAPH = random_graph(NODES, 5000, edge_ids=False)
X = torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(0))
Y = torch.arange(NODES) % 3
ROW_BYTES = X[:1].nbytes
SAMPLERS = {
    "NS": wb.NeighborSampler([2, 3]),
    "DENSE": wb.DenseSampler([3, 2]),
    "LABOR-*": wb.LaborSampler([2, 3], importance="*"),
}
ROOM = 480


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ahead") / "rows"
    wb.MappedRows.create(path, X)
    return path


def loader(sampler: str = "NS") -> Any:
    batches = wb.batches(GRAPH, torch.arange(0, NODES, 2), sampler=SAMPLERS[sampler], batch_size=20)
    batches.set_epoch(0)  # chosen, so nothing warns that many tests repeat it
    return batches


def ahead(folder: Path, *, sampler: str = "NS", **options: Any) -> tuple[wb.DiskRows, ReadAhead]:
    disk = wb.DiskRows(folder, direct="auto", threads=2)
    return disk, read_ahead(loader(sampler), disk, memory=ROOM * ROW_BYTES, **options)


def train(epoch: Callable[[], Iterator[tuple[wb.MiniBatch, Any]]], *, parts: int = 1) -> tuple[Tensor, Tensor]:
    """Losses of every step of two epochs, and the parameters after them."""
    model = wb.build_model("sage-mean", in_dim=WIDTH, hidden_dim=8, out_dim=3, seed=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(2):
        for mb, rows in epoch():
            micro = mb.split(wb.partition_batch(mb, parts)) if parts > 1 else mb
            losses.append(wb.train_step(model, micro, rows, Y, cross_entropy, optimizer))
    return torch.stack(losses), torch.cat([p.detach().flatten() for p in model.parameters()])


def in_memory(sampler: str = "NS", **options: Any) -> tuple[Tensor, Tensor]:
    batches = loader(sampler)
    return train(lambda: ((mb, X) for _, mb in batches), **options)


def same(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("sampler", "options"),
    [
        ("NS", {}),
        ("DENSE", {"window": 4}),
        ("LABOR-*", {"window": 5, "group": 2}),
        ("NS", {"window": 1}),
        ("NS", {"overlap": False, "window": 7, "group": 3}),
    ],
)
def test_losses_are_those_of_training_in_memory_in_every_bit(folder: Path, sampler: str, options: dict) -> None:
    disk, batches = ahead(folder, sampler=sampler, **options)
    found = train(lambda: ((mb, rows) for _, mb, rows in batches))
    assert same(found, in_memory(sampler))
    assert 0 < batches.peak_rows <= ROOM < NODES and disk.num_reads


def test_micro_batches_read_their_rows(folder: Path) -> None:
    _, batches = ahead(folder)
    assert same(train(lambda: ((mb, rows) for _, mb, rows in batches), parts=3), in_memory(parts=3))


@pytest.mark.parametrize("store", [X, wb.MemoryRows(X), X.numpy()], ids=["tensor", "memory", "array"])
def test_other_stores(store: Any) -> None:
    for _, mb, rows in read_ahead(loader(), store, memory=ROOM * ROW_BYTES, window=5):
        assert torch.equal(rows.read(mb.node_ids), X[mb.node_ids])
        some = mb.node_ids[[3, 0, 3]].int()
        out = torch.empty(3, WIDTH)
        assert rows.read(some, out=out) is out and torch.equal(out, X[some.long()])


@pytest.mark.parametrize("store", [X, X.numpy()], ids=["tensor", "array"])
def test_evaluation_in_inference_mode(store: Any) -> None:
    with torch.inference_mode():
        groups = 0
        for _, mb, rows in read_ahead(loader(), store, memory=ROOM * ROW_BYTES, window=5):
            assert torch.equal(rows.read(mb.node_ids), X[mb.node_ids])
            groups += 1
    assert groups == len(loader())


@pytest.mark.parametrize(("group", "overlap"), [(1, True), (2, True), (4, False)])
def test_what_is_read_is_what_the_plan_counts(folder: Path, group: int, overlap: bool) -> None:
    links, host = wb.Traffic(), wb.Traffic()
    disk = wb.DiskRows(folder, threads=2, gap_bytes=0, traffic=links)
    batches = loader()
    groups = windows([mb.node_ids for _, mb in batches.epoch(0)], size=group)
    plan = wb.outofcore.plan_rows(AccessTrace.of(map(torch.cat, groups)), ROOM, num_rows=NODES, overlap=overlap)
    costs = [disk.cost_of(ids) for ids, _ in plan.reads()]
    options: dict[str, Any] = {"group": group, "overlap": overlap, "traffic": host}
    found = read_ahead(batches, disk, memory=ROOM * ROW_BYTES, **options)
    accesses = sum(len(rows.read(mb.node_ids)) for _, mb, rows in found)
    assert (disk.read_bytes, disk.num_reads) == tuple(map(sum, zip(*costs, strict=True)))
    assert links.snapshot().count("disk") == plan.num_rows and found.peak_rows == plan.peak_rows
    assert host.snapshot().count("host") == accesses > plan.num_rows


def test_one_loop_over_several_epochs_reads_fewer_rows() -> None:
    links, counts = wb.Traffic(), []
    store = wb.MemoryRows(X, traffic=links)
    batches = loader()
    for epochs in (lambda: [batches.epoch(0), batches.epoch(1)], lambda: [batches.steps(2 * len(batches))]):
        before, seeds = links.snapshot(), []
        for part in epochs():
            for _, mb, rows in read_ahead(part, store, memory=ROOM * ROW_BYTES, window=len(batches)):
                assert torch.equal(rows.read(mb.node_ids), X[mb.node_ids])
                seeds.append(mb.seeds)
        counts.append((links.snapshot() - before).count("host"))
    assert len(seeds) == 2 * len(batches) and counts[1] < counts[0]


def test_pairs_with_rows_that_are_only_read(folder: Path) -> None:
    ends = torch.stack([torch.arange(NODES), torch.arange(NODES).flip(0)])
    pairs = wb.edge_batches(GRAPH, ends, sampler=SAMPLERS["NS"], batch_size=30)
    found = 0
    for step, edges, mb, rows in read_ahead(pairs, wb.DiskRows(folder), memory=X.nbytes, window=3):
        assert torch.equal(edges.seeds, mb.seeds) and mb.step == step
        assert torch.equal(rows.read(mb.node_ids), X[mb.node_ids])
        found += 1
    assert found == len(pairs)


def test_samples_of_the_window_are_drawn_one_window_ahead() -> None:
    drawn, sizes = [], []

    def batches() -> Iterator[Any]:
        for item in loader().epoch(0):
            drawn.append(item)
            yield item

    for number, _ in enumerate(read_ahead(batches(), X, memory=X.nbytes, window=4, overlap=False)):
        sizes.append(len(drawn) - number)
    assert sizes[0] == 5 and max(sizes) <= 8 and len(drawn) == len(loader())


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "workbench-prefetch"]


def test_an_epoch_that_is_left_leaves_nothing(folder: Path) -> None:
    disk, batches = ahead(folder, window=5)
    for _, _, rows in batches:
        kept = rows
        break
    gc.collect()
    assert not threads()
    with pytest.raises(ValueError, match="the loop has gone on"):
        kept.read(torch.tensor([0]))
    loops = [iter(batches), iter(batches)]
    for loop in loops:
        next(loop)
    batches.close()
    assert not threads() and [next(loop, None) for loop in loops] == [None, None]
    del disk, batches, loops, loop, rows, kept
    assert not open_descriptors(folder)


@pytest.mark.parametrize("leave", [True, False])
def test_the_last_rows_do_not_keep_the_pool_in_memory(monkeypatch: pytest.MonkeyPatch, leave: bool) -> None:
    pools = []

    def remembered(*shape: Any) -> Tensor:
        pool = uninitialised(*shape)
        pools.append(StorageWeakRef(pool.untyped_storage()))
        return pool

    monkeypatch.setattr(import_module("workbench.outofcore.read_ahead"), "uninitialised", remembered)
    for _, _, rows in read_ahead(loader(), X, memory=ROOM * ROW_BYTES):
        assert len(rows) == NODES and not pools[0].expired()
        if leave:
            break
    gc.collect()
    assert pools[0].expired() and (rows.row_shape, rows.dtype) == ((WIDTH,), torch.float32)


@pytest.mark.parametrize("overlap", [True, False])
def test_errors_of_reading_and_sampling_reach_the_loop(overlap: bool) -> None:
    class Broken(wb.MemoryRows):
        def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
            self.reads = getattr(self, "reads", 0) + 1
            if self.reads == 3:
                raise OSError("the disk is broken")
            return super().read(ids, out=out)

    seen = []
    items = read_ahead(loader(), Broken(X), memory=ROOM * ROW_BYTES, overlap=overlap)
    with pytest.raises(OSError, match="broken"):
        seen.extend(item for item in items)
    assert len(seen) == 2 and not threads()

    def broken() -> Iterator[Any]:
        yield from list(loader())[:4]
        raise KeyError("sampler")

    with pytest.raises(KeyError, match="sampler"):
        list(read_ahead(broken(), X, memory=X.nbytes, window=2, overlap=overlap))
    assert not threads()


def test_an_interrupt_ends_the_thread() -> None:
    class Interrupted(wb.MemoryRows):
        def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
            if threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt
            return super().read(ids, out=out)

    with pytest.raises(KeyboardInterrupt):
        list(read_ahead(loader(), Interrupted(X), memory=X.nbytes))
    found = read_ahead(loader(), X, memory=ROOM * ROW_BYTES)
    loop: Any = iter(found)
    next(loop)
    with pytest.raises(KeyboardInterrupt):
        loop.throw(KeyboardInterrupt)
    assert not threads()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"memory": 10}, CapacityError, "memory is 10, less than a row's 128; raise it"),
        ({"memory": "many"}, ValueError, "memory: 'many' is not a number of bytes"),
        ({"window": 0}, ValueError, "window is 0"),
        ({"group": 1.5}, ValueError, "group is 1.5"),
    ],
)
def test_bad_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read_ahead(loader(), X, **options | {"memory": options.get("memory", X.nbytes)})


def test_bad_batches() -> None:
    with pytest.raises(TypeError, match="not iterable"):
        read_ahead(3, X, memory=X.nbytes)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="without a MiniBatch"):
        list(read_ahead([(0, "batch")], X, memory=X.nbytes))
    with pytest.raises(CapacityError, match=r"reads .* rows, but there is memory for 50"):
        list(read_ahead(loader(), X, memory=50 * ROW_BYTES))
    with pytest.raises(IndexError):
        list(read_ahead(loader(), X[:300], memory=X.nbytes))


def test_the_memory_that_is_said_to_be_enough_is() -> None:
    with pytest.raises(CapacityError, match=r"reads .* rows, but there is memory for 50; raise memory to") as found:
        list(read_ahead(loader(), X, memory=50 * ROW_BYTES))
    needed = int(str(found.value).split("raise memory to ")[1].split(",")[0])
    assert len(list(read_ahead(loader(), X, memory=needed))) == len(loader())
    with pytest.raises(CapacityError, match=f"raise memory to {needed}"):
        list(read_ahead(loader(), X, memory=needed - 1))


def test_rows_that_require_a_gradient_are_refused() -> None:
    def unread() -> Iterator[Any]:
        raise AssertionError("a batch was sampled")
        yield

    rows = X.clone().requires_grad_()
    message = "rows that require a gradient can't be read ahead, as each read would need it; detach them"
    for store in (rows, wb.MemoryRows(rows)):
        with pytest.raises(ValueError, match=message):
            read_ahead(unread(), store, memory=X.nbytes)
    learnt = wb.LearnedRows(X.clone())
    with pytest.raises(ValueError, match=message):
        next(iter(read_ahead(loader(), learnt, memory=X.nbytes)))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_learnt_rows_are_read_ahead_where_the_loop_needs_no_gradients(mode: Any) -> None:
    """To evaluate: threads have a mode of their own, but reads are in that of the loop."""
    learnt, expected = wb.LearnedRows(X.clone()), [X[mb.node_ids] for _, mb in loader()]
    for overlap in (True, False):
        with mode():
            found = [
                rows.read(mb.node_ids).clone()
                for _, mb, rows in read_ahead(loader(), learnt, memory=ROOM * ROW_BYTES, overlap=overlap)
            ]
        assert len(found) > 2 and all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
        loop = iter(read_ahead(loader(), learnt, memory=ROOM * ROW_BYTES, overlap=overlap))
        with mode():
            next(loop)
        with pytest.raises(ValueError, match="rows that require a gradient can't be read ahead"):
            for _ in loop:
                pass


def test_a_row_of_another_batch_is_an_error() -> None:
    found = read_ahead(loader(), X, memory=X.nbytes)
    loop = iter(found)
    _, mb, rows = next(loop)
    outside = next(i for i in range(NODES) if i not in mb.node_ids.tolist())
    with pytest.raises(IndexError, match=f"row {outside} is not one of the {mb.num_inputs} rows of this batch"):
        rows.read(torch.tensor([int(mb.node_ids[0]), outside]))
    with pytest.raises(IndexError):
        rows.read(torch.tensor([NODES]))
    assert len(found) == len(loader()) and "600 rows in memory" in repr(found)
