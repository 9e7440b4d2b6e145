"""Batches drawn, split and partitioned on a GPU are those of the CPU, bit for bit."""

from typing import Any

import pytest
import torch

import workbench as wb
from tests.sampling.test_contract import SAMPLERS, assert_same_batch, sampler_for
from tests.strategies import random_graph
from workbench.sampling.edge_batches import edge_batches

pytestmark = pytest.mark.cuda

GRAPH = random_graph(60, 400, seed=3, edge_weight=torch.float32, num_edge_types=3)
SEEDS = torch.arange(0, 60, 4)
QUICK = {"uniform", "replace", "weighted", "weighted, replace", "by type", "labor", "labor-*", "random walks",
         "smoothed", "locality", "ladies", "dense", "dense, in and out"}  # fmt: skip
"""One sampler of each kind; the others are tested with `-m slow`."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
        for name in SAMPLERS
        if name != "user-defined"
    ],
)
def test_samplers(name: str) -> None:
    sampler, graph = sampler_for(name, GRAPH), GRAPH.to("cuda")
    for exclude in (None, torch.arange(0, 400, 5)):
        on_cpu = sampler.sample(GRAPH, SEEDS, step=2, exclude_edges=exclude)
        on_gpu = sampler.sample(graph, SEEDS.cuda(), step=2, exclude_edges=exclude)
        assert on_gpu.device.type == "cuda"
        assert_same_batch(on_gpu.to("cpu"), on_cpu)


@pytest.mark.parametrize("sampler", [wb.NeighborSampler([3, 4], edge_ids=True), wb.DenseSampler([2, 2], edge_ids=True)])
def test_split_and_partitions(sampler: wb.Sampler) -> None:
    pytest.importorskip("pymetis")
    on_cpu = sampler.sample(GRAPH, SEEDS)
    on_gpu = on_cpu.to("cuda")
    for method in ("range", "random", "reg", "betty"):
        if method not in wb.partition.PARTITION_METHODS:
            continue
        part = wb.partition_batch(on_gpu, 3, method=method)
        assert torch.equal(part.cpu(), wb.partition_batch(on_cpu, 3, method=method))
        for ours, theirs in zip(on_gpu.split(part), on_cpu.split(part.cpu()), strict=True):
            assert ours.device.type == "cuda" and torch.equal(ours.parent.cpu(), theirs.parent)  # type: ignore
            assert_same_batch(ours.to("cpu"), theirs)
    assert wb.redundancy(on_gpu.split(SEEDS.cuda() % 3), on_gpu) == wb.redundancy(on_cpu.split(SEEDS % 3), on_cpu)


def test_loops_over_a_graph_on_the_device() -> None:
    sampler, graph = wb.NeighborSampler([3, 4]), GRAPH.to("cuda")
    for loader in (wb.batches, lambda *a, **o: wb.prefetch(wb.batches(*a, **o))):
        ours = loader(graph, SEEDS, sampler=sampler, batch_size=4, epoch=0)
        theirs = wb.batches(GRAPH, SEEDS, sampler=sampler, batch_size=4, epoch=0)
        for (step, on_gpu), (other, on_cpu) in zip(ours, theirs, strict=True):
            assert step == other
            assert_same_batch(on_gpu.to("cpu"), on_cpu)


def test_graphs() -> None:
    graph = GRAPH.to("cuda")
    graph.validate()
    assert torch.equal(graph.in_degrees().cpu(), GRAPH.in_degrees())
    assert torch.equal(graph.edge_positions(torch.arange(5).cuda()).cpu(), GRAPH.edge_positions(torch.arange(5)))
    src, dst = GRAPH.indices.long(), torch.arange(60).repeat_interleave(GRAPH.in_degrees())
    built = wb.Graph.from_edges(src.cuda(), dst.cuda(), num_nodes=60, undirected=True)
    plain = wb.Graph.from_edges(src, dst, num_nodes=60, undirected=True)
    assert torch.equal(built.indptr.cpu(), plain.indptr) and torch.equal(built.indices.cpu(), plain.indices)


@pytest.mark.parametrize("method", ["hops", "mass", "presampled", "sketched"])
def test_access_probabilities(method: str) -> None:
    options: dict[str, Any] = {"fanouts": [3, 4], "batch_size": 5, "method": method}
    options |= {"num_batches": 20} if method == "presampled" else {}
    on_cpu = wb.placement.inclusion_probability(GRAPH, SEEDS, **options)
    on_gpu = wb.placement.inclusion_probability(GRAPH.to("cuda"), SEEDS, **options)
    assert on_gpu.is_cuda
    rounding = 1e-5 if method == "sketched" else 1e-9  # sketches sum rates in float32, in another order
    torch.testing.assert_close(on_gpu.cpu(), on_cpu, rtol=rounding, atol=1e-8)


def test_reach_counts() -> None:
    mb = wb.NeighborSampler([3, 4]).sample(GRAPH, SEEDS)
    assert torch.equal(wb.cooperative.reach_counts(mb.to("cuda")).cpu(), wb.cooperative.reach_counts(mb))


@pytest.mark.parametrize(
    "negatives", [None, wb.links.Negatives(6, chunks=2, ends="both", by_degree=0.5, from_batch=True)]
)
def test_edge_batches(negatives: wb.links.Negatives | None) -> None:
    dst = torch.arange(60).repeat_interleave(GRAPH.in_degrees())
    pairs, ids = torch.stack((GRAPH.indices.long(), dst)), GRAPH.edge_ids
    order = torch.argsort(ids) if ids is not None else torch.arange(400)
    options = {"sampler": wb.NeighborSampler([3]), "batch_size": 100, "negatives": negatives, "epoch": 0}
    ours = edge_batches(GRAPH.to("cuda"), pairs[:, order].cuda(), **options)
    theirs = edge_batches(GRAPH, pairs[:, order], **options)
    for (_, pairs_gpu, mb_gpu), (_, pairs_cpu, mb_cpu) in zip(ours, theirs, strict=True):
        assert_same_batch(mb_gpu.to("cpu"), mb_cpu)
        assert torch.equal(pairs_gpu.to("cpu").src, pairs_cpu.src)
        assert torch.equal(pairs_gpu.to("cpu").dst, pairs_cpu.dst)
