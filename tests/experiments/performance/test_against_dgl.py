"""The other benchmarks against DGL: rows about the batch they say, and both sides checked to be equal."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

import workbench as wb
from experiments.performance import boundaries, labor, sampling, splitting
from experiments.performance.graphs import GraphPoint, power_law_graph
from workbench.core.randomness import permutation

pytest.importorskip("dgl")

GIVEN: dict[str, Any] = {"power_law": {"num_nodes": 1000, "num_edges": 8000}, "repeats": 2}


def test_sampling_is_timed_on_the_batch_of_the_sampler() -> None:
    (row,) = sampling.run(sampling.Config(**GIVEN, batch_size=64, fanouts=(-1, -1)))  # all: nothing is random
    seeds = permutation(64, 1000)[:64]
    batch = wb.NeighborSampler([-1, -1]).sample(power_law_graph(1000, 8000), seeds)
    assert (row["graph"], row["num_inputs"], row["num_edges"]) == ("power-law", batch.num_inputs, batch.num_edges)
    assert row["dgl_inputs"] == row["num_inputs"]
    assert row["ratio_best"] == row["dgl_seconds"] / row["ours_seconds"]


def test_a_side_that_samples_something_else_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_TOLERANCE", -1.0)
    with pytest.raises(RuntimeError, match=r"DGL sampled \d+ input nodes, this library \d+"):
        list(sampling.run(sampling.Config(**GIVEN, batch_size=64, fanouts=(5,))))


@pytest.mark.parametrize("importance", [0, 1, "*"])
def test_labor_is_timed_on_the_batch_of_the_sampler(importance: Any) -> None:
    before = wb.get_num_threads(), torch.get_num_threads()
    given = {**GIVEN, "batch_size": 512, "fanouts": (3,), "importance": importance}
    (row,) = labor.run(labor.Config(**given, threads=1))
    assert (row["graph"], row["num_threads"], row["dgl_threads"]) == ("power-law", 1, 1)
    assert before == (wb.get_num_threads(), torch.get_num_threads())
    assert row["ratio_best"] == row["dgl_seconds"] / row["ours_seconds"]


@pytest.mark.parametrize("function", ["create_block", "to_block"])
def test_splitting_is_timed_on_equal_blocks(function: str) -> None:
    given = {**GIVEN, "fanouts": (3, 3), "method": "random", "num_parts": 4, "dgl_function": function}
    (row,) = splitting.run(splitting.Config(**given))
    assert row["num_seeds"] == 500 and row["redundancy"] > 1


def test_blocks_that_differ_are_noticed() -> None:
    batch = wb.NeighborSampler([3, 3]).sample(power_law_graph(1000, 8000), torch.arange(0, 1000, 2))
    layers = [splitting._layer_graph(block, batch.num_inputs) for block in batch.blocks]
    part = torch.arange(batch.num_seeds) % 3
    micro, peer = batch.split(part), splitting.dgl_split(layers, part, "to_block")
    splitting.check_equal(micro, peer)
    assert micro[0].parent is not None
    micro[0] = replace(micro[0], parent=micro[0].parent.flip(0))
    with pytest.raises(AssertionError):
        splitting.check_equal(micro, peer)


@pytest.mark.parametrize("library", ["dgl", "pyg"])
def test_the_checks_are_a_share_of_a_step(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BATCH_SIZE", "WIDTH", "HIDDEN"):
        monkeypatch.setattr(boundaries, name, 32)
    (row,) = boundaries.run(boundaries.Config(**GIVEN, library=library))  # pyright: ignore[reportArgumentType]
    assert 0 < row["low"] <= row["share"] <= row["high"]


def test_a_point_has_one_graph() -> None:
    for given in ({}, {**GIVEN, "dataset": "cora"}):
        with pytest.raises(ValidationError, match="set either dataset or power_law"):
            GraphPoint(**given)
