"""`BufferIO`: reads and writes of a partition buffer, counted as they happen."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from torch import Tensor

from workbench.core.traffic import Traffic
from workbench.features.io_threads import run_waiting
from workbench.outofcore.buffer_state import Buckets
from workbench.outofcore.edge_buckets import EdgeBuckets
from workbench.outofcore.epoch_io import EpochIO
from workbench.outofcore.partition_file import PartitionFile
from workbench.outofcore.partition_store import PartitionStore


class BufferIO:
    """Moves partitions and buckets between the files of a store and memory.

    Args:
        store: the store.
        direct: past the page cache; "auto": where the file system can.
        threads: partitions or runs of buckets that are read or written at the same time.
        verify: compare checksums of all that is read.
        traffic: counts what is read, as "disk": "rows" and "edges".
    """

    def __init__(
        self,
        store: PartitionStore,
        *,
        direct: bool | Literal["auto"],
        threads: int,
        verify: bool,
        traffic: Traffic | None,
    ) -> None:
        self.traffic, self._store, self._threads = traffic, store, threads
        self.folder = store.open_folder()
        self._file = PartitionFile(self.folder, store.layout, direct=direct, verify=verify)
        index = store.layout, store.bucket_edges, store.bucket_checksums
        self._edges = EdgeBuckets(self.folder, *index, direct=self._file.direct, verify=verify)
        self._moved, self._counting = EpochIO(), threading.Lock()

    @property
    def direct(self) -> bool:
        """Whether reads and writes bypass the page cache."""
        return self._file.direct

    @property
    def moved(self) -> EpochIO:
        """What has moved so far."""
        return self._moved

    def refresh(self) -> None:
        """Read anew where the partitions are: another buffer may have written since the last epoch."""
        self._counting = threading.Lock()  # a fork may have left it locked
        self._file.refresh()

    def read(self, records: Sequence[tuple[int, Tensor]], loaded: Tensor, held: Tensor) -> Buckets:
        """Read partitions, and the buckets that they add to a buffer.

        Args:
            records: partitions, and the memory that each is read into.
            loaded: int64, the partitions that are new in the buffer.
            held: int64, all partitions in the buffer, `loaded` included.

        Returns:
            Buckets by (partition of the sources, partition of the destinations).

        Raises:
            CorruptFileError: a partition or bucket is damaged; the message names it.
            OSError: the device reports an error.
        """
        buckets = Buckets()
        tasks: list[Callable[[], object]] = [partial(self._read_record, *record) for record in records]
        tasks += [partial(self._read_run, run, buckets) for run in self._edges.runs(loaded, held)]
        run_waiting(tasks, self._threads)
        return buckets

    def write(self, records: Sequence[tuple[int, Tensor]], written: Callable[[int], object]) -> None:
        """Write partitions; of several errors the first is raised, after all partitions were tried.

        Args:
            records: partitions and their memory.
            written: called with every partition that has been written.

        Raises:
            OSError: the device is full or reports an error.
        """
        errors: list[OSError] = []
        run_waiting([partial(self._write_record, *record, written, errors) for record in records], self._threads)
        if errors:
            raise errors[0]

    def _read_record(self, partition: int, memory: Tensor) -> None:
        self._file.read(partition, memory)
        self._count("rows", self._store.layout.nodes_of(partition), self._store.partition_bytes)
        self._add(EpochIO(loads=1, row_bytes=self._store.partition_bytes))

    def _read_run(self, run: tuple[int, int], buckets: Buckets) -> None:
        found = self._edges.read(run)
        nbytes = self._edges.run_bytes(run)
        self._count("edges", sum(len(bucket.src) for bucket in found.values()), nbytes)
        self._add(EpochIO(edge_bytes=nbytes))
        buckets.update(found)

    def _write_record(
        self, partition: int, memory: Tensor, written: Callable[[int], object], errors: list[OSError]
    ) -> None:
        try:
            self._file.write(partition, memory)
        except OSError as error:
            errors.append(error)
            return
        written(partition)
        self._add(EpochIO(written_bytes=self._store.partition_bytes))

    def _count(self, item: str, count: int, nbytes: int) -> None:
        if self.traffic is not None:
            self.traffic.add("disk", item, count, nbytes)

    def _add(self, more: EpochIO) -> None:
        with self._counting:
            self._moved = self._moved + more
