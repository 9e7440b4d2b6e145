"""Ways of reading features from disk while a model trains on the samples of training in memory."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import PositiveInt
from torch import Tensor

import workbench as wb
from experiments.mariusgnn.training_systems import InMemory, OnDisk, SystemConfig, WithDgl
from workbench.core.dataset import Dataset
from workbench.core.trace import AccessTrace
from workbench.outofcore.row_plan import RowPlanner

MEMORY, BUFFER, LRU, BELADY, PACKED, MAPPED = "in memory", "buffer", "LRU", "Belady", "packed", "DGL, np.memmap"


class ReadingConfig(SystemConfig):
    """How all systems train; rows in memory are `capacity` of `num_partitions` parts of all rows.

    Args:
        gap_bytes: bytes between two rows up to which one read covers both.
        group: batches whose rows are read together.
        threads: reads at the same time.
    """

    gap_bytes: int | None
    group: PositiveInt | None = 1
    threads: PositiveInt = 8


class Reads:
    """What the epochs of a system read and write.

    Args:
        read_bytes: bytes read, as the store counts them.
        num_reads: number of reads.
        written_bytes: bytes written.
        rows: rows read.
    """

    def __init__(self, read_bytes: int = 0, num_reads: int = 0, written_bytes: int = 0, rows: int = 0) -> None:
        self.read_bytes, self.num_reads, self.written_bytes, self.rows = read_bytes, num_reads, written_bytes, rows


def rows_in_memory(config: SystemConfig, data: Dataset) -> int:
    """Rows that there is memory for."""
    return len(data.x) * config.capacity // config.num_partitions


class FromFile(InMemory, ABC):
    """Features in a file that is read directly; edges in memory.

    Args:
        config: of the point.
        data: the data set.
        folder: where `MappedRows.create` wrote the features.
    """

    def _prepare(self, folder: Path) -> None:
        super()._prepare(folder)
        config = self._config
        assert isinstance(config, ReadingConfig) and config.gap_bytes is not None and config.group is not None
        self._folder, self._row_bytes = folder, self._data.x[:1].nbytes
        self._x = None  # what is read comes from the file
        self.links = wb.Traffic()
        self._disk = wb.DiskRows(folder, threads=config.threads, gap_bytes=config.gap_bytes, traffic=self.links)
        self._capacity, self._group = rows_in_memory(config, self._data), config.group
        self.peak_rows, self.predicted = self._capacity, Reads()
        self._written = 0

    @property
    def reads(self) -> Reads:
        """What was read so far."""
        rows = self.links.snapshot().count("disk")
        return Reads(self._disk.read_bytes, self._disk.num_reads, self._written, rows)

    @abstractmethod
    def _items(self, epoch: int) -> Iterator[tuple[wb.MiniBatch, Any]]:
        """Yield the batches of an epoch with their rows."""

    def epoch(self, epoch: int) -> Iterator[Tensor]:
        for mb, rows in self._items(epoch):
            yield self._step(mb, rows, self._data.y)

    def _predict(self, planner: RowPlanner, epoch: int) -> Any:
        """Plan an epoch on its own, and count what its rows take from the file."""
        plan = planner.plan(AccessTrace.of(mb.node_ids for _, mb in self._loader.epoch(epoch)))
        for ids, _ in plan.reads():
            nbytes, count = self._disk.cost_of(ids)
            self.predicted.read_bytes += nbytes
            self.predicted.num_reads += count
        self.predicted.rows += plan.num_rows
        return plan


class WithLru(FromFile):
    """An LRU cache, which replaces rows once per batch."""

    def _prepare(self, folder: Path) -> None:
        super()._prepare(folder)
        self._cache = wb.CachedRows(self._disk, self._capacity, policy="lru")

    def _items(self, epoch: int) -> Iterator[tuple[wb.MiniBatch, Any]]:
        return ((mb, self._cache) for _, mb in self._loader.epoch(epoch))


class WithBelady(FromFile):
    """Read ahead by Belady's rule: one loop over all epochs, of which one is sampled ahead."""

    def _prepare(self, folder: Path) -> None:
        super()._prepare(folder)
        epochs = chain.from_iterable(self._loader.epoch(epoch) for epoch in range(self._config.epochs))
        self._ahead = wb.outofcore.read_ahead(
            epochs,
            self._disk,
            memory=self._capacity * self._row_bytes,
            window=len(self._loader),
            group=self._group,
        )
        self._loop = iter(self._ahead)
        self._planner = RowPlanner(len(self._disk), self._capacity)

    def _items(self, epoch: int) -> Iterator[tuple[wb.MiniBatch, Any]]:
        for _, mb, rows in islice(self._loop, len(self._loader)):
            yield mb, rows
        self.peak_rows = self._ahead.peak_rows

    def finish(self) -> None:
        """End the loop, and predict what all of it has read."""
        self._ahead.close()
        for epoch in range(self._config.epochs):
            self._predict(self._planner, epoch)


