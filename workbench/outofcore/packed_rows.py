"""`pack_rows`: rows written once in the order of their use, so that each group's are one stretch of a file (DiskGNN).

Direct reads of single rows take a block of the disk, and an operation, for each. Rows that are packed are read in long
reads instead, but have to be written first: worth it where rows are much smaller than a block, or batches are trained
more than once.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from workbench import files
from workbench.core.array_store import open_arrays, other_than_saved, save_arrays
from workbench.core.errors import check_at_least, check_id_vector, check_type
from workbench.core.machine import Traffic
from workbench.features.disk_rows import DiskRows
from workbench.features.memory_rows import ROWS_KIND, MappedRows
from workbench.features.protocols import FeatureStore, WrappedStore
from workbench.outofcore.build_store import check_space
from workbench.outofcore.read_ahead import pool_rows, row_bytes_of, source_of, trace_of
from workbench.outofcore.row_plan import RowPlanner

_KIND = "order of packed rows"


def pack_rows(
    folder: str | os.PathLike[str],
    batches: Iterable[Any],
    store: FeatureStore | Tensor,
    *,
    memory: int | str,
    group: int = 1,
    overlap: bool = True,
    overwrite: bool = False,
) -> "PackedRows":
    """Write the rows that `read_ahead` will read, in the order in which it reads them.

        epoch = loader.epoch(0)
        with TemporaryDirectory(dir=fast_disk) as folder:
            rows = wb.outofcore.pack_rows(f"{folder}/packed", epoch, disk, memory="1 GiB")
            for step, mb, x in wb.outofcore.read_ahead(epoch, rows, memory="1 GiB"):
                …

    The batches are sampled, and only the ids that they read are kept. Rows are then read in pieces of the memory, each
    in the order of the file, and written in the order of use.

    Args:
        folder: folder to create; an interrupted call leaves nothing, or what was there.
        batches: as for `read_ahead`, which must see the same ones, all as one window: `loader.epoch(e)`, not `loader`.
        store: rows by raw-graph id.
        memory: memory for rows, here and in `read_ahead`.
        group: as for `read_ahead`.
        overlap: as for `read_ahead`.
        overwrite: replace a folder of packed rows.

    Raises:
        FileExistsError: `folder` exists and `overwrite` is not set, or it is not one of packed rows.
        CapacityError: less memory than the rows of two groups, or the disk has less space than the rows need.
        TypeError, ValueError: as for `read_ahead`.
        OSError: the folder can't be created, or the disk is full or reports an error.

    Source: Liu et al., "DiskGNN" (SIGMOD 2025): features of every mini-batch are packed one after the other.
    """
    store = source_of(store)
    check_at_least("group", group, 1)
    check_type("batches", batches, Iterable, "which is not iterable; pass workbench.batches(…).epoch(0), or a list")
    capacity, row_bytes = pool_rows(store, memory), row_bytes_of(store)
    planner = RowPlanner(len(store), capacity, overlap=overlap, row_bytes=row_bytes)
    folder = Path(folder).absolute()
    files.remove_unfinished(folder.parent)
    _check_free(folder, overwrite)
    with files.new_folder(folder, replace=overwrite) as draft:  # before sampling, which a read-only folder would waste
        plan = planner.plan(trace_of(batches, group))
        check_space(folder.parent, plan.num_rows * (row_bytes + plan.ids.itemsize))
        MappedRows.create(draft / "rows", _pieces(store, plan.ids, capacity))
        save_arrays(draft / "order", {"ids": plan.ids, "num_rows": torch.tensor([len(store)])}, kind=_KIND)
    return PackedRows(folder)


def _check_free(folder: Path, overwrite: bool) -> None:
    if not folder.exists():
        return
    if not overwrite:
        raise FileExistsError(f"{folder} exists; pass overwrite=True to replace it, or another folder")
    if other := other_than_saved(folder, {"rows": ROWS_KIND, "order": _KIND}.get):
        raise FileExistsError(
            f"{folder} has {other}, so it is not a folder of packed rows and is not replaced; pass another folder"
        )


def _pieces(store: FeatureStore, ids: Tensor, size: int) -> Iterator[Tensor]:
    """Yield rows in the same memory piece after piece: each is written before the next one is read."""
    room = torch.empty(min(size, len(ids)), *store.row_shape, dtype=store.dtype, device=store.device)
    for some in ids.split(size):
        yield store.read(some, out=room[: len(some)]).cpu()


class PackedRows(WrappedStore):
    """Rows that `pack_rows` wrote, read in their order of use alone: by `read_ahead` over the same batches.

    Args:
        folder: folder written by `pack_rows`.
        direct: as for `DiskRows`.
        threads: as for `DiskRows`.
        traffic: counts the rows that are read, as "disk".

    Raises:
        FileNotFoundError: if the folder or a file of it is missing.
        CorruptFileError: if a file does not match its header.
        ValueError: as for `DiskRows`.
    """

    _store: DiskRows

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        direct: bool | Literal["auto"] = "auto",
        threads: int = 16,
        traffic: Traffic | None = None,
    ) -> None:
        order = open_arrays(Path(folder) / "order", kind=_KIND)
        self._ids, self._length = order["ids"], int(order["num_rows"])
        self._store = DiskRows(Path(folder) / "rows", direct=direct, threads=threads, traffic=traffic)
        self._next = 0

    def __len__(self) -> int:
        """Exclusive upper bound of the ids: that of the store they come from."""
        return self._length

    @property
    def num_rows(self) -> int:
        """Number of rows in the file, each as often as it is read."""
        return len(self._ids)

    @property
    def num_reads(self) -> int:
        """Number of reads of the file."""
        return self._store.num_reads

    @property
    def read_bytes(self) -> int:
        """Bytes that were read from the file."""
        return self._store.read_bytes

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Read the next rows. Arguments and errors as for `DiskRows.read`.

        Raises:
            ValueError: other rows than the next ones.
        """
        places = self._places_of(ids)
        rows = self._store.read(places, out=out)
        self._next += len(places)
        return rows

    def read_to(self, ids: Tensor, rows: Tensor, places: Tensor) -> None:
        """Read the next rows to places of a larger tensor. Arguments and errors as for `DiskRows.read_to`.

        Raises:
            ValueError: other rows than the next ones.
        """
        own = self._places_of(ids)
        self._store.read_to(own, rows, places)
        self._next += len(own)

    def rewind(self) -> None:
        """Begin again with the first rows."""
        self._next = 0

    def _places_of(self, ids: Tensor) -> Tensor:
        check_id_vector("ids", ids)
        first, last = self._next, self._next + len(ids)
        if not torch.equal(ids.cpu(), self._ids[first:last]):
            raise ValueError(
                f"these are not rows {first:,} to {last:,} of those that were packed: either they were packed for "
                "other batches, or other memory, group or overlap, so pass the same to pack_rows and read_ahead, with "
                "window=None and the batches of one epoch; or another loop has read from them meanwhile, so open "
                "PackedRows for each, or call rewind()"
            )
        return torch.arange(first, last)

    def __repr__(self) -> str:
        return f"PackedRows({self.num_rows:,} reads of {len(self):,} rows, {self._store!r})"
