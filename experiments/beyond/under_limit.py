"""Training from disk while the system limits the memory of the process, pages of files included.

In memory, the process is killed. Mapped rows leave it to the system which pages to keep; rows that are read ahead and
packed rows are planned. All map the graph, whose pages the system reads one by one as samples touch them.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from experiments.beyond.limited_training import (
    AHEAD,
    GRAPH,
    MAPPED,
    MEMORY,
    PACKED,
    UNLIMITED,
    LimitedConfig,
    save,
    touched_bytes,
    trained,
)
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

FROM_DISK = (MAPPED, AHEAD, PACKED)
CASE = ["graph", "rows_mib"]
TOUCHED = 1.1
"""Claimed of the graph's pages: bytes that the system reads over those that samples touch, at most."""


class Config(LimitedConfig):
    """One data set and one limit."""


def run(config: Config) -> Iterator[dict[str, Any]]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        data = config.dataset.load()
        graph, data_bytes = f"{config.dataset.name}, {data.graph.num_nodes:,} nodes", save(config, data, folder)
        del data
        losses: list[float] = []
        systems = (UNLIMITED, *([MEMORY] if config.limit_mib else []), *FROM_DISK, GRAPH)
        touched = touched_bytes(config, folder)
        for system in systems:
            row = trained(LimitedConfig(**dict(config)), folder, system)
            found = row.pop("losses", [])
            losses = losses or found
            same = [loss == other for loss, other in zip(found, losses, strict=False)]
            yield {
                "graph": graph,
                "system": system,
                "data_bytes": data_bytes,
                "same_losses": sum(same) / len(losses) if found else None,
                "touched_bytes": touched if system == GRAPH else None,
                **row,
            }


def _times(table: pd.DataFrame) -> Any:
    """Epochs that trained, by case and system, over one in memory without a limit."""
    rows: Any = table[table.system.isin((UNLIMITED, *FROM_DISK))]
    memory = rows[rows.system == UNLIMITED].set_index(CASE).epoch_seconds
    others = rows[rows.system != UNLIMITED].set_index(CASE)
    return others.assign(times=others.epoch_seconds / memory.reindex(others.index)).reset_index()


def _is_limited(table: pd.DataFrame) -> bool:
    """Whether the processes had a limit: a column of settings that are all null is left out of a table."""
    return "limit_mib" in table


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    times: Any = _times(table).set_index([*CASE, "system"]).times
    systems = times.index.get_level_values("system")
    ahead, mapped = times[systems == AHEAD], times[systems == MAPPED]
    text = "an epoch takes {ahead:.1f} times one in memory if rows are read ahead, {mapped:.1f} if mapped"
    if not _is_limited(table):
        return Title("From disk, " + text, ahead=ahead, mapped=mapped)
    limited: Any = table[table.system == MEMORY].set_index(CASE)
    share = limited.limit_mib * 2**20 / limited.data_bytes
    return Title("In {share:.0%} of the data's memory, " + text, share=share, ahead=ahead, mapped=mapped)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.bars import StageBar, stage_bars

    rows: Any = table[table.system.isin((UNLIMITED, *FROM_DISK)) & table.epoch_seconds.notna()]
    panels = rows.graph + ", " + rows.rows_mib.astype(str) + " MiB for rows"
    names = rows.system.replace(UNLIMITED, MEMORY).str.replace(" ", "<br>")  # four bars in a third of the width
    shown: Any = zip(panels, names, rows.epoch_seconds, strict=True)
    bars = [StageBar(graph, system, "", {"epoch": seconds}) for graph, system, seconds in shown]
    limited: Any = table[table.system.isin((MEMORY, *FROM_DISK))].groupby("system", sort=False).finished
    killed = [f"{name} in {int((1 - ends).sum())} of {len(ends)}" for name, ends in limited if (ends == 0).any()]
    subtitle = f"killed by the system under the limit: {', '.join(killed)}; in memory is shown without a limit"
    figure = stage_bars(
        bars, axis="an epoch's time", title=title(table, reported).text, subtitle=subtitle if killed else ""
    )
    return figure.update_layout(showlegend=False)  # of one stage


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    found: Any = table[table.system.isin(FROM_DISK)]
    graph: Any = table.assign(ratio=table.read_bytes / table.touched_bytes)
    times = _times(table)
    by = [*CASE, "system"]
    whole: dict[str, Any] = {"by": by, "form": ".3f"}
    same = "losses of all steps are those of training in memory, bit for bit"
    findings = [
        claims.within(
            "same-losses",
            same,
            found[found.finished == 1].fillna({"same_losses": 0}),
            value="same_losses",
            least=1,
            **whole,
        )
    ]
    if not _is_limited(table):
        return findings
    limited: Any = table[table.system.ne(UNLIMITED)]
    killed = "training in memory is killed"
    finishes = "from disk, it finishes"
    pages = f"for sampling alone, the system reads 1 to {TOUCHED:g} times the pages of the graph that samples touch"
    longer = "an epoch that is read ahead takes less time than one on mapped rows"
    ahead: Any = times[times.system == AHEAD].set_index(CASE).epoch_seconds
    mapped: Any = times[times.system == MAPPED].set_index(CASE)
    return [
        claims.within("killed", killed, limited[limited.system == MEMORY], value="finished", most=0, **whole),
        claims.within(
            "finishes", finishes, limited[limited.system.isin(FROM_DISK)], value="finished", least=1, **whole
        ),
        *findings,
        claims.within(
            "pages", pages, graph[graph.system == GRAPH], value="ratio", least=1, most=TOUCHED, by=CASE, form=".4f"
        ),
        claims.within(
            "ahead-is-faster",
            longer,
            mapped.assign(ratio=mapped.epoch_seconds / ahead.reindex(mapped.index)).reset_index(),
            value="ratio",
            least=claims.MORE,
            by=by,
            form=".2f",
            timed=True,
        ),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Memory that the process has allocated and bytes that the system has read per epoch, in MiB; seconds per epoch."""
    mib = {"read": table.read_bytes, "graph read": table.read_bytes - table.row_bytes, "touched": table.touched_bytes}
    sizes = {
        "limit": table.get("limit_mib"),
        "data": table.data_bytes / 2**20,
        "allocated": table.anonymous_bytes / 2**20,
    }
    return table[[*CASE, "system", "finished"]].assign(
        **sizes, **{name: value / 2**20 for name, value in mib.items()}, seconds=table.epoch_seconds
    )
