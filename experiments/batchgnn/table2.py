"""BatchGNN, Tables 2 and 3: epochs in the settings of P³ and of DistDGLv2, modelled from counted work."""

from collections.abc import Iterator
from typing import Any, Literal

import pandas as pd
from pydantic import PositiveInt

import workbench as wb
from experiments.batchgnn.rank_fetches import (
    CACHE,
    MACROBATCH,
    NETWORK_BYTES_PER_SECOND,
    ONE_BY_ONE,
    SHORT,
    EpochConfig,
    batches_of_ranks,
    epoch_size,
    fetched_rows,
    owners,
    reads,
    row_bytes,
)
from workbench.core.machine import Machine
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

MACHINE = Machine(gamma=409.6e9, alpha=NETWORK_BYTES_PER_SECOND, beta=409.6e9, flops=11.1e12)
"""One of the paper's: two Xeon 8360Y with 8 channels of DDR4-3200 and 36 cores of 2.4 GHz each, from data sheets; its
network as the paper's rows and seconds give it."""
PAPER_BATCH = 1000


class Config(EpochConfig):
    """An epoch of one of the two tables, on a graph that is smaller than the paper's and in batches as much smaller.

    Args:
        rival: the system that the paper compares with.
        hidden_dim: width of hidden layers.
    """

    rival: Literal["P3", "DistDGLv2"]
    hidden_dim: PositiveInt


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    owner, times = owners(data.graph, config, 0), PAPER_BATCH / config.batch_size
    counts, sizes = [], []
    for rank, batches in enumerate(batches_of_ranks(config, data, owner, 0)):
        kept = list(batches)
        counts.append(wb.macrobatch.count_macrobatches(kept, owner=owner, rank=rank))
        sizes += [
            [wb.nn.LayerSize(block.num_src, block.num_dst, block.num_edges) for block in mb.blocks] for mb in kept
        ]
    for fetching in (ONE_BY_ONE, MACROBATCH, CACHE):
        ranks = [reads(one, fetching) for one in counts]
        size = epoch_size(ranks[0], fetching)
        costs = [wb.macrobatch.macrobatch_bytes(one, size=size, row_bytes=row_bytes(data)) for one in ranks]
        work = [_work(layers, config, data, cached=fetching == CACHE) for layers in sizes]
        parts = {
            "topology": sum(cost.topology for cost in costs) / MACHINE.alpha,
            "features": sum(cost.features for cost in costs) / MACHINE.alpha,
            "memory": sum(one.nbytes for one in work) / MACHINE.gamma,
            "arithmetic": sum(one.flops for one in work) / MACHINE.flops,
        }
        seconds = {f"{name}_seconds": times / config.num_ranks * value for name, value in parts.items()}
        yield {
            "fetching": fetching,
            "num_batches": len(counts[0]),
            "rows": times * fetched_rows(counts, fetching),
            **seconds,
            "epoch_seconds": sum(seconds.values()),
        }


def _work(layers: list[wb.nn.LayerSize], config: Config, data: Any, *, cached: bool) -> wb.nn.ModelWork:
    """Work of GraphSAGE: that of GCN, with a second product per layer, for the destination's own row."""
    first = layers[0]
    if cached:  # one aggregate per destination takes the place of its sources
        layers = [wb.nn.LayerSize(first.num_dst, first.num_dst, first.num_dst), *layers[1:]]
    dims = [data.num_features, *[config.hidden_dim] * (len(layers) - 1), data.num_classes]
    work = wb.nn.model_work("gcn", layers, dims)
    return work._replace(flops=2 * work.flops)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    share: Any = beside_paper(table, reported).set_index(["rival", "num_ranks"]).share
    return Title("Modelled: bytes and products are {share:.0%} of the measured epoch", share=share)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.bars import StageBar, stage_bars

    parts = ["topology", "features", "memory", "arithmetic"]
    bars = [
        StageBar(
            f"{row['rival']}'s setting, {row['num_ranks']} ranks",
            "modelled",
            SHORT[row["fetching"]],
            {part: row[f"{part}_seconds"] for part in parts},
        )
        for row in table.sort_values("num_ranks", kind="stable").to_dict("records")
    ]
    measured = [
        StageBar(panel, "paper, measured", row["system"], {"epoch": row["epoch_seconds"]})
        for row in reported.to_dict("records")
        for panel in {bar.panel for bar in bars}
        if panel.startswith(f"{row['rival']}'s")
    ]
    order = list(dict.fromkeys(bar.panel for bar in bars))
    return stage_bars(
        sorted([*bars, *measured], key=lambda bar: order.index(bar.panel)),
        axis="time of an epoch",
        title=title(table, reported).text,
        subtitle="counted on a stand-in and scaled; network 1.06 GB/s, memory 409.6 GB/s, 11.1 TFLOP/s per rank",
    )


def beside_paper(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Modelled epochs with macrobatches and the paper's measured ones."""
    here: Any = table[table.fetching == MACROBATCH][["rival", "num_ranks", "epoch_seconds"]]
    paper: Any = reported[reported.system == "BatchGNN"][["rival", "epoch_seconds"]]
    both = here.merge(paper, on="rival", suffixes=("", "_paper"))
    return both.assign(share=both.epoch_seconds / both.epoch_seconds_paper)


def _share(table: pd.DataFrame, reported: pd.DataFrame) -> float:
    return float(beside_paper(table, reported).share.max())


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    options: dict[str, Any] = {"among": "fetching", "by": ["rival"], "winner": MACROBATCH, "rivals": [ONE_BY_ONE]}
    return [
        claims.least(
            "macrobatch-faster",
            "in the model, an epoch takes less time with macrobatches",
            table,
            value="epoch_seconds",
            **options,
        ),
        claims.within(
            "lower-bound",
            "the modelled epoch is shorter than the measured one, as it knows no latency, sampling or waiting",
            beside_paper(table, reported),
            value="share",
            by=["rival"],
            most=claims.LESS,
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Seconds of an epoch: measured in the paper, modelled here, and what the model adds up."""
    here = table.assign(system=table.fetching + " (modelled)")
    columns = ["rival", "system", "epoch_seconds", "topology_seconds", "features_seconds", "memory_seconds"]
    both: Any = pd.concat([reported, here])
    return both[[*columns, "arithmetic_seconds"]].sort_values("rival", ascending=False, kind="stable")
