"""LABOR sampling beside DGL's `LaborSampler`: same graph, seeds, fanouts and importance.

DGL's blocks name their edges; the library's do so if asked (`edge_ids=True`), which is not measured.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

import pandas as pd
from pydantic import Field, PositiveInt

import workbench as wb
from experiments.performance import speedup
from experiments.performance.graphs import GraphPoint
from experiments.performance.timing import beside_dgl, import_dgl, limited_threads
from workbench.core.graph import Graph
from workbench.core.randomness import permutation
from workbench.experiment.finding import Finding
from workbench.interop import graph_to_dgl

_TOLERANCE = 0.15  # of the input nodes: they vary from batch to batch, because destinations share variates
_BY = ["graph", "batch_size", "fanouts", "importance", "threads"]


class Config(GraphPoint):
    """One batch size, one list of fanouts (input layer first) and one kind of importance on one graph."""

    batch_size: PositiveInt
    fanouts: tuple[int, ...] = Field(min_length=1)
    importance: int | Literal["*"] = 0
    threads: PositiveInt | None = None


def run(config: Config) -> Iterator[dict[str, Any]]:
    """DGL gets int64 ids, its default, and the format that it samples from, built beforehand."""
    dgl = import_dgl()

    graph, _ = config.load()
    peer, seeds = _peer(graph), permutation(config.batch_size, graph.num_nodes)[: config.batch_size]
    rounds = -1 if config.importance == "*" else config.importance
    ours = wb.LaborSampler(config.fanouts, importance=config.importance)
    theirs = dgl.dataloading.LaborSampler(list(config.fanouts), importance_sampling=rounds)
    steps = iter(range(10**9))
    with limited_threads(config.threads):
        times = beside_dgl(
            lambda: ours.sample(graph, seeds, step=next(steps)),
            lambda: theirs.sample_blocks(peer, seeds),
            repeats=config.repeats,
        )
        batch, dgl_inputs = ours.sample(graph, seeds), len(theirs.sample_blocks(peer, seeds)[0])
    if abs(dgl_inputs / batch.num_inputs - 1) > _TOLERANCE:
        raise RuntimeError(
            f"DGL sampled {dgl_inputs} input nodes, this library {batch.num_inputs}, which is not within "
            f"{_TOLERANCE:.0%}: the times do not compare; use another version of DGL"
        )
    sizes = {"num_inputs": batch.num_inputs, "num_edges": batch.num_edges, "dgl_inputs": dgl_inputs}
    yield {"graph": config.graph, **sizes, **times}


@lru_cache(maxsize=1)
def _peer(graph: Graph) -> Any:
    return graph_to_dgl(graph).formats("csc")


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """Columns as text, with missing threads as those of the machine."""
    threads = table.threads.map("{:.0f}".format, na_action="ignore").fillna("all")
    return table.assign(importance=table.importance.astype(str), threads=threads)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    rows = _named(table)
    rows = rows.assign(
        sampler="LABOR-" + rows.importance,
        case=rows.batch_size.map("{:,} seeds".format) + ", " + rows.fanouts.str.strip("[]"),
        limit=rows.threads + " threads",
    )
    return speedup.draw_ratios(rows, panel="graph", case=["case", "limit"], group="sampler", title="LABOR sampling")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows = _named(table)
    single = rows[rows.threads == "1"]
    shared, important = (rows[(rows.threads != "1") & ((rows.importance == "0") == zero)] for zero in (True, False))
    bounds = [("labor-0", shared, 3.0, 5.0), ("importance", important, 2.0, 4.0), ("one-thread", single, 2.5, 2.5)]
    return [finding for name, part, least, median in bounds for finding in _faster(name, part, least, median)]


def _faster(name: str, rows: Any, least: float, median: float) -> list[Finding]:
    findings = speedup.faster(rows, by=_BY, least=least, median=median) if len(rows) else []
    return [replace(finding, name=f"{name}-{finding.name}") for finding in findings]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Ratios of all cases together; of LABOR-0 and of importance sampling, on all threads and on one."""
    rows = _named(table)
    groups: dict[str, Any] = {"LABOR sampling": rows}
    for name, zero in (("LABOR-0", True), ("LABOR-i and LABOR-*", False)):
        for threads, one in (("all threads", False), ("one thread", True)):
            groups[f"{name}, {threads}"] = rows[((rows.importance == "0") == zero) & ((rows.threads == "1") == one)]
    return speedup.summary(groups)
