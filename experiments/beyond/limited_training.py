"""Training in a process of its own, from files of rows and a mapped graph, whose memory the system limits."""

import mmap
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch
from pydantic import Field, PositiveInt
from torch.nn.functional import cross_entropy

import workbench as wb
from experiments.beyond.memory_group import MemoryGroup
from experiments.beyond.reading_systems import drop_from_cache
from workbench.core.array_store import open_arrays
from workbench.core.dataset import Dataset
from workbench.core.graph import Graph
from workbench.core.randomness import permutation
from workbench.experiment.config import ModelConfig
from workbench.features.memory_rows import open_rows
from workbench.meter.limit import AnonymousPeak, status_bytes

UNLIMITED, MEMORY = "in memory, no limit", "in memory"
MAPPED, AHEAD, PACKED = "mapped", "read ahead", "packed"
GRAPH = "graph alone"
"""Batches that nobody trains on."""


class LimitedConfig(ModelConfig):
    """How all systems train.

    Args:
        limit_mib: memory that the system allows the process, pages of files included, in MiB; None: not limited.
        rows_mib: memory for rows that are read ahead, in MiB.
        batch_size: training nodes per step.
        steps: batches per epoch; None: as many as there are.
        learning_rate: of Adam.
        epochs: number of epochs, of which neither the first is timed, which reads and loads all for the first time, nor
            the last, during which no epoch is sampled ahead.
        threads: reads at the same time.
    """

    limit_mib: PositiveInt | None
    rows_mib: PositiveInt
    batch_size: PositiveInt
    steps: PositiveInt | None = None
    learning_rate: float
    epochs: int = Field(ge=3)
    threads: PositiveInt = 8


def save(config: LimitedConfig, data: Dataset, folder: Path) -> int:
    """Write graph, rows, labels and the training nodes of `steps` batches; return the bytes of graph and rows."""
    graph = Graph(data.graph.indptr, data.graph.indices)
    graph.save(folder / "graph")
    wb.MappedRows.create(folder / "rows", data.x)
    count = len(data.train_idx) if config.steps is None else config.steps * config.batch_size
    train_idx = data.train_idx[permutation(config.seed, len(data.train_idx))[:count]]
    torch.save({"y": data.y, "train_idx": train_idx, "num_classes": data.num_classes}, folder / "labels.pt")
    return graph.nbytes + data.x.nbytes


def opened(folder: Path) -> Dataset:
    """Map what `save` wrote; labels and training nodes are loaded."""
    saved: dict[str, Any] = torch.load(folder / "labels.pt")
    none = saved["train_idx"][:0]
    graph = Graph(**open_arrays(folder / "graph", kind="graph"))
    return Dataset(graph, open_rows(folder / "rows"), val_idx=none, test_idx=none, name="", fingerprint="", **saved)


def trained(config: LimitedConfig, folder: Path, system: str) -> dict[str, Any]:
    """Train with a system in a process of its own, when nothing of its files is in memory.

    Returns:
        What `epochs` returns, `finished` and the peak of all memory; if the system has killed it, `finished` alone.
    """
    for path in (path for name in ("graph", "rows") for path in (folder / name).iterdir()):
        drop_from_cache(path)
    limit = None if system == UNLIMITED or config.limit_mib is None else MemoryGroup(config.limit_mib << 20)
    with limit or nullcontext():
        with ProcessPoolExecutor(1, get_context("spawn"), limit.join if limit else None) as pool:
            try:
                row = pool.submit(epochs, config, folder, system).result()
            except BrokenProcessPool:
                return {"finished": 0}
        return {"finished": 1, **row, "group_bytes": limit.peak_bytes if limit else None}


