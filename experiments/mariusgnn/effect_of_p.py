"""MariusGNN, effect of the number of physical partitions: bias, bytes read and modelled I/O time, at equal memory."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from experiments.mariusgnn.order_point import BALANCED, BETA, COMET, StoredOrderConfig, disk_of
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

BY = ["method", "num_logical"]
_FEW = 64
_MANY = 1024


class Config(StoredOrderConfig):
    """Epochs of one order, two of whose logical groups are in the buffer."""


def run(config: Config) -> Iterator[dict[str, Any]]:
    for epoch in range(config.epochs):
        yield config.epoch_row(epoch)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    of_comet: Any = table[table.method == COMET]
    comet = of_comet.sort_values("num_partitions").groupby(["num_logical", "num_partitions"])
    medians = comet[["partition_bias", "modelled_io_seconds"]].median().groupby("num_logical")
    first, last = medians.first(), medians.last()
    return Title(
        "From {least} to {most} partitions COMET's bias grows {bias:.2f} times, its modelled I/O {time:.1f} times",
        least=table.num_partitions.min(),
        most=table.num_partitions.max(),
        bias=last.partition_bias / first.partition_bias,
        time=last.modelled_io_seconds / first.modelled_io_seconds,
    )


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines
    from workbench.plots.style import titled

    figure: Any = lines(
        table.assign(l=[f"l = {groups}" for groups in table.num_logical]),
        x="num_partitions",
        log_x=True,
        y=["partition_bias", "read_bytes", "modelled_io_seconds"],
        group="method",
        facet="l",
    )
    return titled(figure, title(table, reported).text, height=figure.layout.height + 30, subtitle=disk_of(table))


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    series: dict[str, Any] = {"along": "num_partitions", "by": BY}
    grouped: Any = table[table.method != BETA]
    relative: Any = grouped.assign(
        bytes=_to_least(grouped, "read_bytes"), time=_to_least(grouped, "modelled_io_seconds")
    )
    few: Any = relative[relative.num_partitions <= _FEW]
    many: Any = relative[relative.num_partitions >= _MANY]
    case = [*BY, "num_partitions", "epoch"]
    found = [
        claims.monotone(
            f"{name}-bias", f"the bias of {told} falls with p", table.query("method == @name"), value="partition_bias",
            falling=True, **series,
        )
        for name, told in ((COMET, "COMET"), (BALANCED, "the balanced order"))
    ]  # fmt: skip
    found += [
        claims.within(
            "equal-bytes",
            "with l groups any p reads the same bytes within 1 %",
            relative,
            value="bytes",
            by=case,
            most=1.01,
        ),
        claims.within(
            "flat", f"up to {_FEW} partitions p changes I/O time by at most 5 %", few, value="time", by=case, most=1.05
        ),
    ]
    if len(many):
        told = f"from {_MANY} partitions on reads are so short that I/O takes over 1.05 times as long"
        found.append(claims.within("many-slow", told, many, value="time", by=case, least=1.05))
    return found


def _to_least(table: pd.DataFrame, column: str) -> Any:
    """A column divided by its least value in its series."""
    return table[column] / table.groupby(BY)[column].transform("min", skipna=False)


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Bias, bytes and reads and modelled seconds by order and p, medians over the epochs."""
    measured = ["partition_bias", "num_reads", "read_bytes", "modelled_io_seconds"]
    return table.groupby(["method", "num_logical", "num_partitions"])[measured].median().reset_index()
