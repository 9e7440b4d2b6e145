"""What is open when a process ends, and how it ends: a process per cell, forked from this one, which has all imports.

    python -m tests.process_ends '[["prefetch, full", "sys.exit", "/tmp/cell"]]'

Prints one line of JSON per cell: seconds from the beginning of the end, exit status, processes left, stderr. This
process adopts the orphans of the others, and so sees them. `OPEN` and `ENDS` are also what a notebook's kernel runs.
"""

import faulthandler
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import torch

import workbench as wb
from workbench import keeper
from workbench.kernels.threads import set_num_threads
from workbench.partition.isolated import Program, run_program

PATIENCE_SECONDS = 60.0
"""To open something on a busy machine, and for a process that does not end."""

LEFT_SECONDS = 12.0  # workers of a DataLoader look for their parent every 5 s
NUM_NODES, NUM_PARTITIONS = 400, 8
MISBEHAVING = Program("Misbehaving", "json", Path(__file__).parent / "partition" / "isolated" / "misbehaving.py")

Opened = Iterator[Any]


def graph() -> wb.Graph:
    torch.manual_seed(0)
    return wb.Graph.from_edges(*torch.randint(NUM_NODES, (2, 4000)), num_nodes=NUM_NODES)


def loader() -> Any:
    return wb.batches(graph(), torch.arange(NUM_NODES), sampler=wb.NeighborSampler([3, 3]), batch_size=20)


def rows_folder(folder: Path) -> Path:
    wb.MappedRows.create(folder / "rows", torch.randn(NUM_NODES, 64))
    return folder / "rows"


def batches(folder: Path) -> Opened:
    yield from loader()


def edge_batches(folder: Path) -> Opened:
    edges = torch.randint(NUM_NODES, (2, 200))
    options = {"sampler": wb.NeighborSampler([3]), "batch_size": 20, "negatives": wb.links.Negatives(5)}
    yield from wb.edge_batches(graph(), edges, **options)


def prefetch_full(folder: Path) -> Opened:
    """The producer waits for room in the queue."""
    for item in wb.prefetch(loader(), depth=1):
        time.sleep(0.2)
        yield item


def prefetch_stuck(folder: Path) -> Opened:
    """The producer waits in its iterable."""

    def items() -> Iterator[int]:
        yield 0
        time.sleep(600)

    yield from wb.prefetch(items())


def prefetch_busy(folder: Path) -> Opened:
    """The producer samples without end."""

    def items() -> Iterator[Any]:
        while True:
            list(loader())
            yield 0

    yield from wb.prefetch(items())


