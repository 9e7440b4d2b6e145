"""MariusGNN, effect of l and p on learnt rows: MRR, time and bytes of an epoch, two logical groups in the buffer."""

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from pydantic import PositiveInt

from experiments.mariusgnn.link_prediction import learnt
from experiments.mariusgnn.link_systems import BALANCED, COMET, SYSTEMS, LinkConfig
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

BY_GROUPS, BY_PARTITIONS = "l, at p = {p}", "p, at l = {l}"
CASE = ["system", "num_partitions", "num_groups"]
STEP_BACK, APART, LONGER = 0.03, 0.01, 1.25
"""Of MRR: the relative difference of runs with different seeds, and the absolute one that p may make; of an epoch's
seconds: how many times as long the longest may be at equal memory."""


class Config(LinkConfig):
    """Training in one order.

    Args:
        epochs: number of epochs; the test triples are ranked after the last.
    """

    epochs: PositiveInt


def run(config: Config) -> Iterator[dict[str, Any]]:
    """One row: the median time of an epoch, what the last one read, and the ranks of the test triples after it."""
    kg = config.dataset.load()
    with TemporaryDirectory() as folder:
        system = SYSTEMS[config.system](config, kg, Path(folder) / "store")
        seconds = [_epoch_seconds(system, epoch) for epoch in range(config.epochs)]
        found = system.metrics(kg.test)
        yield {
            "epoch_seconds": sorted(seconds)[len(seconds) // 2],
            "mrr": found.mrr,
            "hits_at_10": found.hits_at_10,
            **system.columns(),
        }


def _epoch_seconds(system: Any, epoch: int) -> float:
    start = time.perf_counter()
    for _ in system.epoch(epoch):
        pass
    return time.perf_counter() - start


def series(table: pd.DataFrame) -> pd.DataFrame:
    """Means over the seeds in two series: by l at the commonest p, and by p at the commonest l."""
    measured = ["mrr", "epoch_seconds", "disk_bytes", "num_loads", "bias"]
    grouped: Any = table.groupby(CASE)[measured]
    means: Any = grouped.mean(skipna=False).reset_index()
    p, groups = int(means.num_partitions.mode()[0]), int(means.num_groups.mode()[0])
    by_groups: Any = means[means.num_partitions == p]
    by_partitions: Any = means[means.num_groups == groups]
    return pd.concat(
        [
            by_groups.assign(series=BY_GROUPS.format(p=p), value=by_groups.num_groups),
            by_partitions.assign(series=BY_PARTITIONS.format(l=groups), value=by_partitions.num_partitions),
        ]
    )


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    found: Any = series(table)
    of_comet: Any = found[found.series.str.startswith("l") & (found.system == COMET)]
    groups = of_comet.sort_values("value")
    first, last = groups.iloc[0], groups.iloc[-1]
    return Title(
        "From {least} to {most} groups: COMET's MRR {first:.3f} → {last:.3f}",
        least=first.value,
        most=last.value,
        first=groups.head(1).set_index(CASE).mrr,
        last=groups.tail(1).set_index(CASE).mrr,
    )


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines
    from workbench.plots.style import titled

    found: Any = series(table)
    figure: Any = lines(
        found.rename(columns={"mrr": "filtered MRR", "epoch_seconds": "seconds per epoch"}),
        x="value",
        log_x=True,
        y=["filtered MRR", "seconds per epoch", "disk_bytes", "bias"],
        group="system",
        facet="series",
    )
    figure.update_xaxes(title_text="l, or p; two of l groups are in the buffer", row=4)
    runs = table.seed.nunique()
    trained = f"means of {runs} runs" if runs > 1 else "one run"
    subtitle = f"{table.dataset.iloc[0]}, DistMult, {trained} of {table.epochs.iloc[0]} epochs"
    return titled(figure, title(table, reported).text, height=figure.layout.height + 30, subtitle=subtitle)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    found: Any = series(table)
    by_groups: Any = found[found.series.str.startswith("l")]
    by_partitions: Any = found[found.series.str.startswith("p")]
    options: dict[str, Any] = {"along": "num_groups", "by": ["system"]}
    apart: Any = (
        by_partitions.groupby("system")
        .mrr.agg(lambda mrr: float(mrr.max(skipna=False) - mrr.min(skipna=False)))
        .reset_index()
    )
    longest: Any = by_partitions.groupby("system").epoch_seconds.agg(
        lambda s: s.max(skipna=False) / s.min(skipna=False)
    )
    compared = [
        claims.monotone(
            "fewer-groups", "the fewer groups, the higher the MRR", by_groups, value="mrr", falling=True,
            tolerance=STEP_BACK, **options,
        ),
        claims.within(
            "any-p", f"at equal memory p changes the MRR by at most {100 * APART:g} point", apart, value="mrr",
            by=["system"], most=APART,
        ),
    ]  # fmt: skip
    return [
        *claims.once_trained(compared, learnt(found, ["system", "series", "value"])),
        claims.monotone("bytes", "the more groups, the more bytes are read", by_groups, value="disk_bytes", **options),
        claims.monotone(
            "time", "the more groups, the longer an epoch", by_groups, value="epoch_seconds", timed=True, **options
        ),
        claims.within(
            "time-any-p", f"at equal memory the longest epoch takes at most {LONGER:g} times as long as the shortest",
            longest.reset_index(), value="epoch_seconds", by=["system"], most=LONGER, timed=True,
        ),
        claims.least(
            "balanced-bias", "the balanced order has less bias than COMET's", found, value="bias", among="system",
            winner=BALANCED, rivals=[COMET], by=["series", "value"],
        ),
    ]  # fmt: skip


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """MRR, seconds and bytes per epoch, and bias, by order, p and l."""
    return series(table).drop_duplicates(CASE).drop(columns=["series", "value"])
