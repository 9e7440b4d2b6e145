"""The choice between ways of reading: its counts are those of the reads, and the least time of the disk wins."""

import os
from dataclasses import replace
from itertools import groupby
from math import ceil
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, strategies as st

import workbench as wb
from tests.strategies import random_graph
from workbench.core.errors import CapacityError
from workbench.core.trace import AccessTrace
from workbench.features.memory_rows import open_rows
from workbench.outofcore.buffer import slots_needed
from workbench.outofcore.reading import Reading, ReadingPlan, plan_reading, read_by_page
from workbench.outofcore.tuning import DiskModel, epoch_io

NODES, WIDTH = 3000, 16
X = torch.randn(NODES, WIDTH, generator=torch.Generator().manual_seed(0))
ROW_BYTES = X[:1].nbytes
GRAPH = random_graph(NODES, 15_000, edge_ids=False)
EPOCH = wb.batches(GRAPH, torch.arange(0, NODES, 3), sampler=wb.NeighborSampler([2, 3]), batch_size=50, epoch=0)
TRACE = AccessTrace.of(mb.node_ids for _, mb in EPOCH)
SIZES: dict[str, Any] = {"num_rows": NODES, "row_bytes": ROW_BYTES, "memory": 2000 * ROW_BYTES}
FAST, SLOW_TO_FIND = DiskModel(1e9, 1e7), DiskModel(1e9, 100)
SLOW_TO_WRITE = replace(FAST, write_bytes_per_second=1e6)


def planned(trace: AccessTrace = TRACE, **options: Any) -> ReadingPlan:
    settings: dict[str, Any] = {**SIZES, "disk": FAST, **options}
    return plan_reading(trace, **settings)


