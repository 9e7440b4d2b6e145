"""Functions of ranks that read through the buffers of a placement; rank 0 yields the results."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import workbench as wb
from tests.distributed.cooperative_setting import Rows, worst
from workbench.distributed.group import gather_numbers

NODES, ROW_BYTES = 600, 3 * 8
X = torch.linspace(-9, 9, NODES * 3, dtype=torch.float64).sin().view(NODES, 3)
TRAIN = torch.arange(0, NODES, 3)
BATCH = 10
HOSTS = ("memory", "owned", "cached")


@lru_cache
def graph() -> wb.Graph:
    """Sources with the skewed degrees of a power law."""
    drawn = torch.rand(2, 4000, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return wb.Graph.from_edges((drawn[0] ** 3 * NODES).long(), (drawn[1] * NODES).long(), num_nodes=NODES)


def batches(**options: Any) -> Any:
    return wb.batches(graph(), TRAIN, sampler=wb.NeighborSampler([5, 5]), batch_size=BATCH, drop_last=True, **options)


def placement(size: int, *, seed: int = 0, num_batches: int = 300, **options: Any) -> wb.placement.Placement:
    p = wb.placement.inclusion_probability(
        graph(), TRAIN, fanouts=[5, 5], batch_size=BATCH, method="presampled", num_batches=num_batches, seed=99 + seed
    )
    given: dict[str, Any] = {"rows_per_device": 90, "peer_cost": 0.2, "method": "search"} | options
    return wb.placement.place_rows(p, num_devices=size, **given)


def host_of(kind: str, size: int, traffic: wb.Traffic) -> Any:
    if kind == "memory":
        return wb.MemoryRows(X, traffic=traffic)
    if kind == "owned":  # rows of other ranks arrive when they are staged
        return wb.distributed.OwnedRows.of(wb.MemoryRows(X), owner_of_rows(size), traffic=traffic)
    return wb.CachedRows(wb.distributed.OwnedRows.of(X, owner_of_rows(size)), 50, traffic=traffic)


def owner_of_rows(size: int) -> Tensor:
    return torch.arange(NODES) * 7 % 11 % size


def recounted(placed: wb.placement.Placement, rank: int, reads: list[Tensor]) -> list[int]:
    """Rows read from each device and from the host, row by row from the buffers and costs."""
    n, costs = placed.num_devices, placed.problem.costs[rank].tolist()
    held, found = [set(rows.tolist()) for rows in placed.buffers], [0] * (n + 1)
    for row in torch.cat(reads).tolist():
        prices = [
            (costs[j], (j - rank) % n, j) for j in range(n) if row in held[j] and (j == rank or costs[j] < costs[n])
        ]
        found[rank if row in held[rank] else min(prices)[2] if prices else n] += 1
    return found


def epoch(config: Mapping[str, Any]) -> Rows:
    """An epoch of every rank's own batches through its buffer, by kind of host."""
    size, rank = dist.get_world_size(), dist.get_rank()
    placed = placement(size, num_batches=config["presampled"], **config["options"])
    for kind in config["hosts"]:
        links = wb.Traffic()
        host = host_of(kind, size, links)
        store = wb.placement.PlacedRows(placed, rank, host=host, traffic=links)
        filled, mine, reads, equal = links.snapshot(), [], [], True
        for number in range(config["epochs"]):
            mine += [mb for step, mb in batches(epoch=number, seed=rank)]
        for window in wb.windows(mine, size=1):
            staged = wb.stage(store, window)
            reads.append(window[0].node_ids)
            equal &= torch.equal(staged.read(reads[-1]), X[reads[-1]])
        counts, row = store.counts, (links.snapshot() - filled).row()
        others = int(counts[:-1].sum() - counts[rank])
        expected = float(placed.expected_cost[rank])
        asked = torch.zeros(size, size, dtype=torch.int64)
        asked[rank] = counts[:-1]
        dist.all_reduce(asked)
        yield {
            "host": kind,
            "rows": worst(float(not equal)) == 0.0,
            "recount": worst(float(counts.tolist() != recounted(placed, rank, reads))) == 0.0,
            "links": (row["device_rows"], row["peer_rows"]) == (int(counts[rank]), others)
            and row["peer_rows_bytes"] == others * ROW_BYTES,
            "ids": row["peer_ids"] == int(asked[:, rank].sum() - asked[rank, rank])
            and row["peer_ids_bytes"] == 8 * row["peer_ids"],
            "host_rows": kind != "memory" or row["host_rows"] == int(counts[-1]),
            "some": bool((counts > 0).all()),
            "cost": worst(abs(float(placed.problem.costs[rank] @ counts.double()) / len(reads) / expected - 1)),
        }


def windows_and_edges(config: Mapping[str, Any]) -> Rows:
    """Unequal buffers, an empty one, groups; ranks without ids; reads that need no other rank."""
    size, rank = dist.get_world_size(), dist.get_rank()
    sizes = [0, *range(60, 60 + 10 * (size - 1), 10)]
    half = [list(range(size // 2)), list(range(size // 2, size))]
    for name, options in {
        "unequal": {"rows_per_device": sizes},
        "groups": {"groups": half, "method": "algorithm-1"},
        "dtype": {},
    }.items():
        placed = placement(size, **options)
        x = X.to(torch.bfloat16).view(NODES, 3, 1) if name == "dtype" else X
        store = wb.placement.PlacedRows(placed, rank, host=x)
        ids = torch.arange(NODES)[rank::2] if rank else torch.empty(0, dtype=torch.int64)
        staged = store.stage(ids)
        equal = torch.equal(staged.read(ids), x[ids])
        alone = True
        for _ in range(rank):  # differs by rank: local reads
            alone &= torch.equal(store.read(ids), x[ids])
        crossing = float(store.counts[:-1].sum() - store.counts[rank])
        yield {"name": name, "rows": worst(float(not (equal and alone))) == 0.0, "peer": gather_numbers(crossing)}


def refusals(config: Mapping[str, Any]) -> Rows:
    """What a rank says that is not the device, or has another number of peers."""
    size, rank = dist.get_world_size(), dist.get_rank()
    row = {}
    for name, call in {
        "rank": lambda: wb.placement.PlacedRows(placement(size), (rank + 1) % size, host=X),
        "size": lambda: wb.placement.PlacedRows(placement(size + 1), rank, host=X),
    }.items():
        try:
            call()
        except ValueError as error:
            row[name] = str(error)
    yield row
