"""Neighbour sampling beside DGL's `NeighborSampler`: same graph, seeds and fanouts.

DGL's blocks name their edges; the library's do so if asked (`edge_ids=True`), which is not measured.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pandas as pd
from pydantic import Field, PositiveInt

import workbench as wb
from experiments.performance import speedup
from experiments.performance.graphs import GraphPoint
from experiments.performance.timing import beside_dgl, import_dgl
from workbench.core.graph import Graph
from workbench.core.randomness import permutation
from workbench.experiment.finding import Finding
from workbench.interop import graph_to_dgl

LARGE = "synthetic-products"
_TOLERANCE = 0.05


class Config(GraphPoint):
    """One batch size and one list of fanouts (input layer first) on one graph."""

    batch_size: PositiveInt
    fanouts: tuple[int, ...] = Field(min_length=1)


def run(config: Config) -> Iterator[dict[str, Any]]:
    """DGL gets int64 ids, its default, and the format that it samples from, built beforehand."""
    dgl = import_dgl()

    graph, _ = config.load()
    peer, seeds = _peer(graph), permutation(config.batch_size, graph.num_nodes)[: config.batch_size]
    ours, theirs = wb.NeighborSampler(config.fanouts), dgl.dataloading.NeighborSampler(list(config.fanouts))
    steps = iter(range(10**9))
    times = beside_dgl(
        lambda: ours.sample(graph, seeds, step=next(steps)),
        lambda: theirs.sample_blocks(peer, seeds),
        repeats=config.repeats,
    )
    batch, dgl_inputs = ours.sample(graph, seeds), len(theirs.sample_blocks(peer, seeds)[0])
    if abs(dgl_inputs / batch.num_inputs - 1) > _TOLERANCE:  # DGL 1.1.3 loses nodes of int32 graphs from call to call
        raise RuntimeError(
            f"DGL sampled {dgl_inputs} input nodes, this library {batch.num_inputs}, which is not within "
            f"{_TOLERANCE:.0%}: the times do not compare; use another version of DGL"
        )
    sizes = {"num_inputs": batch.num_inputs, "num_edges": batch.num_edges, "dgl_inputs": dgl_inputs}
    yield {"graph": config.graph, **sizes, **times}


@lru_cache(maxsize=1)
def _peer(graph: Graph) -> Any:
    return graph_to_dgl(graph).formats("csc")


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    rows = table.assign(seeds=table.batch_size.map("{:,} seeds".format), fanouts=table.fanouts.str.strip("[]"))
    return speedup.draw_ratios(rows, panel="graph", case=["fanouts"], group="seeds", title="Neighbour sampling")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    return speedup.faster(table, by=["graph", "batch_size", "fanouts"], least=1.5, median=2.5)


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Ratios over all smaller graphs together, and on the largest."""
    smaller, large = table.query("graph != @LARGE"), table.query("graph == @LARGE")
    graphs = ", ".join(dict.fromkeys(smaller.graph))
    return speedup.summary({f"neighbour sampling: {graphs}": smaller, f"neighbour sampling: {LARGE}": large})