def options_of(plan: ReadingPlan) -> dict[tuple[str, int], Reading]:
    return {(option.method, option.group): option for option in (plan.best, *plan.others)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reading") / "rows"
    wb.MappedRows.create(path, X)
    return path


@pytest.mark.parametrize("disk", [FAST, SLOW_TO_FIND, SLOW_TO_WRITE], ids=["fast", "slow to find", "slow to write"])
def test_bytes_and_reads_are_those_of_an_epoch(folder: Path, tmp_path: Path, disk: DiskModel) -> None:
    disk = replace(disk, block_bytes=wb.DiskRows(folder).block_bytes)
    plan = planned(disk=disk, groups=(1, 3))
    found = options_of(plan)
    assert list(found) == sorted(found, key=lambda key: found[key].seconds) and len(found) == 3
    for group in (1, 3):
        rows = wb.DiskRows(folder, gap_bytes=plan.gap_bytes)
        for _ in wb.outofcore.read_ahead(EPOCH, rows, memory=plan.memory_bytes, group=group):
            pass
        expected = found["belady", group]
        first = torch.cat([*TRACE][:group]).unique()
        assert expected.first_seconds == disk.seconds(*rows.cost_of(first)) < expected.seconds
        assert (rows.read_bytes, rows.num_reads) == (expected.read_bytes, expected.num_reads)
        assert expected.seconds == disk.seconds(rows.read_bytes, rows.num_reads) and not expected.written_bytes
    source = wb.DiskRows(folder, gap_bytes=plan.gap_bytes)
    packed = wb.outofcore.pack_rows(tmp_path / "packed", EPOCH, source, memory=plan.memory_bytes)
    for _ in wb.outofcore.read_ahead(EPOCH, packed, memory=plan.memory_bytes):
        pass
    expected = found["packed", 1]
    assert source.read_bytes + packed.read_bytes == expected.read_bytes
    assert source.num_reads + packed.num_reads == expected.num_reads
    assert expected.written_bytes == packed.num_rows * ROW_BYTES
    written = expected.written_bytes
    assert disk.seconds(source.read_bytes, source.num_reads, written) < expected.first_seconds < expected.seconds
    both = source.read_bytes + packed.read_bytes, source.num_reads + packed.num_reads
    speed = 1e6 if disk.write_bytes_per_second else 1e9
    assert expected.seconds == pytest.approx(disk.seconds(*both) + written / speed)


@pytest.mark.parametrize("num_train", [2, 8])
def test_the_buffer_that_the_program_allocates_fits(tmp_path: Path, num_train: int) -> None:
    store = wb.outofcore.PartitionStore.build(tmp_path / "store", GRAPH, rows=X, num_partitions=8)
    edges: dict[str, Any] = {"num_partitions": 8, "num_train_partitions": num_train}
    for memory in range(3 * store.partition_bytes, 10 * store.partition_bytes, store.partition_bytes // 2):
        buffer = planned(memory=memory, groups=(), num_edges=0, **edges).best
        slots = slots_needed(wb.outofcore.node_order(8, buffer.capacity, num_train), prefetch=True)
        assert slots * store.partition_bytes == buffer.buffer_bytes <= memory


def test_counts_of_the_buffer_are_near_those_of_a_store(tmp_path: Path) -> None:
    store = wb.outofcore.PartitionStore.build(tmp_path / "store", GRAPH, rows=X, num_partitions=8)
    edges: dict[str, Any] = {"num_edges": GRAPH.num_edges, "num_partitions": 8, "num_train_partitions": 8}
    plan = planned(memory="400 KiB", groups=(), **edges)
    buffer = plan.best
    assert (buffer.method, plan.others, buffer.num_partitions) == ("buffer", (), 8) and 2 <= buffer.capacity < 8
    io = epoch_io(store, wb.outofcore.node_order(8, buffer.capacity, 8))
    assert buffer.read_bytes - io.row_bytes == pytest.approx(io.edge_bytes, rel=0.15), "buckets differ in size"
    alone = planned(memory="200 KiB", groups=(), **{**edges, "num_edges": 0})
    order = wb.outofcore.node_order(8, alone.best.capacity, 8)
    assert alone.best.read_bytes == epoch_io(store, order).row_bytes
    assert 0 < buffer.first_seconds < buffer.seconds
    states = wb.outofcore.node_order(8, buffer.capacity, 1).states
    once = planned(memory="400 KiB", groups=(), **{**edges, "num_train_partitions": 1}).best
    assert len(states) == 1 and once.first_seconds == once.seconds, "nothing is left to overlap"
    twice = planned(memory="400 KiB", groups=(), num_epochs=2, **edges).best
    assert twice.read_bytes == 2 * buffer.read_bytes and twice.num_reads == 2 * buffer.num_reads
    assert not planned(num_edges=10**9).best.num_partitions, "its edges do not fit"


def test_buckets_of_training_nodes_that_have_most_edges_are_expected(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    train_idx = torch.randperm(NODES, generator=generator)[: NODES // 3]
    popular = train_idx[torch.randint(len(train_idx), (12_000,), generator=generator)]
    anyone = torch.randint(NODES, (4, 12_000), generator=generator)
    graph = wb.Graph.from_edges(
        torch.cat([popular, anyone[0], anyone[1]]), torch.cat([popular.flip(0), anyone[2], popular]), num_nodes=NODES
    )
    expected = wb.outofcore.expected_buckets(graph, train_idx, 8)
    assert float(expected.sum()) == pytest.approx(graph.num_edges)
    counts = torch.zeros(8, 8, dtype=torch.float64)
    for seed in range(20):
        store = wb.outofcore.PartitionStore.build(
            tmp_path / f"{seed}", graph, rows=X, train_idx=train_idx, num_partitions=8, seed=seed
        )
        part = torch.empty(NODES, dtype=torch.int64).scatter_(0, store.node_ids, torch.arange(NODES)) // (NODES // 8)
        rows = torch.repeat_interleave(part, graph.in_degrees())
        counts += torch.bincount(8 * part[graph.indices.long()] + rows, minlength=64).view(8, 8)
    error = (counts / 20 - expected).abs() / (expected / 20).sqrt()
    assert float(error.max()) < 5, "standard errors of the mean of Poisson counts"
    train = store.num_train_partitions
    edges: dict[str, Any] = {"num_edges": graph.num_edges, "num_partitions": 8, "num_train_partitions": train}
    plan = planned(memory="500 KiB", groups=(), **edges, buckets=expected).best
    io = epoch_io(store, wb.outofcore.node_order(8, plan.capacity, train))
    assert plan.read_bytes - io.row_bytes == pytest.approx(io.edge_bytes, rel=0.02)
    equal = planned(memory="500 KiB", groups=(), **edges).best
    assert equal.read_bytes - io.row_bytes < 0.9 * io.edge_bytes


@pytest.mark.parametrize("num_edges", [1, 30])
def test_buckets_without_edges_are_not_read(tmp_path: Path, num_edges: int) -> None:
    ends = torch.randint(64, (2, num_edges), generator=torch.Generator().manual_seed(0))
    graph, rows = wb.Graph.from_edges(*ends, num_nodes=64), torch.zeros(64, 256)
    store = wb.outofcore.PartitionStore.build(tmp_path / "store", graph, rows=rows, num_partitions=8)
    sizes: dict[str, Any] = {"num_rows": 64, "row_bytes": 1024, "memory": "40 KiB", "groups": ()}
    edges: dict[str, Any] = {"num_edges": num_edges, "num_partitions": 8, "num_train_partitions": 8}
    edges |= {"edge_bytes": store.layout.edge_bytes, "buckets": store.bucket_edges.double()}
    plan = planned(AccessTrace.of([torch.arange(64)]), **sizes, **edges).best
    order, reads = wb.outofcore.node_order(8, plan.capacity, 8), []
    with wb.outofcore.PartitionBuffer(store, capacity=plan.capacity, prefetch=False) as buffer:
        first = next(states := buffer.epoch(order)), buffer.io
        for _ in states:
            pass
        assert plan.read_bytes == buffer.io.read_bytes == epoch_io(store, order).read_bytes
    held = {(i, j) for i in first[0].partitions.tolist() for j in first[0].partitions.tolist()}
    before: set[tuple[int, int]] = set()
    for state in order.states.tolist():
        now = {(i, j) for i in state for j in state}
        new = [(i, j) in now - before for i in range(8) for j in range(8)]
        runs = groupby(zip(new, store.bucket_edges.flatten().tolist(), strict=True), key=itemgetter(0))
        reads.append(sum(is_new and any(edges for _, edges in run) for is_new, run in runs))
        before = now
    assert plan.num_reads == 8 + sum(reads) and len(held) == plan.capacity**2
    assert plan.first_seconds == FAST.seconds(first[1].read_bytes, plan.capacity + reads[0])


@pytest.mark.parametrize(
    ("train_idx", "num_partitions", "error", "text"),
    [
        ([0, 1], 0, ValueError, "num_partitions is 0"),
        ([0, 1], 4, ValueError, "whole number from 1 to 3"),
        ([0, 3], 2, IndexError, "train_idx"),
        ([1, 1], 2, ValueError, "more than once"),
        ([0.5], 2, TypeError, "train_idx"),
    ],
)
def test_arguments_of_expected_buckets(train_idx: list[float], num_partitions: int, error: Any, text: str) -> None:
    graph = wb.Graph.from_edges([0, 1], [1, 2], num_nodes=3)
    with pytest.raises(error, match=text):
        wb.outofcore.expected_buckets(graph, torch.tensor(train_idx), num_partitions)


def test_the_disk_decides() -> None:
    fast = planned(memory=NODES * ROW_BYTES)
    assert fast.best.method == "belady" and fast.gap_bytes == 100
    assert planned().best.method == "packed", "little memory for small rows, of which a block has many"
    spread = AccessTrace.of(ids * 1000 for ids in TRACE)  # no two rows are neighbours
    sizes: dict[str, Any] = {"num_rows": 1000 * NODES, "groups": (1, 2)}
    fast, slow = (options_of(planned(spread, **sizes, disk=disk)) for disk in (FAST, SLOW_TO_FIND))
    for group in (1, 2):
        few, many = slow["belady", group], fast["belady", group]
        assert few.num_reads < many.num_reads and few.read_bytes > many.read_bytes
    assert slow["belady", 2].num_reads < slow["belady", 1].num_reads, "more rows have more neighbours"
    disk = DiskModel(1e9, 1e5)
    once, often = (planned(spread, **sizes, disk=disk, packed_uses=uses) for uses in (1, 50))
    assert (once.best.method, often.best.method) == ("belady", "packed")


def test_more_memory_never_reads_more() -> None:
    plans = [planned(memory=n * ROW_BYTES) for n in (1000, 1700, 9000)]
    nbytes = [options_of(plan)["belady", 1].read_bytes for plan in plans]
    assert nbytes == sorted(nbytes, reverse=True)


def test_the_record_is_frozen_and_reads_like_code() -> None:
    plan = planned(groups=[1])
    names = {"ReadingPlan": ReadingPlan, "Reading": Reading, "DiskModel": DiskModel}
    assert eval(repr(plan), names) == plan
    with pytest.raises(AttributeError):
        plan.best = plan.others[0]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"memory": 100 * ROW_BYTES},
            CapacityError,
            r"nothing fits into .*for 100.*Raise memory to",
        ),
        ({"memory": 10}, CapacityError, "a row has 64 bytes"),
        ({"groups": ()}, ValueError, "groups is empty, and no buffer is considered; pass numbers of batches"),
        ({"groups": (), "num_edges": 5, "num_partitions": NODES + 1}, ValueError, f"no more than {NODES} partitions"),
        ({"groups": (), "num_edges": 5, "memory": 8000}, CapacityError, "Raise memory to .* or pass more partitions"),
        ({"groups": (0,)}, ValueError, "a group is 0"),
        ({"row_bytes": 0}, ValueError, "row_bytes is 0"),
        ({"num_rows": 5}, IndexError, "trace.ids"),
        ({"disk": 1e9}, TypeError, "DiskModel"),
        ({"packed_uses": 0}, ValueError, "packed_uses is 0"),
        ({"margin": 1.0}, ValueError, r"margin is 1.0; it must be in \[0, 1\)"),
        ({"margin": "a"}, ValueError, "margin is 'a'; it must be in"),
        ({"margin": float("nan")}, ValueError, "margin is nan"),
        ({"num_edges": 5, "num_train_partitions": 65}, ValueError, "num_train_partitions is 65"),
        ({"buckets": [[0.0]]}, TypeError, "buckets is a list; pass a tensor"),
        ({"buckets": torch.zeros(9)}, TypeError, "buckets must be a tensor of torch.float64"),
        ({"buckets": torch.zeros(9).double()}, ValueError, "buckets"),
        ({"buckets": torch.full((64, 64), -1.0).double()}, ValueError, "buckets contains -1.0; numbers of edges can't"),
        ({"buckets": torch.full((64, 64), torch.inf).double()}, ValueError, "buckets contains inf"),
    ],
)
@pytest.mark.parametrize("memory", [SIZES["memory"], "1 MiB"])
def test_bad_input(options: dict[str, Any], error: type[Exception], message: str, memory: int | str) -> None:
    settings: dict[str, Any] = {"memory": memory, "num_edges": 5 if "buckets" in options else None, **options}
    with pytest.raises(error, match=message):
        planned(**settings)


