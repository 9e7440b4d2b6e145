"""One program of all joints: dependent sampling, placement, a cache over a disk, macrobatches, micro-batches, ranks."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

import workbench as wb

KAPPA, BATCH, WINDOW, PARTS = 4, 16, 3, 2


def train(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Losses of a few steps; `plain` names the pieces that are replaced by their plain forms."""
    plain = set(config["plain"])
    rank, world = wb.distributed.get_rank(), wb.distributed.get_world_size()
    data = wb.load_dataset("synthetic-arxiv", scale=0.004)
    x, mine = data.x.double(), data.train_idx[rank::world][: 6 * BATCH]
    model = wb.build_model("sage-mean", in_dim=x.shape[1], hidden_dim=8, out_dim=data.num_classes, seed=1).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sampler = wb.LaborSampler([5, 5], dependence=wb.Smoothed(KAPPA))
    links = wb.Traffic()
    with tempfile.TemporaryDirectory() as folder:
        store: Any = x
        if "disk" not in plain:
            wb.MappedRows.create(Path(folder) / "x", x)
            store = wb.DiskRows(Path(folder) / "x", traffic=links)
        if "cache" not in plain:
            store = wb.CachedRows(store, capacity_rows=60, policy="sieve", traffic=links)
        if "placement" not in plain:
            p = wb.placement.inclusion_probability(data.graph, data.train_idx, fanouts=[5, 5], batch_size=BATCH)
            placed = wb.placement.place_rows(p, num_devices=world, rows_per_device=80, peer_cost=0.3)
            store = wb.placement.PlacedRows(placed, rank, host=store, traffic=links)
        batches = wb.batches(data.graph, mine, sampler=sampler, batch_size=BATCH)
        for window in wb.windows(batches, size=WINDOW):
            rows = store if "macrobatch" in plain else wb.stage(store, window)
            for _, mb in window:
                micro = [mb] if "micro-batches" in plain else mb.split(wb.partition_batch(mb, PARTS, method="range"))
                yield {"loss": float(wb.cooperative.train_step(model, micro, rows, data.y, cross_entropy, optimizer))}
        for link in ("disk", "host", "device", "peer"):
            yield {"link": link, "rows": links.snapshot().count(link)}
