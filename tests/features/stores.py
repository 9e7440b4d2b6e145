"""All feature stores, for the contract suite: a new store joins with one line of `STORES`."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from workbench.distributed.owned import OwnedRows
from workbench.features.cached_rows import CachedRows, RecordedRows
from workbench.features.disk_rows import DiskRows
from workbench.features.memory_rows import MappedRows, MemoryRows, as_store
from workbench.features.protocols import FeatureStore
from workbench.features.stage import stage_ids
from workbench.outofcore.read_ahead import PoolRows
from workbench.placement.placed_rows import PlacedRows
from workbench.placement.placement import Placement, place_rows

MakeStore = Callable[[Tensor, Path], FeatureStore]


def every_id(rows: Tensor) -> Tensor:
    return torch.arange(len(rows))


def owned_by_0(rows: Tensor) -> Tensor:
    return torch.zeros(len(rows), dtype=torch.int32)


def on_disk(rows: Tensor, folder: Path, direct: bool | Literal["auto"]) -> DiskRows:
    MappedRows.create(folder / "rows", rows)
    return DiskRows(folder / "rows", direct=direct, threads=3)


def on_three_devices(rows: Tensor) -> Placement:
    """Rows of the device's own, of two peers, and of the host."""
    return place_rows(
        torch.ones(len(rows)), num_devices=3, rows_per_device=min(2, len(rows)), peer_cost=0.5, method="naive"
    )


STORES: dict[str, MakeStore] = {
    "memory": lambda rows, folder: MemoryRows(rows.clone()),
    "array": lambda rows, folder: as_store(rows.clone().numpy()),
    "mapped": lambda rows, folder: MappedRows.create(folder / "rows", rows),
    "mapped, in pieces": lambda rows, folder: MappedRows.create(folder / "pieces", rows.split(2)),
    "disk": lambda rows, folder: on_disk(rows, folder, "auto"),
    "disk, buffered": lambda rows, folder: on_disk(rows, folder, False),
    "pool": lambda rows, folder: PoolRows(every_id(rows), every_id(rows).int(), rows.clone(), len(rows), None),
    "recorded": lambda rows, folder: RecordedRows(rows.clone()),
    "staged": lambda rows, folder: stage_ids(MemoryRows(rows), every_id(rows)),
    "recorded, staged": lambda rows, folder: RecordedRows(rows).stage(every_id(rows)),
    "cached by LRU": lambda rows, folder: CachedRows(rows.clone(), 3),
    "cached by FIFO": lambda rows, folder: CachedRows(rows.clone(), 2, policy="fifo"),
    "cached by CLOCK": lambda rows, folder: CachedRows(rows.clone(), 3, policy="clock"),
    "cached by SIEVE": lambda rows, folder: CachedRows(MappedRows.create(folder / "rows", rows), 3, policy="sieve"),
    "cached by S3-FIFO": lambda rows, folder: CachedRows(rows.clone(), 5, policy="s3-fifo"),
    "cached, static": lambda rows, folder: CachedRows(rows.clone(), 3, policy="static", rows=every_id(rows)),
    "owned": lambda rows, folder: OwnedRows(rows.clone(), owned_by_0(rows)),
    "owned, staged": lambda rows, folder: OwnedRows(rows.clone(), owned_by_0(rows)).stage(every_id(rows)),
    "owned, cached": lambda rows, folder: CachedRows(OwnedRows(rows.clone(), owned_by_0(rows)), 3),
    "placed": lambda rows, folder: PlacedRows.of_all(on_three_devices(rows), host=rows.clone())[1],
    "placed, disk": lambda rows, folder: PlacedRows(on_three_devices(rows), 1, host=on_disk(rows, folder, False)),
    "placed, cached host": lambda rows, folder: PlacedRows(on_three_devices(rows), 1, host=CachedRows(rows.clone(), 2)),
    "placed, cached": lambda rows, folder: CachedRows(PlacedRows(on_three_devices(rows), 1, host=rows.clone()), 3),
    "placed, staged": lambda rows, folder: PlacedRows.of_all(on_three_devices(rows), host=rows)[1].stage(
        every_id(rows)
    ),
    "cached, staged": lambda rows, folder: CachedRows(RecordedRows(rows), 3).stage(every_id(rows)),
}
"""Makes a store of the rows; the folder is empty."""

WRITABLE: dict[str, MakeStore] = {name: STORES[name] for name in ("memory", "cached by LRU", "cached, static")}
