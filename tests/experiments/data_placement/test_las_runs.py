"""Rows of the figures of locality-aware sampling against recounts, on graphs of some hundred nodes."""

from typing import Any

import pytest
import torch

import workbench as wb
from experiments.data_placement import las_control, las_movement
from experiments.data_placement.local_samplers import LOCAL

TINY: dict[str, Any] = {"dataset": {"name": "synthetic-arxiv", "scale": 0.003, "undirected": True}}
TINY |= {"fanouts": (3, 3), "batch_size": 8, "buffer_share": 0.1}


def test_rows_are_those_of_batches_sampled_with_the_own_buffer() -> None:
    given = {**TINY, "topology": "2 GPUs", "factors": (1, 8), "steps": 2, "nodes": 9, "draws": 20, "runs": 2}
    rows = list(las_movement.run(las_movement.Config(**given)))
    assert len(rows) == 2 * (3 + 1 + 2 * len(LOCAL))
    data = wb.load_dataset("synthetic-arxiv", scale=0.003, undirected=True)
    p = wb.placement.inclusion_probability(data.graph, data.train_idx, fanouts=[3, 3], batch_size=8)
    share = int(0.1 * data.graph.num_nodes)
    placed = wb.placement.place_rows(p, num_devices=2, rows_per_device=share, peer_cost=32 / 300)
    found = next(row for row in rows if row["method"] == "LAS" and row["factor"] == 8 and row["run"] == 1)
    own = host = 0
    batches = wb.batches(
        data.graph, data.train_idx, sampler=wb.NeighborSampler([3, 3]), batch_size=8, drop_last=True, seed=1, epoch=0
    )
    everywhere = torch.cat(placed.buffers)
    for step, mb in list(batches)[:4]:
        buffered = placed.buffers[step % 2]
        sampler = wb.placement.LocalitySampler(
            [3, 3], wb.placement.locality_factors(data.graph, buffered, factor=8), seed=1
        )
        ids = sampler.sample(data.graph, mb.seeds, step=step).node_ids
        own += int(torch.isin(ids, buffered).sum())
        host += int((~torch.isin(ids, everywhere)).sum())
    assert (found["device_rows"], found["host_rows"]) == (own, host)


def test_the_controller_follows_the_modelled_seconds() -> None:
    given: dict[str, Any] = {"topology": "2 GPUs", "method": "LAS", "epochs": 4, "hidden_dim": 8, "flops": 1e13}
    config = las_control.Config(**TINY, **given, row_bytes=4096)
    control = wb.placement.LocalityControl()
    for row in las_control.run(config):
        assert row["factor"] == control.factor
        control = control.next(row["loading_seconds"], row["epoch_seconds"])
        assert row["ratio"] == pytest.approx(control.ratio) and row["settled"] == control.settled
    assert control.factor > 1
