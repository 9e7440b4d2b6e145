"""A batch trained in micro-batches beside the same batch trained whole.

Micro-batches repeat work: an input node of several parts is read and processed in each of them (`redundancy`), and
every part has costs that do not depend on its size. `overhead` is the time of a step on the parts divided by that of a
step on the whole batch; `overhead_with_split` includes partitioning the batch and splitting it, as an epoch does.

Parts repeat work of the batch in any method whose gradients are exact. How much depends on the partition and on what is
counted: `edge_ratio`, `row_ratio` (destinations of all layers), `read_ratio` (bytes of features) and
`product_ratio` (multiplications of dense products) are sums over the parts divided by the batch's. The rest of the
overhead are costs per part. A first layer that gathers its sources repeats each for every part that reads it
(`redundancy`); one that aggregates on read (`workbench.training.AggregateOnRead`) repeats edges, of which there are
fewer. A whole batch also allocates larger arrays, whose memory the operating system maps anew in every step; wide
layers of small parts save that.
"""

from collections.abc import Iterator
from typing import Any, Literal

import pandas as pd
import torch
from pydantic import PositiveInt
from torch.nn import functional as F

import workbench as wb
from experiments.performance.timing import interleaved
from workbench.core.minibatch import MiniBatch
from workbench.experiment import claims
from workbench.experiment.config import ModelConfig, PartitionMethod
from workbench.experiment.finding import Finding
from workbench.kernels.threads import get_num_threads
from workbench.nn.gnn import GNN
from workbench.nn.linear_with_self import multiplies_first

MOST = {4: 1.1, 16: 1.5}
"""Claimed overhead by number of parts."""


class Config(ModelConfig):
    """One number of micro-batches, one partition, one width of the model.

    Args:
        model: work is counted for this model alone.
        device: only the CPU is benchmarked.
        batch_size: seeds of the batch.
        reading: gather the rows of the first layer's sources, or aggregate them on read; the whole batch does the same.
        method: of the partition.
        num_parts: number of micro-batches.
        repeats: rounds that are timed.
    """

    model: Literal["sage-mean"] = "sage-mean"
    device: Literal["cpu"] = "cpu"
    batch_size: PositiveInt
    reading: Literal["gather", "aggregate"] = "gather"
    method: PartitionMethod
    num_parts: PositiveInt
    repeats: PositiveInt


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    order = torch.randperm(len(data.train_idx), generator=torch.Generator().manual_seed(config.seed))
    seeds = data.train_idx[order[: config.batch_size]]
    batch = wb.NeighborSampler(config.fanouts, seed=config.seed).sample(data.graph, seeds)
    model = config.build(data)
    optimizer = torch.optim.Adam(model.parameters())
    x = wb.training.AggregateOnRead(data.x) if config.reading == "aggregate" else data.x

    def train(micro: MiniBatch | list[MiniBatch]) -> None:
        wb.train_step(model, micro, x, data.y, F.cross_entropy, optimizer)

    def split() -> list[MiniBatch]:
        return batch.split(wb.partition_batch(batch, config.num_parts, method=config.method, seed=config.seed))

    micro = split()
    parts = interleaved(lambda: train(batch), lambda: train(micro), repeats=config.repeats)
    both = interleaved(lambda: train(batch.to("cpu")), lambda: train(split()), repeats=config.repeats)  # both anew
    yield {
        "graph": config.dataset.name,
        "num_threads": get_num_threads(),
        "redundancy": wb.redundancy(micro, batch).ratio,
        **work_ratios(micro, batch, model, aggregates_on_read=config.reading == "aggregate"),
        "whole_seconds": parts["ours_seconds"],
        "parts_seconds": parts["theirs_seconds"],
        "overhead": parts["ratio_best"],
        "overhead_low": parts["ratio_low"],
        "overhead_high": parts["ratio_high"],
        "overhead_with_split": both["ratio_best"],
    }


def work_ratios(micro: list[MiniBatch], batch: MiniBatch, model: GNN, *, aggregates_on_read: bool) -> dict[str, float]:
    """Work of the parts divided by that of the batch, by kind of work.

    Args:
        micro: the parts.
        batch: the batch.
        model: of layers of GraphSAGE.
        aggregates_on_read: the first layer reads features by edge.
    """
    whole = _work(batch, model, aggregates_on_read)
    parts = [_work(mb, model, aggregates_on_read) for mb in micro]
    return {f"{name}_ratio": sum(part[name] for part in parts) / count for name, count in whole.items()}


def _work(mb: MiniBatch, model: GNN, aggregates_on_read: bool) -> dict[str, int]:
    """Edges, destinations, rows of features read, and multiplications of a forward pass."""
    first = mb.blocks[0]
    products = 0
    for position, (block, layer) in enumerate(zip(mb.blocks, model.layers, strict=True)):
        sizes: Any = (block.num_src, block.num_dst, layer.in_dim, layer.out_dim)
        on_read = aggregates_on_read and position == 0
        rows = block.num_src if not on_read and multiplies_first(*sizes, compiled=True) else block.num_dst
        products += (rows + block.num_dst) * sizes[2] * sizes[3]
    return {
        "edge": mb.num_edges,
        "row": sum(block.num_dst for block in mb.blocks),
        "read": first.num_edges + first.num_dst if aggregates_on_read else mb.num_inputs,
        "product": products,
    }


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import interval_dots

    rows = table.assign(
        case=table.num_parts.map("{} parts, ".format) + table.method + ", " + table.reading,
        width=table.hidden_dim.map("width {}".format),
        half=(table.overhead_high - table.overhead_low) / 2,
        middle=(table.overhead_high + table.overhead_low) / 2,
    )
    return interval_dots(
        rows,
        x="case",
        y="middle",
        group="width",
        half_width="half",
        ratios=True,
        title="Micro-batches beside the whole batch",
        subtitle="time of a step on the parts divided by that on the whole batch: the quartiles of the rounds",
    ).update_yaxes(title_text="parts ÷ whole", rangemode="tozero")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    by = ["graph", "hidden_dim", "method", "reading"]
    return [
        claims.within(
            f"cheap-in-{parts}-parts",
            f"a step on {parts} micro-batches takes at most {most:g} times as long as on the whole batch",
            table.query("num_parts == @parts"),
            value="overhead",
            by=by,
            most=most,
            form=".2f",
            timed=True,
        )
        for parts, most in MOST.items()
        if (table.num_parts == parts).any()
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Overheads over all cases, and by number of parts, partition and reading."""
    of = "training in micro-batches, time divided by the whole batch's"
    groups: dict[str, Any] = {of: table}
    for (parts, method, reading), rows in table.groupby(["num_parts", "method", "reading"], sort=False):  # pyright: ignore[reportGeneralTypeIssues]
        groups[f"{of}: {parts} parts, {method}, {reading}"] = rows
    return pd.DataFrame([_summary(name, rows) for name, rows in groups.items()])


def _summary(name: str, rows: Any) -> dict[str, Any]:
    value, spread = rows.overhead, (rows.overhead_high - rows.overhead_low) / rows.overhead
    ends = {"from": value.min(), "to": value.max(), "spread": spread.median()}
    with_split = {"with split": rows.overhead_with_split.median()}
    return {"measured": name, "cases": len(rows), "median": value.median(), **ends, **with_split}