def memory_that_fits(*trace: AccessTrace, **options: Any) -> int:
    """The memory that the error names."""
    with pytest.raises(CapacityError) as found:
        planned(*trace, **options)
    return int(str(found.value).split("memory to ")[1].split(",")[0])


def test_what_is_said_to_fit_fits() -> None:
    needed = memory_that_fits(memory=6400)
    assert planned(memory=needed, groups=[1]).best
    with pytest.raises(CapacityError):
        planned(memory=needed - 1)


@given(
    num_used=st.integers(2, 30),
    row_bytes=st.integers(1, 700),
    margin=st.sampled_from([0.0, 0.1, 0.3, 0.7, 1 - 1e-5]) | st.floats(0, 0.99),
)
@example(num_used=21, row_bytes=6, margin=0.3)  # int(180 · 0.7) = 125, but 126 are needed
def test_what_is_said_to_fit_beside_a_margin_fits(num_used: int, row_bytes: int, margin: float) -> None:
    trace = AccessTrace.of([torch.arange(num_used)])
    options: dict[str, Any] = {"num_rows": 60, "row_bytes": row_bytes, "margin": margin, "groups": (1,)}
    needed = memory_that_fits(trace, **options, memory=1)
    assert planned(trace, **options, memory=needed).best
    with pytest.raises(CapacityError):
        planned(trace, **options, memory=max(1, needed - 2))


