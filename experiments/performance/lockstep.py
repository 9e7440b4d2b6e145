"""All cooperating ranks of a batch sampled in one process, beside one sampler of the same batch.

Together the ranks draw the edges that the sampler draws. In addition each divides the nodes that it reads by their
owner, asks the owners for those of other ranks, and numbers what it is asked for. Nodes are divided at random, so most
of them are another rank's.
"""

from collections.abc import Iterator
from typing import Any, Literal

import pandas as pd
from pydantic import Field, PositiveInt

import workbench as wb
from experiments.cooperative.samplers import build_sampler
from experiments.performance.graphs import GraphPoint
from experiments.performance.timing import interleaved
from workbench.core.randomness import permutation
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.kernels.threads import get_num_threads

MOST = {1: ("one rank takes", 1.05), 4: ("four ranks take", 1.5)}
"""By the number of ranks: its words, and their claimed time relative to one sampler's."""


class Config(GraphPoint):
    """A sampler and a number of ranks.

    Args:
        sampler: name in the paper.
        fanouts: neighbours per layer, input layer first.
        num_ranks: ranks of the process.
        batch_size: seeds per rank.
    """

    sampler: Literal["NS", "LABOR-0"]
    fanouts: tuple[int, ...] = Field(min_length=1)
    num_ranks: PositiveInt
    batch_size: PositiveInt


def run(config: Config) -> Iterator[dict[str, Any]]:
    graph, nodes = config.load()
    seeds = nodes[permutation(config.seed, len(nodes))[: config.num_ranks * config.batch_size]]
    sampler = build_sampler(config.sampler, config.fanouts, seed=config.seed)
    owner = wb.partition_graph(graph, config.num_ranks, method="random", seed=config.seed)
    ranks: dict[str, Any] = {"sampler": sampler, "owner": owner, "num_ranks": config.num_ranks}
    batch, parts = sampler.sample(graph, seeds), wb.cooperative.batches(graph, seeds, **ranks)
    counts = {"num_edges": edges_of(batch), "num_inputs": batch.num_inputs}
    assert counts["num_edges"] == sum(map(edges_of, parts))
    times = interleaved(
        lambda: sampler.sample(graph, seeds),
        lambda: wb.cooperative.batches(graph, seeds, **ranks),
        repeats=config.repeats,
    )
    names = {"ours_seconds": "alone_seconds", "theirs_seconds": "ranks_seconds"}
    asked = sum(len(exchange.halo_ids) for part in parts for exchange in part.exchanges or ())
    fixed = {"graph": config.graph, "num_threads": get_num_threads(), "num_seeds": len(seeds), "asked_ids": asked}
    yield fixed | counts | {names.get(name, name): value for name, value in times.items()}


def edges_of(mb: wb.MiniBatch) -> int:
    return sum(block.num_edges for block in mb.blocks)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.dots import interval_dots

    rows = table.assign(
        case=table.graph + ", ranks: " + table.num_ranks.astype(str),
        half=(table.ratio_high - table.ratio_low) / 2,
        middle=(table.ratio_high + table.ratio_low) / 2,
    )
    return interval_dots(
        rows,
        x="case",
        y="middle",
        group="sampler",
        half_width="half",
        ratios=True,
        title="Cooperating ranks of one process beside one sampler",
        subtitle="time of all ranks divided by that of one sampler of the same batch: the quartiles of the rounds",
    ).update_yaxes(title_text="ranks ÷ one sampler", rangemode="tozero")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    by = ["graph", "sampler"]
    return [
        claims.within(
            f"cheap-on-{ranks}",
            f"{subject} at most {most:g} times as long as one sampler",
            table.query("num_ranks == @ranks"),
            value="ratio_median",
            by=by,
            most=most,
            form=".2f",
            timed=True,
        )
        for ranks, (subject, most) in MOST.items()
        if (table.num_ranks == ranks).any()
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Ratios over all cases, and by number of ranks and sampler."""
    of = "cooperating ranks in one process, time divided by one sampler's"
    groups: dict[str, Any] = {of: table}
    for (ranks, sampler), rows in table.groupby(["num_ranks", "sampler"], sort=False):  # pyright: ignore[reportGeneralTypeIssues]
        groups[f"{of}: {ranks}, {sampler}"] = rows
    return pd.DataFrame([_summary(name, rows) for name, rows in groups.items()])


def _summary(name: str, rows: Any) -> dict[str, Any]:
    ratio, spread = rows.ratio_median, (rows.ratio_high - rows.ratio_low) / rows.ratio_median
    ends = {"from": ratio.min(), "to": ratio.max(), "spread": spread.median()}
    return {"measured": name, "cases": len(rows), "median": ratio.median(), **ends}
