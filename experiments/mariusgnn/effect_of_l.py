"""MariusGNN, effect of the number of logical groups: bias, loads and modelled I/O time, at c = 2 p / l."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from experiments.mariusgnn.order_point import BALANCED, BETA, COMET, StoredOrderConfig, disk_of
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

BY = ["method", "num_partitions"]
_GROUPED = [COMET, BALANCED]


class Config(StoredOrderConfig):
    """Epochs of one order, two of whose logical groups are in the buffer."""


def run(config: Config) -> Iterator[dict[str, Any]]:
    for epoch in range(config.epochs):
        yield config.epoch_row(epoch)


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    seconds: Any = table[table.method == COMET].pivot_table(
        "modelled_io_seconds", "num_partitions", "num_logical", aggfunc="median"
    )
    least, most = min(seconds), max(seconds)
    return Title(
        "{times:g} times the groups: COMET's I/O takes {longer:.1f} times as long",
        times=most / least,
        longer=(seconds[most] / seconds[least]).dropna(),
    )


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines
    from workbench.plots.style import titled

    figure: Any = lines(
        table.assign(p=[f"p = {p}" for p in table.num_partitions]),
        x="num_logical",
        log_x=True,
        y=["partition_bias", "rows_read", "modelled_io_seconds"],
        group="method",
        facet="p",
    )
    figure.update_xaxes(title_text="logical groups l, of which 2 are in the buffer", row=3)
    return titled(figure, title(table, reported).text, height=figure.layout.height + 30, subtitle=disk_of(table))


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    series: dict[str, Any] = {"along": "num_logical", "by": BY}
    grouped, comet, ours = (table.query("method in @names") for names in (_GROUPED, [COMET], [BALANCED]))
    expected: Any = grouped.assign(
        ratio=grouped.rows_read / ((grouped.num_logical * (grouped.num_logical - 1) / 2 + 1) / grouped.num_logical)
    )
    slope: Any = grouped.assign(slope=grouped.modelled_io_seconds / (grouped.num_logical - 1))
    slope["slope"] /= slope.groupby(BY).slope.transform("median")
    return [
        claims.monotone("comet-bias", "COMET's bias rises with l", comet, value="partition_bias", **series),
        claims.monotone(
            "balanced-bias", "the balanced order's falls", ours, value="partition_bias",
            falling=True, tolerance=0.02, **series,
        ),
        claims.monotone("io-rises", "I/O time rises with l", table, value="modelled_io_seconds", **series),
        claims.within(
            "loads", "the rows are read (l (l − 1) / 2 + 1) / l times", expected, value="ratio",
            by=[*BY, "num_logical", "epoch"], least=1 - 1e-5, most=1 + 1e-5,
        ),
        claims.within(
            "linear", "modelled I/O time per group after the first is constant within 15 %: time is linear in l", slope,
            value="slope", by=[*BY, "num_logical", "epoch"], least=0.85, most=1.15,
        ),
        claims.least(
            "beta-reads-least", "BETA on the physical partitions reads the fewest bytes", table, value="read_bytes",
            among="method", winner=BETA, rivals=_GROUPED, by=["num_partitions", "num_logical"],
        ),
    ]  # fmt: skip


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Bias, rows and bytes read and modelled seconds by order and l, medians over the epochs."""
    measured = ["partition_bias", "num_states", "rows_read", "read_bytes", "modelled_io_seconds"]
    return table.groupby(["method", "num_partitions", "num_logical"])[measured].median().reset_index()