def epochs(config: LimitedConfig, folder: Path, system: str) -> dict[str, Any]:
    """Train all epochs in this process; return all losses, and what an epoch takes; all share what opening reads."""
    before, data = bytes_from_disk(), opened(folder)
    if system in (UNLIMITED, MEMORY):
        data = replace(data, graph=Graph(data.graph.indptr.clone(), data.graph.indices.clone()), x=data.x.clone())
    else:
        wb.outofcore.read_by_page(data.graph, *([data.x] if system == MAPPED else []))
    model = config.build(data)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    disk = wb.DiskRows(folder / "rows", threads=config.threads)
    losses: list[float] = []
    seconds: list[float] = []
    allocated, start = status_bytes("RssAnon") or 0, time.perf_counter()
    with AnonymousPeak() as peak:
        for last, mb, rows in items(config, data, system, disk, folder):
            if rows is not None:
                loss = wb.train_step(model, mb, rows, data.y, cross_entropy, optimizer, forward=_forward(model))
                losses.append(float(loss))
            if last:
                seconds.append(time.perf_counter() - start)
                start = time.perf_counter()
    return {
        "losses": losses,
        "epoch_seconds": median(seconds[1:-1]),
        "read_bytes": (bytes_from_disk() - before) / config.epochs,
        "row_bytes": disk.read_bytes / config.epochs if system == AHEAD else None,
        "anonymous_bytes": allocated + (peak.nbytes or 0),
    }


def _forward(model: Any) -> Any:
    """A call of the model with rows that may be stored in half precision."""
    return lambda mb, inputs: model(mb.blocks, inputs.x.float())


def loader_of(config: LimitedConfig, data: Dataset, *, edge_ids: bool = False) -> Any:
    """The batches that all systems train on."""
    sampler = wb.NeighborSampler(config.fanouts, seed=config.seed, edge_ids=edge_ids)
    return wb.batches(data.graph, data.train_idx, sampler=sampler, batch_size=config.batch_size, seed=config.seed)


def items(
    config: LimitedConfig, data: Dataset, system: str, disk: wb.DiskRows, folder: Path
) -> Iterator[tuple[bool, wb.MiniBatch, Any]]:
    """Yield the batches of all epochs: whether it is the last of its epoch, the batch, and its rows or None."""
    loader, memory = loader_of(config, data), config.rows_mib << 20
    every = [loader.epoch(epoch) for epoch in range(config.epochs)]
    window = len(loader)
    if system == AHEAD:
        ahead = wb.outofcore.read_ahead(chain.from_iterable(every), disk, memory=memory, window=window)
        yield from (((step + 1) % window == 0, mb, rows) for step, mb, rows in ahead)
        return
    for epoch, batches in enumerate(every):
        if system == PACKED:
            rows = wb.outofcore.pack_rows(folder / "packed", batches, disk, memory=memory, overwrite=epoch > 0)
            found: Any = wb.outofcore.read_ahead(batches, rows, memory=memory)
        else:
            found = ((step, mb, None if system == GRAPH else data.x) for step, mb in batches)
        yield from (((step + 1) % window == 0, mb, rows) for step, mb, rows in found)


def touched_bytes(config: LimitedConfig, folder: Path) -> float:
    """Bytes per epoch of the graph's pages that have an offset or a drawn edge in some epoch, each counted once."""
    data = opened(folder)
    offsets, edges = (
        torch.zeros(-(-t.nbytes // mmap.PAGESIZE), dtype=torch.bool) for t in (data.graph.indptr, data.graph.indices)
    )
    loader = loader_of(config, data, edge_ids=True)
    for _, mb in chain.from_iterable(loader.epoch(epoch) for epoch in range(config.epochs)):
        nodes = mb.node_ids[: mb.blocks[0].num_dst]
        for ends in (nodes, nodes + 1):
            offsets[ends * data.graph.indptr.itemsize // mmap.PAGESIZE] = True
        for block in mb.blocks:
            assert block.edge_ids is not None
            edges[block.edge_ids * data.graph.indices.itemsize // mmap.PAGESIZE] = True
    return int(offsets.sum() + edges.sum()) * mmap.PAGESIZE / config.epochs


def bytes_from_disk() -> int:
    """Bytes that this process has caused to be read from storage, by the system's count."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["read_bytes"])
