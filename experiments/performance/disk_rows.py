"""Rows of a file by direct reads (`DiskRows`) beside a memory-mapped one (`MappedRows`), both with a cold page cache.

Before each call the file is dropped from the page cache, and the system's own count of bytes read by this process
(`/proc/self/io`) tells whether they came from the disk. A page fault of a mapped file waits for one read at a time, and
reads ahead what is never used: 8 MiB or 128 KiB around it, by the setting `read_ahead_kb` of the device, until a
hundred faults were not preceded by a hit. Neither side sees the cache of a disk or of a virtual machine's host.
"""

import os
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import pandas as pd
import torch
from pydantic import Field, PositiveInt
from torch import Tensor

import workbench as wb
from experiments.performance import speedup
from experiments.performance.graphs import GraphPoint
from experiments.performance.timing import summarized
from workbench.core.graph import Graph
from workbench.core.randomness import permutation
from workbench.experiment import claims
from workbench.experiment.finding import Finding

_PIECE_BYTES = 1 << 26
_MANY_THREADS = 16


class Config(GraphPoint):
    """One file, with a row per node of a graph, and one set of ids.

    Args:
        width: float32 values per row.
        ids: "batch": the input nodes of a batch, in its order; "uniform": as many nodes drawn uniformly.
        batch_size: seeds of the batch.
        fanouts: of the batch, input layer first.
        threads: of `DiskRows`, one row of the table for each.
        direct: past the page cache or through it, likewise.
    """

    width: PositiveInt
    ids: Literal["batch", "uniform"]
    batch_size: PositiveInt
    fanouts: tuple[int, ...]
    threads: tuple[PositiveInt, ...] = Field(min_length=1)
    direct: tuple[bool, ...] = (True, False)


class Read(NamedTuple):
    """Seconds of a call with a cold cache, and the bytes that it read from the disk."""

    seconds: float
    nbytes: int


def run(config: Config) -> Iterator[dict[str, Any]]:
    graph, _ = config.load()
    ids = _ids(config, graph)
    with TemporaryDirectory() as name:
        folder = Path(name) / "rows"
        wb.MappedRows.create(folder, _rows(graph.num_nodes, config.width, config.seed))
        expected = wb.MappedRows(folder).read(ids)
        for direct, threads in product(config.direct, config.threads):

            def disk(direct: bool = direct, threads: int = threads) -> wb.DiskRows:
                return wb.DiskRows(folder, direct="auto" if direct else False, threads=threads)

            size = {"graph": config.graph, "num_rows": len(ids), "file_bytes": (folder / "rows.bin").stat().st_size}
            how = {"direct_reads": disk().direct, "num_threads": threads}
            yield size | how | _beside(disk, lambda: wb.MappedRows(folder), folder, ids, expected, config.repeats)


def _ids(config: Config, graph: Graph) -> Tensor:
    """Ids of the rows to read, int64 [n], each once."""
    seeds = permutation(config.batch_size, graph.num_nodes)[: config.batch_size]
    batch = wb.NeighborSampler(config.fanouts, seed=config.seed).sample(graph, seeds)
    if config.ids == "batch":
        return batch.node_ids
    return permutation(config.seed, graph.num_nodes)[: batch.num_inputs]


def _rows(count: int, width: int, seed: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    for piece in torch.arange(count).split(max(1, _PIECE_BYTES // (4 * width))):
        yield torch.rand(len(piece), width, generator=generator)


def _beside(
    disk: Callable[[], wb.FeatureStore],
    mapped: Callable[[], wb.FeatureStore],
    folder: Path,
    ids: Tensor,
    expected: Tensor,
    repeats: int,
) -> dict[str, Any]:
    """Read the same rows by both stores in turn, the order alternating from round to round."""
    rounds: list[tuple[Read, Read]] = []
    for turn in range(repeats):
        second = _cold_read(mapped(), folder, ids, expected) if turn % 2 else None
        first = _cold_read(disk(), folder, ids, expected)
        rounds.append((first, second or _cold_read(mapped(), folder, ids, expected)))
    times = summarized([(ours.seconds, theirs.seconds) for ours, theirs in rounds])
    ours, theirs = (sorted(side.nbytes for side in sides)[len(rounds) // 2] for sides in zip(*rounds, strict=True))
    return {
        "cold": min(side.nbytes for pair in rounds for side in pair) >= expected.nbytes,
        **{name.replace("theirs", "mapped").replace("ours", "disk"): value for name, value in times.items()},
        "disk_rows_per_second": len(ids) / times["ours_seconds"],
        "mapped_rows_per_second": len(ids) / times["theirs_seconds"],
        "disk_read_bytes": ours,
        "mapped_read_bytes": theirs,
        "disk_amplification": ours / expected.nbytes,
        "mapped_amplification": theirs / expected.nbytes,
    }


def _cold_read(store: wb.FeatureStore, folder: Path, ids: Tensor, expected: Tensor) -> Read:
    """Read rows after the file was dropped from the page cache."""
    out = torch.zeros_like(expected)  # its pages are allocated before the clock starts
    _drop_from_cache(folder / "rows.bin")
    before, start = _bytes_from_disk(), time.perf_counter()
    store.read(ids, out=out)
    read = Read(time.perf_counter() - start, _bytes_from_disk() - before)
    if not torch.equal(out, expected):
        raise RuntimeError(f"{store!r} returned other rows; this benchmark compares nothing")
    return read


def _drop_from_cache(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _bytes_from_disk() -> int:
    """Bytes that this process has caused to be read from storage, by the system's count."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["read_bytes"])


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    how = table.direct_reads.map({True: "direct", False: "buffered"})
    rows = table.assign(
        case=table.width.map("{} floats, ".format) + table.num_threads.map("{} threads".format), how=how
    )
    figure = speedup.draw_ratios(rows, panel="ids", case=["case"], group="how", title="Random rows from disk")
    return figure.update_yaxes(title_text="MappedRows' time ÷ DiskRows'")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    by = ["graph", "width", "ids", "num_threads"]
    if not table.direct_reads.any():
        raise ValueError(
            "no row is about direct reads: the file system of temporary folders does not support O_DIRECT; set TMPDIR "
            "to a folder of one that does"
        )
    direct = table.query("direct_reads").assign(
        cold=lambda rows: rows.cold.astype(float), more=lambda rows: rows.disk_amplification / rows.mapped_amplification
    )
    fewer = "direct reads take no more bytes from the disk than page faults"
    faster = f"with {_MANY_THREADS} threads, direct reads are at least as fast as page faults"
    cold = "all rows came from the disk, none from the page cache"
    many = direct.query("num_threads >= @_MANY_THREADS")
    return [
        claims.within("cold-caches", cold, direct, value="cold", by=by, least=1),
        claims.within("fewer-bytes", fewer, direct, value="more", by=by, most=1, form=".3f"),
        claims.within("faster", faster, many, value="ratio_median", by=by, least=1, form=".2f", timed=True),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Ratios by number of threads and kind of reads, with the medians of both sides' amplification."""
    groups: dict[str, Any] = {"rows from disk": table}
    for (direct, threads), rows in table.groupby(["direct_reads", "num_threads"], sort=False):  # pyright: ignore[reportGeneralTypeIssues]
        groups[f"rows from disk: {threads} threads, {'direct' if direct else 'buffered'}"] = rows
    columns = [
        {c: rows[c].median() for c in ("disk_amplification", "mapped_amplification")} for rows in groups.values()
    ]
    return speedup.summary(groups).join(pd.DataFrame(columns))
