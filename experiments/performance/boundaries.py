"""Cost of validating foreign structure: the checks of one batch of DGL or PyG beside a whole drop-in step with it."""

from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any, Literal

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import workbench as wb
from experiments.performance.graphs import GraphPoint
from experiments.performance.timing import import_dgl, interleaved
from workbench.core.block import Block
from workbench.core.errors import INT64_MAX, check_ids, check_unique
from workbench.core.graph import Graph
from workbench.core.minibatch import MiniBatch
from workbench.core.randomness import permutation
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.interop import graph_to_dgl
from workbench.interop.edge_lists import check_local

FANOUTS, BATCH_SIZE, WIDTH, HIDDEN, CLASSES, PARTS = [10, 25], 1024, 128, 256, 40, 4
LIMIT = 0.02
"""Share of a step that the checks may cost."""

Sides = tuple[Callable[[], object], Callable[[], object]]
"""A training step, and the checks of one of its batches."""


class Config(GraphPoint):
    """One library whose batches are checked."""

    library: Literal["dgl", "pyg"]


def run(config: Config) -> Iterator[dict[str, Any]]:
    """`share`: the checks' part of a step, sampling and splitting included, with its quartiles over the rounds."""
    graph, _ = config.load()
    torch.manual_seed(config.seed)
    x, y = torch.randn(graph.num_nodes, WIDTH), torch.randint(CLASSES, (graph.num_nodes,))
    order, starts = permutation(config.seed, graph.num_nodes), count(step=BATCH_SIZE)

    def seeds() -> Tensor:
        return order[(next(starts) + torch.arange(BATCH_SIZE)) % len(order)]

    step, checks = (_dgl_step if config.library == "dgl" else _pyg_step)(graph, x, y, seeds)
    times = interleaved(checks, step, repeats=config.repeats)
    share = {"share": 1 / times["ratio_median"], "low": 1 / times["ratio_high"], "high": 1 / times["ratio_low"]}
    yield {
        "graph": config.graph,
        "checks_seconds": times["ours_seconds"],
        "step_seconds": times["theirs_seconds"],
        **share,
    }


def dgl_checks(blocks: list[Any], mb: MiniBatch) -> None:
    """All checks of `from_dgl`, on the tensors that it reads from DGL's blocks.

    Args:
        blocks: DGL's, input layer first.
        mb: the batch that was made of them.
    """
    dgl = import_dgl()

    for block, ours in zip(blocks, mb.blocks, strict=True):
        for frame in (block.srcdata, block.dstdata):
            check_ids("ids", frame[dgl.NID], INT64_MAX)
        _check_block(ours, *block.edges(order="eid"))
    check_unique("ids", mb.node_ids)


def pyg_checks(batch: Any, mb: MiniBatch) -> None:
    """All checks of `from_pyg`, on PyG's `adjs`.

    Args:
        batch: with `n_id` and `adjs`, outermost hop first.
        mb: the batch that was made of it.
    """
    check_ids("n_id", batch.n_id, INT64_MAX)
    for (edges, _, _), ours in zip(batch.adjs, mb.blocks, strict=True):
        check_local("sources", edges[0], ours.num_src)
        check_local("destinations", edges[1], ours.num_dst)
    mb.validate()


def _check_block(ours: Block, src: Tensor, dst: Tensor) -> None:
    check_local("sources", src, ours.num_src)
    check_local("destinations", dst, ours.num_dst)
    ours.validate()


def _dgl_step(graph: Graph, x: Tensor, y: Tensor, seeds: Callable[[], Tensor]) -> Sides:
    """The README's training loop with DGL's layers."""
    dgl = import_dgl()
    conv = dgl.nn.SAGEConv

    peer, sampler = graph_to_dgl(graph).formats("csc"), dgl.dataloading.NeighborSampler(FANOUTS)
    layers = nn.ModuleList([conv(WIDTH, HIDDEN, "mean"), conv(HIDDEN, CLASSES, "mean")])
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
    """The README's example of a layer with PyG's interface."""

    def forward(self, x: tuple[Tensor, Tensor], edge_index: Tensor) -> Tensor:  # pyright: ignore
        sources, targets = edge_index
        total = torch.zeros_like(x[1]).index_add(0, targets, x[0][sources])
        degree = torch.bincount(targets, minlength=len(x[1])).clamp(min=1)
        return super().forward(torch.cat([x[1], total / degree[:, None]], dim=1))


def _pyg_step(graph: Graph, x: Tensor, y: Tensor, seeds: Callable[[], Tensor]) -> Sides:
    """The README's training loop with layers that have PyG's interface."""
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
    batch = mb.to_pyg()
    fields = batch.to_dict() if hasattr(batch, "to_dict") else vars(batch)  # without PyG, a `PygBatch`
    return step, lambda: pyg_checks(SimpleNamespace(**fields), mb)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import interval_dots

    rows = table.assign(half=(table.high - table.low) / 2, middle=(table.high + table.low) / 2)
    return interval_dots(
        rows,
        x="graph",
        y="middle",
        group="library",
        half_width="half",
        title="Validation of foreign batches",
        subtitle=f"share of a training step: the quartiles of the rounds; at most {LIMIT:.0%} is claimed",
    ).update_yaxes(title_text="share of a step", tickformat=".1%", rangemode="tozero")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    return [
        claims.within(
            "checks-are-cheap",
            "the checks cost at most 2 % of a drop-in training step",
            table,
            value="share",
            by=["graph", "library"],
            most=LIMIT,
            form=".2%",
            timed=True,
        )
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Shares of a step over all cases, and by library."""
    name = "validation of foreign batches, share of a training step"
    groups = {name: table, **{f"{name}: {library}": rows for library, rows in table.groupby("library", sort=False)}}
    return pd.DataFrame([_summary(group, rows) for group, rows in groups.items()])


def _summary(name: str, rows: Any) -> dict[str, Any]:
    share, spread = rows.share, (rows.high - rows.low) / rows.share
    ends = {"from": share.min(), "to": share.max(), "spread": spread.median()}
    return {"measured": name, "cases": len(rows), "median": share.median(), **ends}