class WithPacked(FromFile):
    """Rows packed before every epoch, which then reads them in long reads."""

    def _prepare(self, folder: Path) -> None:
        super()._prepare(folder)
        self._packed_reads = Reads()

    @property
    def reads(self) -> Reads:
        source, packed = super().reads, self._packed_reads
        return Reads(
            source.read_bytes + packed.read_bytes, source.num_reads + packed.num_reads, self._written, packed.rows
        )

    def _items(self, epoch: int) -> Iterator[tuple[wb.MiniBatch, Any]]:
        batches, memory = self._loader.epoch(epoch), self._capacity * self._row_bytes
        folder = self._folder.parent / "packed"
        rows = wb.outofcore.pack_rows(folder, batches, self._disk, memory=memory, overwrite=epoch > 0)
        ahead = wb.outofcore.read_ahead(batches, rows, memory=memory)
        for _, mb, found in ahead:
            yield mb, found
        self.peak_rows = ahead.peak_rows
        self._written += rows.num_rows * self._row_bytes
        self._packed_reads.read_bytes += rows.read_bytes
        self._packed_reads.num_reads += rows.num_reads
        self._packed_reads.rows += rows.num_rows

    @property
    def packed_ratio(self) -> float:
        """Bytes read of packed rows, page overhead included, over bytes of the rows."""
        return self._packed_reads.read_bytes / (self._packed_reads.rows * self._row_bytes)


class MappedFeatures:
    """Rows of a memory-mapped array, gathered by NumPy."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __getitem__(self, ids: Tensor) -> Tensor:
        return torch.from_numpy(self._array[ids.numpy()])


class WithMemmap(WithDgl):
    """DGL's sampler and layers, and features in np.memmap, which the system caches in all memory that is free."""

    def _prepare(self, folder: Path) -> None:
        super()._prepare(folder)
        file, dtype = folder / "rows.bin", self._data.x.numpy().dtype
        self._x = MappedFeatures(np.memmap(file, dtype, mode="r", shape=tuple(self._data.x.shape)))
        drop_from_cache(file)


class WithBuffer(OnDisk):
    """MariusGNN's buffer: samples come from the partitions in it."""

    def _prepare(self, folder: Path) -> None:
        super()._prepare(folder.parent / "store")
        self.predicted = Reads()
        self.peak_rows = self._config.capacity * self._store.partition_rows

    @property
    def reads(self) -> Reads:
        disk = self._links.snapshot()
        loads = disk.count("disk") // self._store.partition_rows
        return Reads(disk.nbytes("disk"), loads, 0, disk.count("disk"))

    def epoch(self, epoch: int) -> Iterator[Tensor]:
        yield from super().epoch(epoch)
        self.predicted.read_bytes += self._io["predicted_read_bytes"]


def drop_from_cache(file: Path) -> None:
    """Drop a file's pages from the page cache."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


SYSTEMS: Mapping[str, type[InMemory]] = {
    MEMORY: InMemory,
    BUFFER: WithBuffer,
    LRU: WithLru,
    BELADY: WithBelady,
    PACKED: WithPacked,
    MAPPED: WithMemmap,
}