class Sampled(torch.utils.data.Dataset):
    """Mini-batches."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, step: int) -> Any:
        seeds = torch.arange(step * 10, step * 10 + 10)
        return wb.NeighborSampler([3]).sample(graph(), seeds, step=step).node_ids


def data_loader(folder: Path) -> Opened:
    yield from torch.utils.data.DataLoader(Sampled(), batch_size=None, num_workers=2, prefetch_factor=2)


def cached_rows(folder: Path) -> Opened:
    store = wb.CachedRows(wb.DiskRows(rows_folder(folder)), capacity_rows=50)
    for _, batch in loader():
        yield store.read(batch.node_ids)


def disk_rows_in_a_thread(folder: Path) -> Opened:
    store = wb.DiskRows(rows_folder(folder))

    def read() -> Iterator[Any]:
        while True:
            yield store.read(torch.randint(NUM_NODES, (300,)))

    yield from wb.prefetch(read())


def disk_rows_in_a_daemon(folder: Path) -> Opened:
    store = wb.DiskRows(rows_folder(folder))

    def read() -> None:
        while True:
            store.read(torch.randint(NUM_NODES, (300,)))

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield store.read(torch.arange(10))


def mapped_rows(folder: Path) -> Opened:
    store = wb.MappedRows(rows_folder(folder))
    for _, batch in loader():
        yield store.read(batch.node_ids)


def buffer_of(folder: Path, rows: Any) -> Opened:
    store = wb.outofcore.PartitionStore.build(folder / "store", graph(), rows=rows, num_partitions=NUM_PARTITIONS)
    buffer = wb.outofcore.PartitionBuffer(store, capacity=3)
    for state in buffer.epoch(wb.outofcore.node_order(NUM_PARTITIONS, 3, NUM_PARTITIONS)):
        if store.learnt:
            ids = state.partitions[0] * store.partition_rows + torch.arange(5)
            state.rows.write(ids, torch.full((5, 8), 7.0))
            (folder / "written").write_text(json.dumps(ids.tolist()))
        yield state


def buffer(folder: Path) -> Opened:
    yield from buffer_of(folder, torch.randn(NUM_NODES, 8))


def learnt_buffer(folder: Path) -> Opened:
    yield from buffer_of(folder, wb.outofcore.LearntInit(8))


def macrobatch(folder: Path) -> Opened:
    x = wb.MappedRows(rows_folder(folder))
    options = {"sampler": wb.NeighborSampler([3, 3]), "store": x, "batch_size": 20, "size": 4}
    yield from wb.prefetch(wb.macrobatch.batches(graph(), torch.arange(NUM_NODES), **options))


def window(folder: Path) -> Opened:
    x = wb.MappedRows(rows_folder(folder))
    for window in wb.windows(loader(), size=4):
        rows = wb.stage(x, window)
        for _, batch in window:
            yield rows.read(batch.node_ids)


def idle_ranks(folder: Path) -> Opened:
    pool = wb.distributed.RankPool(2)
    pool.run("tests.distributed.descendants:with_children", {})
    yield pool


def busy_ranks(folder: Path) -> Opened:
    """Ranks that never return, with children, called in a thread."""
    pool = wb.distributed.RankPool(1)
    call = "tests.distributed.descendants:hang", {"folder": str(folder)}
    threading.Thread(target=lambda: quietly(pool.run, *call), daemon=True).start()
    wait_for(lambda: (folder / "hangs").exists())
    yield pool


def idle_partitioner(folder: Path) -> Opened:
    run_program(MISBEHAVING, {}, {"act": "ids"}, num_results=2)
    yield


def busy_partitioner(folder: Path) -> Opened:
    options = {"act": "sleep_with_a_child"}
    threading.Thread(target=lambda: quietly(run_program, MISBEHAVING, {}, options, num_results=2), daemon=True).start()
    wait_for(lambda: len(psutil.Process().children(recursive=True)) >= 3)
    yield


def meter(folder: Path) -> Opened:
    with ExitStack() as stack:
        stack.enter_context(wb.limit_memory("1GiB"))
        stack.enter_context(wb.PeakMeter())
        for _, batch in loader():
            yield batch.node_ids + 1


def file_run(folder: Path) -> Opened:
    yield from run_in(f"{folder}/runs.jsonl")


def mlflow_run(folder: Path) -> Opened:
    yield from run_in(f"sqlite:///{folder}/mlflow.db")


def run_in(location: str) -> Opened:
    with wb.track("mine/open", {"width": 8}, store=wb.open_store(location)) as run:
        while True:
            run.log(loss=0.5)
            yield run


def nothing(folder: Path) -> Opened:
    yield


OPEN: dict[str, Callable[[Path], Opened]] = {
    "nothing": nothing,
    "batches": batches,
    "edge batches": edge_batches,
    "prefetch, full": prefetch_full,
    "prefetch, stuck": prefetch_stuck,
    "prefetch, busy": prefetch_busy,
    "DataLoader": data_loader,
    "CachedRows": cached_rows,
    "DiskRows in prefetch": disk_rows_in_a_thread,
    "DiskRows in a daemon": disk_rows_in_a_daemon,
    "MappedRows": mapped_rows,
    "buffer": buffer,
    "learnt buffer": learnt_buffer,
    "macrobatch": macrobatch,
    "window": window,
    "idle ranks": idle_ranks,
    "busy ranks": busy_ranks,
    "idle partitioner": idle_partitioner,
    "busy partitioner": busy_partitioner,
    "meter": meter,
    "run in a file": file_run,
    "run in MLflow": mlflow_run,
}


def quietly(call: Callable[..., object], *given: Any, **options: Any) -> None:
    try:
        call(*given, **options)
    except Exception:
        return


def wait_for(happened: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < end, "it did not open"
        time.sleep(0.02)


def begin(folder: Path) -> None:
    """The end begins."""
    (folder / "begun").write_text(str(time.time()))


def script_ends(opened: Opened, folder: Path) -> None:
    next(opened)
    begin(folder)


def breaks(opened: Opened, folder: Path) -> None:
    for _ in opened:
        begin(folder)
        break


def exits(opened: Opened, folder: Path) -> None:
    for _ in opened:
        begin(folder)
        sys.exit(3)


def raises(opened: Opened, folder: Path) -> None:
    for _ in opened:
        begin(folder)
        raise ArithmeticError("it does not add up")


def receives(number: int) -> Callable[[Opened, Path], None]:
    def run(opened: Opened, folder: Path) -> None:
        for _ in opened:
            begin(folder)
            os.kill(os.getpid(), number)
            time.sleep(PATIENCE_SECONDS)

    return run


def leaves(opened: Opened, folder: Path) -> None:
    for _ in opened:
        begin(folder)
        os._exit(4)


def exits_in_a_thread(opened: Opened, folder: Path) -> None:
    thread = threading.Thread(target=exits, args=(opened, folder))
    thread.start()
    thread.join()


def forks(opened: Opened, folder: Path) -> None:
    """A forked child ends while all is open; this process goes on, and then ends."""
    next(opened)
    pid = os.fork()
    if not pid:
        begin(folder)
        sys.exit(5)
    _, status = os.waitpid(pid, 0)
    took = time.time() - float((folder / "begun").read_text())
    (folder / "child").write_text(json.dumps([os.waitstatus_to_exitcode(status), took]))
    begin(folder)


ENDS: dict[str, Callable[[Opened, Path], None]] = {
    "end of script": script_ends,
    "break": breaks,
    "sys.exit": exits,
    "sys.exit, unreferenced": exits,
    "exception": raises,
    "SIGINT": receives(signal.SIGINT),
    "SIGTERM": receives(signal.SIGTERM),
    "os._exit": leaves,
    "sys.exit in a thread": exits_in_a_thread,
    "a forked child ends": forks,
}

KEPT: list[Opened] = []
"""Module variable that refers to what is open until the interpreter ends."""


def meet_end(what: str, how: str, folder: Path) -> None:
    """Open something, and end this process, or return if that is how it ends."""
    opened = OPEN[what](folder)
    if "unreferenced" not in how:
        KEPT.append(opened)
    ENDS[how](opened, folder)


def observed(pid: int, folder: Path) -> dict[str, Any]:
    """How the process of a cell ended, and what it left."""
    until, status = time.monotonic() + 2 * PATIENCE_SECONDS, None
    while status is None and time.monotonic() < until:
        ended, code = os.waitpid(pid, os.WNOHANG)
        status = os.waitstatus_to_exitcode(code) if ended else None
        time.sleep(0.005)
    now, begun = time.time(), folder / "begun"
    if status is None:
        os.kill(pid, signal.SIGABRT)  # shows where it hangs
        os.waitpid(pid, 0)
    until = time.monotonic() + LEFT_SECONDS
    while (left := remaining()) and time.monotonic() < until:
        time.sleep(0.02)
    keeper.end_children()
    seconds = now - float(begun.read_text()) if begun.exists() else None
    return {
        "status": status,
        "seconds": seconds,
        "left": left,
        "stderr": (folder / "stderr").read_text(errors="replace"),
        "child": json.loads((folder / "child").read_text()) if (folder / "child").exists() else None,
    }


def remaining() -> list[str]:
    """Commands of this process's descendants that have not ended."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline())[-200:])
            elif process.ppid() == os.getpid():
                os.waitpid(process.pid, os.WNOHANG)
        except (psutil.NoSuchProcess, ChildProcessError):
            continue
    return found


def forked_cells(orders: list[tuple[str, str, str]]) -> tuple[str, str, Path] | None:
    """Fork a process per cell; return the cell in that process, and None here, when all have ended."""
    for what, how, name in orders:
        folder = Path(name)
        pid = os.fork()
        if not pid:
            with (folder / "stderr").open("w") as errors:
                os.dup2(errors.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            faulthandler.enable(2)
            return what, how, folder
        sys.stdout.write(json.dumps(observed(pid, folder)) + "\n")
        sys.stdout.flush()
    return None


if __name__ == "__main__":
    torch.set_num_threads(1)
    set_num_threads(1)
    keeper.adopt_orphans()
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    gc.freeze()  # what is imported: the processes would copy its pages to collect them when they end
    if (cell := forked_cells(json.loads(sys.argv[1]))) is not None:
        meet_end(*cell)
