"""A process that is killed while it writes partitions leaves everything that was committed."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench as wb
from tests.killed import killed_at_each_operation
from workbench.outofcore.store_files import PartitionFile
from workbench.outofcore.store_layout import BLOCK

NODES, P, WIDTH = 40, 5, 150
SRC, DST = torch.randint(0, NODES, (2, 200), generator=torch.Generator().manual_seed(1))
ORDER = wb.outofcore.beta_order(P, 2)
ALL = torch.arange(NODES)
STEPS = ("pwritev", "fdatasync", "fsync", "replace")
"""What `os` is asked for when a partition is written."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph, folder = wb.Graph.from_edges(SRC, DST, num_nodes=NODES), tmp_path_factory.mktemp("built") / "store"
    wb.outofcore.PartitionStore.build(folder, graph, rows=wb.outofcore.LearntInit(WIDTH, std=0), num_partitions=P)
    run(folder, None)  # compiled before the forks
    shutil.rmtree(folder)
    wb.outofcore.PartitionStore.build(folder, graph, rows=wb.outofcore.LearntInit(WIDTH, std=0), num_partitions=P)
    return folder


def run(folder: Path, log: int | None, **options: Any) -> None:
    """An epoch whose state k writes values k + 1 and optimizer states −k − 1; log what has been committed."""
    store, real = wb.outofcore.PartitionStore.open(folder), PartitionFile.write

    def write(self: PartitionFile, partition: int, memory: torch.Tensor) -> None:
        version = int(memory[:4].view(torch.float32)[0])
        real(self, partition, memory)
        if log is not None:
            os.write(log, bytes([partition, version]))

    PartitionFile.write = write
    try:
        with wb.outofcore.PartitionBuffer(store, capacity=2, **options) as buffer:
            for state in buffer.epoch(ORDER):
                ids = ALL[torch.isin(ALL // store.partition_rows, state.partitions)]
                values = torch.full((len(ids), WIDTH), float(state.number + 1))
                assert state.state_rows is not None
                state.rows.write(ids, values)
                state.state_rows.write(ids, -values)
    finally:
        PartitionFile.write = real


def kill_at(call: int) -> None:
    """Let this forked process be killed at a call of the system, in the middle of it if it writes."""
    torch.set_num_threads(1)  # OpenMP waits for ever for the threads of the parent
    left = iter(range(call))

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **named: Any) -> Any:
            if next(left, None) is None:
                if name == "pwritev":
                    descriptor, [buffer], offset = arguments
                    real(descriptor, [buffer[:BLOCK]], offset)
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)

        return act

    for name in STEPS:
        setattr(os, name, wrapped(name, getattr(os, name)))


def killed_epoch(folder: Path, call: int, **options: Any) -> tuple[bool, list[int]]:
    """Run an epoch in a process of its own; return whether it was killed, and what was committed, by partition."""
    source, log = os.pipe()
    if not (child := os.fork()):
        try:
            kill_at(call)
            run(folder, log, **options)
        finally:
            os._exit(0)
    os.close(log)
    with open(source, "rb") as file:
        written = file.read()
    committed = [0] * P
    for partition, version in zip(written[::2], written[1::2], strict=True):
        committed[partition] = version
    return os.WIFSIGNALED(os.waitpid(child, 0)[1]), committed


def check_kill(built: Path, folder: Path, call: int, **options: Any) -> bool:
    """Kill an epoch at a call; return whether it came so far."""
    shutil.copytree(built, folder)
    killed, committed = killed_epoch(folder, call, **options)
    store = wb.outofcore.PartitionStore.open(folder)
    assert not store.damaged()
    values, state = store.read(), store.read(state=True)
    assert torch.equal(state, -values)  # of one moment
    for partition in range(P):
        [version] = values[ALL // store.partition_rows == partition].unique().tolist()
        assert version == committed[partition] or (killed and version > committed[partition])
    return killed


THREADS = {"prefetch": True, "io_threads": 2}


@pytest.mark.parametrize("call", [0, 2, 3, 9, 14])
def test_what_was_committed_survives_a_kill(built: Path, tmp_path: Path, call: int) -> None:
    assert check_kill(built, tmp_path / "store", call, **THREADS)
    run(tmp_path / "store", None)  # and it can be trained on
    assert (wb.outofcore.PartitionStore.open(tmp_path / "store").read()[0] == 1 + last_state_of(0)).all()


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"prefetch": False}, THREADS], ids=["inline", "threads"])
def test_killed_at_every_call(built: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    calls = 0
    while check_kill(built, tmp_path / str(calls), calls, **options):
        calls += 1
    assert calls > 4 * P


def last_state_of(partition: int) -> int:
    return int((ORDER.states == partition).any(1).nonzero().max())


@pytest.mark.slow
def test_killed_while_it_is_built(tmp_path: Path) -> None:
    graph = wb.Graph.from_edges(SRC, DST, num_nodes=NODES)
    for call in range(100):
        if not (child := os.fork()):
            try:
                kill_at(call)
                wb.outofcore.PartitionStore.build(
                    tmp_path / "store", graph, rows=wb.outofcore.LearntInit(WIDTH), num_partitions=P
                )
            finally:
                os._exit(0)
        if not os.WIFSIGNALED(os.waitpid(child, 0)[1]):
            break
        if (tmp_path / "store").exists():  # killed when it was complete
            assert not wb.outofcore.PartitionStore.open(tmp_path / "store").damaged()
            shutil.rmtree(tmp_path / "store")
    assert call > 3 and not wb.outofcore.PartitionStore.open(tmp_path / "store").damaged()
    assert wb.outofcore.PartitionStore.build(
        tmp_path / "again", graph, rows=wb.outofcore.LearntInit(WIDTH), num_partitions=P
    )


@pytest.mark.slow
def test_killed_while_it_is_replaced(tmp_path: Path) -> None:
    """The store is the old one with its trained rows, or the new one; opening it cleans up."""
    graph, folder = wb.Graph.from_edges(SRC, DST, num_nodes=NODES), tmp_path / "store"

    def build(seed: int) -> wb.outofcore.PartitionStore:
        rows = wb.outofcore.LearntInit(WIDTH, std=0)
        return wb.outofcore.PartitionStore.build(folder, graph, rows=rows, num_partitions=P, seed=seed, overwrite=True)

    def replace() -> None:
        torch.set_num_threads(1)
        build(2)

    old, new = build(1).node_ids.clone(), None
    run(folder, None)
    trained, outcomes = wb.outofcore.PartitionStore.open(folder).read(), set()
    for moment in killed_at_each_operation(replace, tmp_path):
        store = wb.outofcore.PartitionStore.open(folder)
        is_old = torch.equal(store.node_ids, old)
        outcomes.add(is_old)
        assert not store.damaged(), moment
        assert torch.equal(store.read(), trained if is_old else torch.zeros(NODES, WIDTH)), moment
        assert [path.name for path in tmp_path.iterdir()] == ["store"], moment
        if not is_old:
            new = store.node_ids.clone() if new is None else new
            assert torch.equal(store.node_ids, new)
            build(1)
        run(folder, None)
    assert outcomes == {True, False}
    assert wb.outofcore.PartitionStore.open(folder).read()[0].eq(0).all()
