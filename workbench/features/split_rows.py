"""`split_rows`: feature rows divided by owner, a folder for each part, as `split_graph` divides the edges."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workbench.core.errors import check_at_least, check_vector, find_out_of_range
from workbench.features.memory_rows import MappedRows, as_store
from workbench.features.protocols import FeatureStore

_CHUNK_BYTES = 64 << 20


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
        overwrite: replace folders written by this function.

    Returns:
        The folder of every part.

    Raises:
        ValueError: `x` has another number of rows than there are owners, or `num_parts` is below 1.
        IndexError: an owner that is not the number of a part.
        FileExistsError: a folder exists and `overwrite` is not set.
        OSError: the disk is full.

    Source: Hoang et al., "BatchGNN" (2023), section 3: a partition's features are loaded with its nodes.
    """
    if num_parts is not None:
        check_at_least("num_parts", num_parts, 1)
    check_vector("owner", owner, None, (torch.int8, torch.int16, torch.int32, torch.int64))
    store, owner = as_store(x), owner.cpu()
    if len(store) != len(owner):
        raise ValueError(f"x has {len(store)} rows and owner {len(owner)}; pass the rows and the owner of every node")
    if (bad := find_out_of_range(owner, 0, 1 << 31 if num_parts is None else num_parts)) is not None:
        below = "" if num_parts is None else f" and below num_parts, {num_parts}"
        raise IndexError(f"owner contains {bad}; owners are numbered from 0 on{below}")
    parts = range(num_parts or (int(owner.max()) + 1 if len(owner) else 0))
    folders = [Path(folder) / f"part-{part}" for part in parts]
    for part, target in zip(parts, folders, strict=True):
        MappedRows.create(target, _chunks(store, (owner == part).nonzero()[:, 0]), overwrite=overwrite)
    return folders


def _chunks(store: FeatureStore, ids: Tensor) -> Iterator[Tensor]:
    row_bytes = store.dtype.itemsize * max(1, torch.Size(store.row_shape).numel())
    return (store.read(chunk).cpu() for chunk in ids.split(max(1, _CHUNK_BYTES // row_bytes)))
