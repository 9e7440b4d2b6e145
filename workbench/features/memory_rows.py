"""`MemoryRows`, `MappedRows`: rows in the memory of host or device, or mapped from a file; rows split by owner."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench import files
from workbench.core.array_store import open_arrays, save_arrays, why_not_saved
from workbench.core.errors import (
    CorruptFileError,
    check_at_least,
    check_id_vector,
    check_ids,
    check_type,
    check_vector,
    find_out_of_range,
)
from workbench.core.machine import Traffic
from workbench.core.units import format_bytes
from workbench.features.protocols import FeatureStore, check_rows, check_store
from workbench.kernels.buffers import uninitialised
from workbench.kernels.gather import gather_array, gather_rows


class TensorRows:
    """Rows of a tensor that are read only.

    Args:
        rows: [n, …], on any device; shared, not copied.
        link: where the rows come from, a name of `workbench.core.machine.LINKS`; None: this process's memory ("host")
            or its device ("device").
        traffic: counts the rows that are read.
    """

    def __init__(self, rows: Tensor, *, link: str | None = None, traffic: Traffic | None = None) -> None:
        check_type("rows", rows, Tensor, "pass torch.as_tensor(rows)")
        if not rows.dim():
            raise ValueError("rows is a single number; pass one row per id")
        if rows.layout != torch.strided:
            raise ValueError(f"rows is sparse ({rows.layout}); pass rows.to_dense()")
        self._rows, self._traffic = rows, traffic
        self._link = link or ("host" if rows.device.type == "cpu" else "device")
        self._count(0)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return tuple(self._rows.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        return self._rows.dtype

    @property
    def device(self) -> torch.device:
        return self._rows.device

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Read rows; differentiable without `out` if the tensor requires a gradient.

        Args:
            ids: int64 or int32 [n], not necessarily unique, on any device.
            out: [n, *row_shape] to write to and return, in the dtype and on the device of the store; None allocates it.

        Returns:
            [n, *row_shape], one row per id.
        """
        check_id_vector("ids", ids)
        count = ids.numel()
        if out is not None:
            check_rows("out", out, self, count, on_device=True)
        else:
            out = self._allocate(count)
        rows = gather_rows(self._rows, ids, out=out)
        self._count(count)
        return rows

    def _allocate(self, count: int) -> Tensor | None:
        """Return a buffer for that many rows, or None for ordinary memory."""
        return None

    def _count(self, rows: int) -> None:
        if self._traffic is not None:
            self._traffic.add(self._link, "rows", rows, rows * self._rows[:1].nbytes)

    def __repr__(self) -> str:
        kind = f"{len(self):,} × {list(self.row_shape)} {str(self.dtype).removeprefix('torch.')}"
        return f"{type(self).__name__}({kind}, {format_bytes(self._rows.nbytes)} on {self.device})"


class MemoryRows(TensorRows):
    """Rows of a tensor in memory; `write` changes the tensor.

    Args:
        tensor: [n, …], on any device; shared, not copied.
        pin: allocate the rows that `read` returns in page-locked memory, from which copies to a GPU are faster and
            asynchronous. Requires CUDA, and a tensor on the CPU without a gradient.
        traffic: counts the rows that are read or written, as "host" or, on a device, as "device".

    Raises:
        ValueError: a tensor without dimensions, or `pin` where it is not possible.
    """

    def __init__(self, tensor: Tensor, *, pin: bool = False, traffic: Traffic | None = None) -> None:
        super().__init__(tensor, traffic=traffic)
        self._pin = pin
        if pin and (self.device.type != "cpu" or tensor.requires_grad or not torch.cuda.is_available()):
            raise ValueError("pin=True requires CUDA and a tensor on the CPU without a gradient; pass pin=False")

    def _allocate(self, count: int) -> Tensor | None:
        return torch.empty(count, *self.row_shape, dtype=self.dtype, pin_memory=True) if self._pin else None

    def write(self, ids: Tensor, rows: Tensor) -> None:
        """Replace rows.

        Args:
            ids: int64 or int32 [n], each id once, on any device.
            rows: [n, *row_shape] in the dtype of the store, on any device.

        Raises:
            IndexError: an id out of range.
            TypeError: ids that are no integers, or rows of another dtype.
            ValueError: an id that occurs twice, or rows of another shape.
        """
        ids = check_ids("ids", ids, len(self), unique=True)
        check_rows("rows", rows, self, len(ids))
        self._rows.detach().index_copy_(0, ids.to(self.device), rows.detach().to(self.device))
        self._count(len(ids))