def test_what_is_said_to_fit_a_buffer_does() -> None:
    edges: dict[str, Any] = {"num_edges": 999, "num_partitions": 8}
    for groups in ((), (16,)):
        needed = memory_that_fits(memory=6400, groups=groups, **edges)
        assert options_of(planned(memory=needed, groups=groups, **edges))["buffer", 0].capacity == 2
        assert needed == memory_that_fits(memory=needed - 1, groups=groups, **edges)


def test_groups_are_considered_in_any_order() -> None:
    memory = memory_that_fits(memory=6400, groups=(1,))
    expected = planned(memory=memory, groups=(1,))
    assert planned(memory=memory, groups=(3, 1, 1, 2)) == expected
    every = planned(memory=NODES * ROW_BYTES, groups=(1, 2, 3))
    assert planned(memory=NODES * ROW_BYTES, groups=(3, 1, 2, 3)) == every and len(every.others) == 3


def test_larger_groups_are_considered_unless_they_read_what_did_not_fit() -> None:
    reads = [torch.tensor([0])] * 9
    reads[3], reads[8] = torch.arange(5), torch.arange(5, 10)  # groups of 3 have both in a row, groups of 4 do not
    found = options_of(planned(AccessTrace.of(reads), groups=(3, 4, 6), memory=6 * ROW_BYTES))
    assert found.keys() == {("belady", 4), ("packed", 4)}


