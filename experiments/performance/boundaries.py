"""What checking foreign structure costs: the checks of one batch of DGL or PyG against a whole drop-in step with it."""

from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import workbench as wb
from experiments.performance.graphs import power_law_graph, real_graph
from experiments.performance.timing import interleaved
from workbench.core.block import Block
from workbench.core.errors import INT64_MAX, check_ids, check_unique
from workbench.core.graph import Graph
from workbench.core.interop import graph_to_dgl
from workbench.core.interop.edges import check_local
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import permutation

FANOUTS, BATCH_SIZE, WIDTH, HIDDEN, CLASSES, PARTS = [10, 25], 1024, 128, 256, 40, 4
LIMIT = 0.02
"""Share of a step that the checks may take."""


def _graphs(quick: bool) -> list[tuple[str, Graph]]:
    found = real_graph("ogbn-arxiv")
    real = [] if found is None or quick else [("ogbn-arxiv", found[0])]
    return [*real, ("power-law", power_law_graph(50_000, 1_000_000) if quick else power_law_graph(200_000, 4_000_000))]


def dgl_checks(blocks: list[Any], mb: MiniBatch) -> None:
    """All that `from_dgl` checks of blocks, on the tensors that it takes from them."""
    import dgl

    for block, ours in zip(blocks, mb.blocks, strict=True):
        for frame in (block.srcdata, block.dstdata):
            check_ids("ids", frame[dgl.NID], INT64_MAX)
        _check_block(ours, *block.edges(order="eid"))
    check_unique("ids", mb.node_ids)


def pyg_checks(batch: Any, mb: MiniBatch) -> None:
    """All that `from_pyg` checks of `adjs`."""
    check_ids("n_id", batch.n_id, INT64_MAX)
    for (edges, _, _), ours in zip(batch.adjs, mb.blocks, strict=True):
        check_local("sources", edges[0], ours.num_src)
        check_local("destinations", edges[1], ours.num_dst)
    mb.validate()


def _check_block(ours: Block, src: Tensor, dst: Tensor) -> None:
    check_local("sources", src, ours.num_src)
    check_local("destinations", dst, ours.num_dst)
    ours.validate()


def _dgl_step(graph: Graph, x: Tensor, y: Tensor, seeds: Callable[[], Tensor]) -> tuple[Callable, Callable]:
    """A step of README's loop with DGL's layers, and the checks of one of its batches."""
    import dgl
    from dgl.nn import SAGEConv  # pyright: ignore[reportAttributeAccessIssue]

    peer, sampler = graph_to_dgl(graph).formats("csc"), dgl.dataloading.NeighborSampler(FANOUTS)
    layers = nn.ModuleList([SAGEConv(WIDTH, HIDDEN, "mean"), SAGEConv(HIDDEN, CLASSES, "mean")])
    optimizer = torch.optim.Adam(layers.parameters())

    def step() -> None:
        _, ids, blocks = sampler.sample_blocks(peer, seeds())
        optimizer.zero_grad()
        for part in wb.micro_batches(blocks, PARTS):
            h = layers[0](part[0], x[part[0].srcdata[dgl.NID]]).relu()
            out, labels = layers[1](part[1], h), y[part[1].dstdata[dgl.NID]]
            (F.cross_entropy(out, labels, reduction="sum") / len(ids)).backward()
        optimizer.step()

    blocks = sampler.sample_blocks(peer, seeds())[2]
    mb = MiniBatch.from_dgl(blocks)
    return step, lambda: dgl_checks(blocks, mb)


class _MeanConv(nn.Linear):
    """README's stand-in for a layer of PyG."""

    def forward(self, x: tuple[Tensor, Tensor], edge_index: Tensor) -> Tensor:  # pyright: ignore
        sources, targets = edge_index
        total = torch.zeros_like(x[1]).index_add(0, targets, x[0][sources])
        degree = torch.bincount(targets, minlength=len(x[1])).clamp(min=1)
        return super().forward(torch.cat([x[1], total / degree[:, None]], dim=1))


def _pyg_step(graph: Graph, x: Tensor, y: Tensor, seeds: Callable[[], Tensor]) -> tuple[Callable, Callable]:
    """A step of README's loop with layers in the style of PyG, and the checks of one of its batches."""
    sampler, steps = wb.NeighborSampler(FANOUTS), count()
    convs = nn.ModuleList([_MeanConv(2 * WIDTH, HIDDEN), _MeanConv(2 * HIDDEN, CLASSES)])
    optimizer = torch.optim.Adam(convs.parameters())

    def step() -> None:
        batch = sampler.sample(graph, seeds(), step=next(steps))
        optimizer.zero_grad()
        for part in wb.micro_batches(batch.to_pyg(), PARTS):
            (outer, _, (_, hidden)), (inner, _, (_, targets)) = part.adjs
            h = x[part.n_id]
            h = convs[0]((h, h[:hidden]), outer).relu()
            out, labels = convs[1]((h, h[:targets]), inner), y[part.n_id[:targets]]
            (F.cross_entropy(out, labels, reduction="sum") / batch.num_seeds).backward()
        optimizer.step()

    mb = sampler.sample(graph, seeds())
    batch = SimpleNamespace(**vars(mb.to_pyg()))
    return step, lambda: pyg_checks(batch, mb)


def run(quick: bool = False) -> list[dict[str, Any]]:
    """One row per graph and library: `share` is the checks' part of a step (sampling and cutting included)."""
    rows = []
    for name, graph in _graphs(quick):
        x, y = torch.randn(graph.num_nodes, WIDTH), torch.randint(CLASSES, (graph.num_nodes,))
        order = permutation(0, graph.num_nodes)
        starts = count(step=BATCH_SIZE)

        def seeds(order: Tensor = order, starts: Any = starts) -> Tensor:
            return order[(next(starts) + torch.arange(BATCH_SIZE)) % len(order)]

        for library, make in (("dgl", _dgl_step), ("pyg", _pyg_step)):
            step, checks = make(graph, x, y, seeds)
            times = interleaved(checks, step, repeats=5 if quick else 21)
            share = {"share": 1 / times["ratio_median"], "low": 1 / times["ratio_high"], "high": 1 / times["ratio_low"]}
            seconds = {"checks_seconds": times["ours_seconds"], "step_seconds": times["theirs_seconds"]}
            rows.append({"graph": name, "library": library, **seconds, **share})
    return rows


def summary(rows: list[dict[str, Any]]) -> str:
    """The largest share against what it may be."""
    worst = max(row["share"] for row in rows)
    return f"the checks take up to {worst:.2%} of a drop-in step (median of a case); at most {LIMIT:.0%} is allowed"