class ArrayRows:
    """Rows of a NumPy array that are read only.

    Args:
        array: [n, …], of any layout; shared, not copied.

    Raises:
        TypeError: an array of a dtype that torch does not have.
        ValueError: an array without dimensions, or of another byte order.
    """

    device = torch.device("cpu")

    def __init__(self, array: np.ndarray) -> None:
        if not array.ndim:
            raise ValueError("array is a single number; pass one row per id")
        self._array, self._no_rows = array, torch.from_numpy(np.empty(0, array.dtype))

    @property
    def dtype(self) -> torch.dtype:
        return self._no_rows.dtype

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self._array.shape[1:]

    def __len__(self) -> int:
        return len(self._array)

    def read(self, ids: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Read rows. Arguments and errors as for `TensorRows.read`."""
        check_id_vector("ids", ids)
        if out is None:
            out = uninitialised(self._no_rows, len(ids), *self.row_shape)
        else:
            check_rows("out", out, self, len(ids), on_device=True)
        return gather_array(self._array, ids, out)


ROWS_KIND = "rows"
"""Kind of the folders of rows."""


def open_rows(folder: str | os.PathLike[str], *, verify: bool = False) -> Tensor:
    """Memory-map the rows of a folder that `MappedRows.create` wrote. Arguments and errors as for `MappedRows`."""
    arrays = open_arrays(folder, kind=ROWS_KIND, verify=verify)
    if list(arrays) != ["rows"] or not arrays["rows"].dim():
        raise CorruptFileError(f"{folder} does not contain an array of rows; write it with MappedRows.create")
    return arrays["rows"]


class MappedRows(TensorRows):
    """Rows of a memory-mapped array: pages are read from disk when they are first needed, and cached by the system.

    Args:
        folder: folder written by `MappedRows.create`.
        verify: read the whole file and compare its checksum; otherwise only header and size are checked.
        traffic: counts the rows that are read, as "disk", whether or not the system has cached their pages.

    Raises:
        FileNotFoundError: if the folder or its file is missing.
        CorruptFileError: if the file does not match its header.
    """

    def __init__(self, folder: str | os.PathLike[str], *, verify: bool = False, traffic: Traffic | None = None) -> None:
        super().__init__(open_rows(folder, verify=verify), link="disk", traffic=traffic)

    @classmethod
    def create(
        cls, folder: str | os.PathLike[str], rows: Tensor | Iterable[Tensor], *, overwrite: bool = False
    ) -> "MappedRows":
        """Write rows to a folder atomically and open it: an interrupted call leaves nothing, or what was there.

        Args:
            folder: folder to create, with its missing parents.
            rows: [n, …], or an iterable of tensors of consecutive rows, of which at most two are in memory at a time.
            overwrite: replace an existing folder of rows.

        Raises:
            FileExistsError: if `folder` exists and `overwrite` is not set, or if it is not a folder of arrays.
            TypeError: if `rows` is not made of tensors, or of a dtype that can't be stored.
            ValueError: if the tensors have no dimensions, or differ in dtype or shape of a row.
        """
        if isinstance(rows, Tensor):
            _check_row_per_id(rows)
        pieces = rows if isinstance(rows, Tensor) else map(_check_row_per_id, rows)
        save_arrays(folder, {"rows": pieces}, kind=ROWS_KIND, overwrite=overwrite)
        return cls(folder)


def _check_row_per_id(rows: Tensor) -> Tensor:
    """Return rows; what is no tensor is refused where it is written."""
    if isinstance(rows, Tensor) and not rows.dim():
        raise ValueError("rows is a single number; pass one row per id")
    return rows


def as_store(source: Any, name: str = "x") -> FeatureStore:
    """Wrap a tensor or an array in a store; stores are returned unchanged.

    Args:
        source: a tensor [num_nodes, …], a NumPy array (a memory-mapped one too), or an object with `.read(ids)`.
    """
    if not isinstance(source, type) and hasattr(source, "read"):
        return source
    remedy = "a tensor with a row per node of the graph (torch.as_tensor), an array, or an object with .read(ids)"
    check_type(name, source, Tensor | np.ndarray, f"pass {remedy}")
    rows: Any = source
    if not rows.ndim:
        raise ValueError(f"{name} is a single number; pass a row per node of the graph")
    if isinstance(rows, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, whose mask would be ignored; pass {name}.filled(value)")
    return MemoryRows(rows) if isinstance(rows, Tensor) else ArrayRows(rows)


def read_rows(source: Any, ids: Tensor) -> Tensor:
    """Gather rows by id, on the device of the source: [n, …].

    Args:
        source: anything that `as_store` accepts.
        ids: int64 or int32 [n], raw-graph ids, on any device.
    """
    return as_store(source).read(ids)


def check_covers(name: str, source: Any, ids: Tensor) -> None:
    """Check that a source has a row for every id, if its length is known.

    Args:
        source: anything that `as_store` accepts.
        ids: int64 [n], raw-graph ids.
    """
    store = as_store(source, name)
    if not ids.numel() or not hasattr(store, "__len__"):
        return
    highest = int(ids.max())
    if highest >= len(store):
        raise IndexError(
            f"{name} has {len(store)} rows, but the batch reads row {highest}; pass {name} by raw-graph id"
        )


_CHUNK_BYTES = 64 << 20

_PART = r"part-(0|[1-9][0-9]*)"
"""Names of the folders of `split_rows`."""


def split_rows(
    x: Any, owner: Tensor, folder: str | os.PathLike[str], *, num_parts: int | None = None, overwrite: bool = False
) -> list[Path]:
    """Write the rows of every part's nodes to a folder of its own, in ascending order of their ids.

    A rank opens its own with `workbench.MappedRows` or `workbench.DiskRows`, and passes it to
    `workbench.distributed.OwnedRows`:

        rows = wb.distributed.OwnedRows(wb.MappedRows(folders[rank]), owner)

    Args:
        x: rows of all nodes by raw-graph id: a tensor, an array or a store; read in chunks of 64 MiB.
        owner: integer [num_nodes], part of every node.
        folder: where the folders are created: `part-0`, `part-1`, ….
        num_parts: number of parts, some of which may own no node; None: the largest owner + 1.
        overwrite: replace the folders of an earlier split, and delete those of parts that there are no longer.

    Returns:
        The folder of every part.

    Raises:
        ValueError: `x` has another number of rows than there are owners, or `num_parts` is below 1.
        IndexError: an owner that is not the number of a part.
        TypeError: `x` is no store of rows, or `owner` no integers.
        FileExistsError: a folder with the name of any part exists and `overwrite` is not set, or it is not one of rows;
            nothing is written then.
        OSError: the disk is full.

    Source: Hoang et al., "BatchGNN" (2023), section 3: a partition's features are loaded with its nodes.
    """
    if num_parts is not None:
        check_at_least("num_parts", num_parts, 1)
    check_vector("owner", owner, None, (torch.int64, torch.int32, torch.int16, torch.int8))
    store, owner = as_store(x), owner.cpu().long()  # a narrow dtype can't be compared with every part
    check_store("x", store)
    if len(store) != len(owner):
        raise ValueError(f"x has {len(store)} rows and owner {len(owner)}; pass the rows and the owner of every node")
    if (bad := find_out_of_range(owner, 0, 1 << 31 if num_parts is None else num_parts)) is not None:
        below = "" if num_parts is None else f" and below num_parts, {num_parts}"
        raise IndexError(f"owner contains {bad}; owners are numbered from 0 on{below}")
    parts = range(num_parts or (int(owner.max()) + 1 if len(owner) else 0))
    folders = [Path(folder) / f"part-{part}" for part in parts]
    outdated = _outdated_parts(Path(folder), len(parts), overwrite)
    for part, target in zip(parts, folders, strict=True):
        MappedRows.create(target, _chunks(store, (owner == part).nonzero()[:, 0]), overwrite=overwrite)
    for path in outdated:
        files.remove(path, inside=path.parent, named=_PART)
    return folders


def _outdated_parts(folder: Path, num_parts: int, overwrite: bool) -> list[Path]:
    """Check that all folders of parts may be replaced, and return those of parts that there are no longer."""
    parts = [path for path in folder.glob("part-*") if re.fullmatch(_PART, path.name)]
    parts = [path for path in parts if not path.is_dir() or any(path.iterdir())]
    for path in parts:
        if not overwrite:
            raise FileExistsError(f"{path} exists; pass overwrite=True to replace an earlier split, or another folder")
        if problem := why_not_saved(path, ROWS_KIND):
            raise FileExistsError(
                f"{path} {problem}, so it is not of rows alone and is not replaced; pass another folder"
            )
    return [path for path in parts if int(path.name.removeprefix("part-")) >= num_parts]


def _chunks(store: FeatureStore, ids: Tensor) -> Iterator[Tensor]:
    row_bytes = store.dtype.itemsize * max(1, torch.Size(store.row_shape).numel())
    return (store.read(chunk).cpu() for chunk in ids.split(max(1, _CHUNK_BYTES // row_bytes)))
