"""Contract of every batch partitioner."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.partitioners import skip_without_library
from tests.strategies import random_graph, random_minibatch
from workbench.core.block import Block
from workbench.core.errors import CapacityError, PartitionError
from workbench.core.minibatch import MiniBatch
from workbench.partition import metis, metis as hypergraph
from workbench.partition.batch import partition_batch, partition_choices
from workbench.partition.graph import partition_graph
from workbench.partition.refine import OBJECTIVES

GRAPH = random_graph(300, 1500, seed=2)
METHODS = partition_choices()
EVEN = ["range", "random", "metis", "reg", "reg_unweighted", "reg_normalized"]
"""Methods that balance the number of seeds unless weights are given."""
SEEDED = [name for name in METHODS if name not in ("range", "cluster")]


def batch(num_seeds: int = 120, step: int = 0) -> MiniBatch:
    return random_minibatch(GRAPH, fanouts=(3, 5), num_seeds=num_seeds, seed=4, step=step)


def partition(mb: MiniBatch, num_parts: int, method: str, *, seed: int = 0, weights: Tensor | None = None) -> Tensor:
    skip_without_library(method)
    node_parts = partition_graph(GRAPH, num_parts, method="random", seed=1) if method == "cluster" else None
    return partition_batch(mb, num_parts, method=method, seed=seed, node_parts=node_parts, weights=weights)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("num_parts", [1, 2, 3, 8, 40])
def test_every_seed_has_one_part_in_range(method: str, num_parts: int) -> None:
    mb = batch()
    part = partition(mb, num_parts, method)
    assert part.dtype == torch.int64 and part.shape == (mb.num_seeds,)
    assert int(part.min()) >= 0 and int(part.max()) < num_parts
    micro = mb.split(part)
    assert sorted(torch.cat([m.seeds for m in micro]).tolist()) == sorted(mb.seeds.tolist())
    if method != "cluster":
        assert len(micro) == num_parts


@pytest.mark.parametrize("method", METHODS)
def test_results_are_reproducible(method: str) -> None:
    first, second = (partition(batch(), 6, method, seed=5) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("method", SEEDED)
def test_seeds_differ(method: str) -> None:
    # METIS is random only where it coarsens, from about 30 nodes per part on.
    assert len({tuple(partition(batch(), 2, method, seed=seed).tolist()) for seed in range(4)}) > 1


def test_random_differs_between_steps_and_follows_the_node() -> None:
    first, second = partition(batch(), 6, "random"), partition(batch(step=1), 6, "random")
    assert not torch.equal(first, second)
    mb = batch()
    turned = MiniBatch(mb.seeds.flip(0), ())
    assert torch.equal(partition_batch(turned, 6, method="random").flip(0), first)


@pytest.mark.parametrize("method", EVEN)
def test_the_number_of_seeds_is_balanced(method: str) -> None:
    sizes = torch.bincount(partition(batch(), 4, method), minlength=4)
    assert int(sizes.max()) <= (30 if method in ("range", "random") else 33)


@pytest.mark.parametrize("method", ["range", *SEEDED])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_weights_are_balanced(method: str, dtype: torch.dtype) -> None:
    weights = (torch.arange(120) % 7 + 1).to(dtype)
    part = partition(batch(), 4, method, weights=weights)
    loads = torch.zeros(4).index_add_(0, part, weights.float())
    assert float(loads.max()) <= 1.12 * float(loads.mean())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("num_parts", [1, 2, 5])
def test_degenerate_batches(method: str, num_parts: int) -> None:
    no_edges = Block(torch.zeros(6, dtype=torch.int64), torch.empty(0, dtype=torch.int32), 5, 5)
    hub = Block(torch.arange(6), torch.full((5,), 5, dtype=torch.int32), 6, 5)
    hub_seed = Block(torch.arange(6), torch.zeros(5, dtype=torch.int32), 5, 5)
    for mb in (
        MiniBatch(torch.arange(5), (no_edges,)),
        MiniBatch(torch.arange(6), (hub,)),
        MiniBatch(torch.arange(5), (hub_seed,)),
        MiniBatch(torch.arange(5), ()),
    ):
        part = partition(mb, num_parts, method)
        assert part.shape == (5,) and int(part.max()) < num_parts


@pytest.mark.parametrize("method", METHODS)
def test_one_seed_and_none(method: str) -> None:
    assert partition(MiniBatch(torch.tensor([7]), ()), 1, method).tolist() == [0]
    assert partition(MiniBatch(torch.empty(0, dtype=torch.int64), ()), 1, method).tolist() == []


@pytest.mark.parametrize("method", ["range", *SEEDED])
def test_as_many_parts_as_seeds(method: str) -> None:
    part = partition(batch(30), 30, method)
    assert sorted(part.tolist()) == list(range(30))


def test_auto_reads_a_partition_of_the_graph() -> None:
    node_parts = partition_graph(GRAPH, 4, method="range")
    mb = batch()
    assert torch.equal(partition_batch(mb, 4, node_parts=node_parts), node_parts[mb.seeds])


def test_auto_falls_back_to_star_when_memory_is_short() -> None:
    pytest.importorskip("pymetis")
    mb = batch()
    with pytest.raises(CapacityError, match=r"the refinement requires .* a method without refinement \(star\)"):
        partition_batch(mb, 4, method="star_refined", max_bytes=1000)
    assert torch.equal(partition_batch(mb, 4, max_bytes=1000), partition_batch(mb, 4, method="star"))


def test_auto_and_fast_equal_the_methods_they_resolve_to() -> None:
    pytest.importorskip("pymetis")
    mb = batch()
    assert torch.equal(partition_batch(mb, 4), partition_batch(mb, 4, method="star_refined"))
    assert torch.equal(partition_batch(mb, 4, method="fast"), partition_batch(mb, 4, method="star"))
    within_budget = partition_batch(mb, 4, time_budget_seconds=1e-9)
    assert torch.equal(within_budget, partition_batch(mb, 4, method="range"))


@pytest.mark.parametrize("method", METHODS)
def test_very_many_parts(method: str) -> None:
    graph = random_graph(800, 4000, seed=2)
    mb = random_minibatch(graph, fanouts=(3,), num_seeds=600, seed=4)
    skip_without_library(method)
    node_parts = partition_graph(graph, 512, method="random", seed=1) if method == "cluster" else None
    part = partition_batch(mb, 512, method=method, node_parts=node_parts)
    assert int(part.max()) < 512
    if method != "cluster":
        assert len(part.unique()) == 512


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("method", METHODS)
def test_both_objectives(method: str, objective: str) -> None:
    skip_without_library(method)
    node_parts = torch.arange(300) % 5 if method == "cluster" else None
    part = partition_batch(batch(), 5, method=method, node_parts=node_parts, objective=objective)
    assert len(part.unique()) == 5


@pytest.mark.parametrize(("method", "library"), [("reg", "pymetis"), ("hypergraph", "mtkahypar")])
def test_a_partitioner_that_overruns_its_budget_is_ended(method: str, library: str) -> None:
    pytest.importorskip(library)
    large = random_minibatch(random_graph(3000, 30_000), fanouts=(8,), num_seeds=1500)
    with pytest.raises(PartitionError, match=r"over its limit of 1e-06 s"):
        partition_batch(large, 4, method=method, time_budget_seconds=1e-6)
    assert len(partition_batch(batch(), 4, method=method)) == 120


@pytest.mark.parametrize(
    ("name", "method"), [("METIS", "star_refined"), ("METIS", "auto"), ("MT_KAHYPAR", "hypergraph")]
)
def test_this_process_survives_a_crash_of_the_partitioner(
    name: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "program.py"
    script.write_text("import os, signal\n\ndef run(arrays, **options):\n    os.kill(os.getpid(), signal.SIGSEGV)\n")
    user = metis if name == "METIS" else hypergraph
    pytest.importorskip(getattr(user, name).module)
    with monkeypatch.context() as patch:
        patch.setattr(user, name, replace(getattr(user, name), script=script))
        with pytest.raises(PartitionError, match=r"was ended by signal 11 \(SIGSEGV\).*another method"):
            partition_batch(batch(), 4, method=method)
    assert len(partition_batch(batch(), 4, method=method)) == 120


@pytest.mark.parametrize("method", ["range", "random", "cluster"])
def test_methods_without_metis_need_no_pymetis(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    assert partition(batch(), 3, method).shape == (120,)
    with pytest.raises(ImportError, match=r"pip install pymetis"):
        partition_batch(batch(), 3, method="reg")


def test_bad_arguments_are_refused() -> None:
    mb = batch()
    with pytest.raises(ValueError, match=r"method 'best' is not known; choose from auto, "):
        partition_batch(mb, 2, method="best")
    with pytest.raises(ValueError, match=r"num_parts is 121, but the batch has 120 seeds"):
        partition_batch(mb, 121)
    with pytest.raises(ValueError, match=r"num_parts is 0"):
        partition_batch(mb, 0)
    with pytest.raises(ValueError, match=r"method is 'range' and node_parts is given"):
        partition_batch(mb, 2, method="range", node_parts=torch.zeros(300, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"weights"):
        partition_batch(mb, 2, method="range", weights=torch.ones(7))
    with pytest.raises(TypeError, match=r"weights"):
        partition_batch(mb, 2, method="range", weights=torch.ones(120, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"objective 'least' is not known; choose from largest, total"):
        partition_batch(mb, 2, method="range", objective="least")
    for seconds in (0, -1.0, float("nan")):
        with pytest.raises(ValueError, match=r"time_budget_seconds is .*; it must be a positive number"):
            partition_batch(mb, 2, method="range", time_budget_seconds=seconds)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_bad_weights_are_refused(bad: float) -> None:
    weights = torch.ones(120)
    weights[3] = bad
    with pytest.raises(ValueError, match=r"must be finite, non-negative"):
        partition_batch(batch(), 2, method="range", weights=weights)
    with pytest.raises(ValueError, match=r"weights up to 1e\+308 have an infinite sum"):
        partition_batch(batch(), 2, method="range", weights=torch.full((120,), 1e308, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"not all zero"):
        partition_batch(batch(), 2, method="range", weights=torch.zeros(120))
