"""Features from disk in a part of the memory: MariusGNN's buffer, caches, planned reads, and DGL with np.memmap.

All systems but the buffer and DGL train on the samples of training in memory. Memory is that for rows; the graph is in
memory, but for the buffer, which has its edges on disk too. The page cache that np.memmap uses is not limited.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pandas as pd
from pydantic import PositiveInt

import workbench as wb
from experiments.beyond.reading_systems import (
    BELADY,
    BUFFER,
    LRU,
    MAPPED,
    MEMORY,
    PACKED,
    SYSTEMS,
    ReadingConfig,
    WithBelady,
    WithPacked,
)
from experiments.mariusgnn.node_classification import accuracy
from experiments.mariusgnn.training_systems import DGL, why_not
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title

CASE = ["dataset", "num_partitions", "capacity"]
EXACT = (LRU, BELADY, PACKED)
"""Systems that train on the samples of training in memory."""

DISKS = {"1gb": wb.outofcore.DiskModel(1e9, 100_000), "7gb": wb.outofcore.DiskModel(7e9, 1_000_000)}
"""Disks of 1 and 7 GB/s, and their random reads per second."""

WRITE_BYTES = 256 << 10

PAGES = 1.1
"""Claimed of packed rows: bytes read over those of the rows, at most."""


class Config(ReadingConfig):
    """Training with several systems, one after the other.

    Args:
        systems: how features are read; DGL is left out where it is not installed.
        test_nodes: test nodes, the same for all systems, whose neighbours are sampled from the whole graph.
    """

    systems: tuple[Literal["in memory", "buffer", "LRU", "Belady", "packed", "DGL, np.memmap"], ...] = (
        "in memory",
        "buffer",
        "LRU",
        "Belady",
        "packed",
        "DGL, np.memmap",
    )
    test_nodes: PositiveInt


def run(config: Config) -> Iterator[dict[str, Any]]:
    data = config.dataset.load()
    memory: list[float] = []
    with TemporaryDirectory() as name:
        folder = Path(name) / "rows"
        wb.MappedRows.create(folder, data.x)
        for system in config.systems:
            if system == MAPPED and why_not(DGL, "cpu"):
                continue
            losses, row = measured(config, data, system, folder)
            memory = losses if system == MEMORY else memory
            same = [loss == other for loss, other in zip(losses, memory, strict=False)]
            yield {"system": system, "same_losses": sum(same) / len(losses), **row}


def measured(config: Config, data: Any, name: str, folder: Path) -> tuple[list[float], dict[str, Any]]:
    """Train all epochs with one system; return the losses of all steps, and bytes and reads per epoch."""
    system: Any = SYSTEMS[name](config, data, folder)
    before = _bytes_from_disk()
    losses = [float(loss) for epoch in range(config.epochs) for loss in system.epoch(epoch)]
    from_disk = _bytes_from_disk() - before
    if isinstance(system, WithBelady):
        system.finish()
    row: dict[str, Any] = {
        "loss": losses[-1],
        "accuracy": accuracy(config, data, system, config.test_nodes),
        "kernel_read_bytes": from_disk / config.epochs,
        "feature_bytes": data.x.nbytes,
    }
    if hasattr(system, "reads"):
        reads = system.reads
        row |= {
            "rows_read": reads.rows / config.epochs,
            "read_bytes": reads.read_bytes / config.epochs,
            "written_bytes": reads.written_bytes / config.epochs,
            "num_reads": reads.num_reads / config.epochs,
            "peak_share": system.peak_rows / len(data.x),
        }
        row |= {f"modelled_{disk}_seconds": _seconds(model, row) for disk, model in DISKS.items()}
    if name in (BUFFER, BELADY):
        row["predicted_read_bytes"] = system.predicted.read_bytes / config.epochs
    if isinstance(system, WithPacked):
        row["packed_ratio"] = system.packed_ratio
    return losses, row


def _seconds(disk: wb.outofcore.DiskModel, row: dict[str, Any]) -> float:
    """Modelled seconds of a disk for an epoch's reads and writes."""
    writes = row["written_bytes"] / WRITE_BYTES
    return disk.seconds(row["read_bytes"] + row["written_bytes"], row["num_reads"] + writes)