def test_a_buffer_has_no_more_partitions_than_rows() -> None:
    trace = AccessTrace.of([torch.arange(3), torch.arange(5)])
    options: dict[str, Any] = {"num_rows": 40, "row_bytes": 4096, "memory": 10 * 4096, "num_edges": 5}
    assert {method for method, _ in options_of(planned(trace, **options))} == {"belady", "packed"}
    slow = {"disk": DiskModel(1e9, 1e4)}
    assert "buffer" in {method for method, _ in options_of(planned(trace, **options, **slow, num_partitions=40))}


def test_counts_beside_a_margin_are_not_those_of_the_choice() -> None:
    assert planned(memory=2000 * ROW_BYTES).error == 0.0
    assert planned(memory=2000 * ROW_BYTES, margin=0.1).error is None
    assert planned(memory=NODES * ROW_BYTES, margin=0.1).error == 0.0, "counted with all rows"
    assert planned(memory="1 MiB", groups=(), num_edges=5).error is None


def test_a_margin_is_left_to_larger_batches_but_not_by_a_buffer() -> None:
    with pytest.raises(CapacityError) as found:
        planned(memory=6400, margin=0.2)
    needed = int(str(found.value).split("memory to ")[1].split(",")[0])
    without = planned(memory=ceil(0.8 * needed), groups=[1])
    assert planned(memory=needed, margin=0.2, groups=[1]).best.read_bytes == without.best.read_bytes
    with pytest.raises(CapacityError):
        planned(memory=needed - 2, margin=0.2)
    everything = planned(memory=10_000 * ROW_BYTES, margin=0.2), planned(memory=10_000 * ROW_BYTES)
    assert everything[0].best.read_bytes == everything[1].best.read_bytes, "no batch reads more than all rows"
    buffers = [planned(memory="1 MiB", num_edges=5, margin=margin) for margin in (0.0, 0.9)]
    capacities = [{one.capacity for one in (plan.best, *plan.others) if one.method == "buffer"} for plan in buffers]
    assert capacities[0] == capacities[1] != set()


def test_a_disk_is_measured(tmp_path: Path) -> None:
    disk = DiskModel.measured(tmp_path, file_bytes="2 MiB", threads=3)
    assert min(disk.bytes_per_second, disk.reads_per_second, disk.write_bytes_per_second or 0) > 0
    assert not os.listdir(tmp_path)
    with pytest.raises(ValueError, match="file_bytes is 5"):
        DiskModel.measured(tmp_path, file_bytes=5)
    with pytest.raises(ValueError, match="threads is 0"):
        DiskModel.measured(tmp_path, threads=0)
    with pytest.raises(FileNotFoundError):
        DiskModel.measured(tmp_path / "missing")


def advised(tensor: torch.Tensor) -> bool:
    """Whether the system has been told that the mapping of a tensor is read at random ("rr" of its flags)."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first and not first.endswith(":"):
            low, high = (int(end, 16) for end in first.split("-"))
            inside = low <= tensor.data_ptr() < high
        elif inside and first == "VmFlags:":
            return "rr" in rest
    raise LookupError("the tensor is in no mapping")


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc")
def test_mapped_arrays_are_read_by_page_from_then_on(tmp_path: Path, folder: Path) -> None:
    GRAPH.save(tmp_path / "graph")
    graph, rows = wb.Graph.open(tmp_path / "graph"), open_rows(folder)
    assert not any(map(advised, (graph.indptr, graph.indices, rows)))
    read_by_page(graph, rows[1:])
    assert all(map(advised, (graph.indptr, graph.indices, rows)))
    batch = wb.NeighborSampler([2]).sample(graph, torch.arange(9))
    assert torch.equal(batch.node_ids, wb.NeighborSampler([2]).sample(GRAPH, torch.arange(9)).node_ids)
    read_by_page(torch.empty(0))
    with pytest.raises(TypeError, match="mapped is a str; pass a graph"):
        read_by_page("graph")  # pyright: ignore[reportArgumentType]
