"""Fuzz targets: samplers, splits and partitions."""

import random
from itertools import islice
from typing import Any

import torch

from tests.fuzz.mutate import wrong
from tests.strategies import random_graph, random_minibatch
from workbench.partition.batch import partition_batch
from workbench.partition.graph import partition_graph
from workbench.partition.redundancy import redundancy
from workbench.partition.refine import refine_parts
from workbench.sampling.loader import batches
from workbench.sampling.neighbor import FullNeighborSampler, NeighborSampler
from workbench.training.adapters import micro_batches
from workbench.training.epoch import epoch_steps

GRAPH = random_graph(20, 90, edge_weight=torch.float32, num_edge_types=3)


def sampler(rng: random.Random) -> None:
    options = {"fanouts": [2, 3], "replace": False, "weighted": False, "edge_ids": True, "seed": 3}
    flags = ("replace", "weighted", "edge_ids")
    made = NeighborSampler(**wrong(options | {name: rng.random() < 0.5 for name in flags}, rng, keep=flags))
    made.sample(GRAPH, torch.arange(4), step=2).validate(num_nodes=20)


def sample(rng: random.Random) -> None:
    flags: dict[str, Any] = {name: rng.random() < 0.5 for name in ("replace", "weighted")}
    made = NeighborSampler([{0: 2, 1: -1, 2: 0}, -1], edge_ids=True, **flags)
    valid = {"graph": GRAPH, "seeds": torch.arange(5), "step": 1, "exclude_edges": torch.arange(3)}
    made.sample(**wrong(valid, rng)).validate(num_nodes=20)


def draw(rng: random.Random) -> None:
    made = NeighborSampler([2, {0: 2, 1: -1, 2: 0}], weighted=rng.random() < 0.5)
    valid = {"graph": GRAPH, "nodes": torch.arange(5), "layer": 1, "step": 1, "exclude_edges": torch.arange(3)}
    made.draw(**wrong(valid, rng))


def full_sampler(rng: random.Random) -> None:
    FullNeighborSampler(**wrong({"num_layers": 2}, rng)).sample(GRAPH, torch.arange(4)).validate()


def stream_of_batches(rng: random.Random) -> None:
    valid = {"ids": torch.arange(20), "batch_size": 8, "epoch": 1, "seed": 0}
    for _, mb in islice(batches(GRAPH, sampler=NeighborSampler([2]), **wrong(valid, rng)), 3):
        mb.validate(num_nodes=20)


def steps_of_an_epoch(rng: random.Random) -> None:
    valid = {"ids": torch.arange(20), "num_batches": 2, "num_parts": 2, "method": "range", "epoch": 1, "seed": 0}
    for micro in islice(epoch_steps(GRAPH, sampler=NeighborSampler([2]), **wrong(valid, rng)), 3):
        assert all(mb.validate(num_nodes=20) for mb in micro)


def _batch():
    return random_minibatch(GRAPH, fanouts=(3, 2), num_seeds=9)


def split(rng: random.Random) -> None:
    parts = _batch().split(**wrong({"part": torch.arange(9) % 3}, rng))
    assert sum(part.validate().num_seeds for part in parts) == 9


def partition(rng: random.Random) -> None:
    mb = _batch()
    valid = {
        "mb": mb,
        "num_parts": 3,
        "method": rng.choice(("range", "random", "star", "star_refined", "cluster", "auto")),
        "seed": 0,
        "weights": torch.rand(9),
        "objective": "total",
        "time_budget_seconds": 5.0,
        "max_bytes": 10**9,
    }
    valid["node_parts"] = torch.arange(20) % 4 if valid["method"] == "cluster" else None
    mb.split(partition_batch(**wrong(valid, rng)))


def refinement(rng: random.Random) -> None:
    mb = _batch()
    valid = {
        "mb": mb,
        "part": torch.arange(9) % 3,
        "objective": "largest",
        "weights": torch.rand(9),
        "max_bytes": 10**9,
    }
    mb.split(refine_parts(**wrong(valid, rng)))


def graph_partition(rng: random.Random) -> None:
    part = partition_graph(
        **wrong({"g": GRAPH, "num_parts": 3, "method": rng.choice(("random", "range")), "seed": 0}, rng)
    )
    assert part.shape == (20,)


def micro(rng: random.Random) -> None:
    mb = _batch()
    parts = micro_batches(**wrong({"batch": mb, "num_parts": 3, "method": "random", "seed": 0}, rng))
    assert sum(part.validate().num_seeds for part in parts) == 9
    redundancy(parts, mb)


CATEGORIES = {
    "samplers": (sampler, sample, draw, full_sampler),
    "streams": (stream_of_batches, steps_of_an_epoch),
    "partitions": (partition, refinement, graph_partition, micro, split),
}