def _bytes_from_disk() -> int:
    """Bytes that this process has caused to be read from storage, by the system's count."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["read_bytes"])


def _shares(table: Any) -> Any:
    """Rows with the share of all rows that is in memory, and what is read and written in units of all features."""
    moved = table.read_bytes + table.written_bytes
    mapped = table.system.eq(MAPPED)
    return table.assign(
        memory=table.capacity / table.num_partitions,
        moved=moved.mask(mapped, table.kernel_read_bytes) / table.feature_bytes,
    )


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    lost: Any = 100 * _lost(table).set_index([*CASE, "system"]).lost
    systems = lost.index.get_level_values("system")
    text = "Points of accuracy lost: {exact:.1f} with samples first, {buffer:.1f} with MariusGNN's buffer"
    return Title(text, exact=lost[systems.isin(EXACT)], buffer=lost[systems == BUFFER])


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    rows: Any = _shares(table[table.system != MEMORY])
    figure = lines(
        rows.assign(system=rows.system.replace(MAPPED, f"{MAPPED}, memory not limited")),
        x="memory",
        y="moved",
        group="system",
        facet="dataset",
        log_x=True,
        title=title(table, reported).text,
    )
    figure.update_xaxes(title_text="share of the rows in memory")
    return figure.update_yaxes(title_text="bytes per epoch ÷ features", rangemode="tozero")


def _lost(table: Any) -> Any:
    """Accuracy lost against training in memory, by case and system."""
    memory = table[table.system == MEMORY].set_index(CASE).accuracy
    others: Any = table[table.system != MEMORY].set_index(CASE)
    return others.assign(lost=memory.reindex(others.index) - others.accuracy).reset_index()


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows: Any = _shares(table)
    lost: Any = _lost(table)
    exact: Any = rows[rows.system.isin(EXACT)]
    counted: Any = rows[rows.system.isin((BUFFER, BELADY))]
    by = [*CASE, "system"]
    ratio = {
        "to_lru": claims.method_ratios(rows, value="rows_read", among="system", between=(BELADY, LRU), by=CASE),
        "to_buffer": claims.method_ratios(rows, value="moved", among="system", between=(BELADY, BUFFER), by=CASE),
    }
    ratios = pd.DataFrame(ratio).reset_index()
    quarter: Any = ratios[ratios.capacity * 4 == ratios.num_partitions]
    form: dict[str, Any] = {"form": ".3f"}
    same = "losses of all steps are those of training in memory, bit for bit"
    kept = "final accuracy is that of training in memory"
    fewer = "Belady's rule reads at most as many rows as LRU"
    half = "in a quarter of the memory it moves at most half the bytes of MariusGNN's buffer"
    pages = f"packed rows are read with at most {PAGES:g} times their bytes, page overhead included"
    return [
        claims.within("same-losses", same, exact, value="same_losses", by=by, least=1, **form),
        claims.within(
            "same-accuracy", kept, lost[lost.system.isin(EXACT)], value="lost", by=by, least=0, most=0, **form
        ),
        claims.within(
            "predicted",
            "bytes read are those predicted",
            counted.assign(ratio=counted.read_bytes / counted.predicted_read_bytes),
            value="ratio",
            by=by,
            least=1,
            most=1,
            **form,
        ),
        claims.within(
            "in-memory-given",
            "rows in memory are within the share given",
            _over(exact),
            value="over",
            by=by,
            most=1,
            **form,
        ),
        claims.within("fewer-than-lru", fewer, ratios, value="to_lru", by=CASE, most=claims.LESS, **form),
        claims.within("half-of-the-buffer", half, quarter, value="to_buffer", by=CASE, most=0.5, **form),
        claims.within(
            "few-pages", pages, rows[rows.system == PACKED], value="packed_ratio", by=CASE, most=PAGES, **form
        ),
    ]


def _over(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(over=rows.peak_share / rows.memory)


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Accuracy in percent; bytes moved per epoch, and those that the system counts as read, in units of all features;
    seconds of a disk per epoch, modelled.
    """
    rows = _shares(table)
    columns = ["dataset", "memory", "system", "accuracy", "same_losses", "moved", "kernel", "num_reads"]
    kernel = rows.kernel_read_bytes / rows.feature_bytes
    modelled = {f"modelled_{disk}_seconds": f"modelled at {disk[0]} GB/s seconds" for disk in DISKS}
    here: Any = rows.assign(accuracy=100 * rows.accuracy, kernel=kernel)[[*columns, *modelled]].rename(columns=modelled)
    return here.sort_values(["dataset", "memory"], kind="stable").reset_index(drop=True)
