"""DENSE beside neighbour sampling, that of the library and DGL's: same graph, seeds and fanouts.

DGL's blocks name their edges; the library's do so if asked (`edge_ids=True`), which is not measured.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pandas as pd
from pydantic import PositiveInt

import workbench as wb
from experiments.performance import speedup
from experiments.performance.graphs import GraphPoint
from experiments.performance.timing import import_dgl, interleaved, limited_threads
from workbench.core.graph import Graph
from workbench.core.randomness import permutation
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.interop import graph_to_dgl

NS, DGL = "NeighborSampler", "DGL's NeighborSampler"
_TOLERANCE = 0.05
_BY = ["graph", "num_layers", "threads"]


class Config(GraphPoint):
    """One number of layers on one graph.

    Args:
        batch_size: seeds.
        fanout: neighbours per node and hop.
        num_layers: hops.
        threads: of both sides; None: all.
    """

    batch_size: PositiveInt = 1000
    fanout: PositiveInt = 10
    num_layers: PositiveInt
    threads: PositiveInt | None = None


def run(config: Config) -> Iterator[dict[str, Any]]:
    """DGL gets int64 ids, its default, and the format that it samples from, built beforehand."""
    dgl = import_dgl()

    graph, _ = config.load()
    peer, seeds = _peer(graph), permutation(config.batch_size, graph.num_nodes)[: config.batch_size]
    fanouts, steps = [config.fanout] * config.num_layers, iter(range(10**9))
    ours, plain, theirs = (
        wb.DenseSampler(fanouts),
        wb.NeighborSampler(fanouts),
        dgl.dataloading.NeighborSampler(fanouts),
    )
    calls = {
        NS: lambda: plain.sample(graph, seeds, step=next(steps)),
        DGL: lambda: theirs.sample_blocks(peer, seeds),
    }
    with limited_threads(config.threads):
        dense = ours.sample(graph, seeds)
        drawn = {"num_edges": dense.blocks[0].num_edges, "num_inputs": dense.num_inputs}
        for rival, call in calls.items():
            times = interleaved(lambda: ours.sample(graph, seeds, step=next(steps)), call, repeats=config.repeats)
            named = {name.replace("theirs", "rival"): value for name, value in times.items()}
            yield {"graph": config.graph, "rival": rival, **drawn, **_drawn_by(call()), **named}


def _drawn_by(batch: Any) -> dict[str, int]:
    """The edges that a rival draws, and the nodes that it reaches."""
    if isinstance(batch, wb.MiniBatch):
        return {"rival_edges": batch.num_edges, "rival_inputs": batch.num_inputs}
    inputs, _, blocks = batch
    return {"rival_edges": sum(block.num_edges() for block in blocks), "rival_inputs": len(inputs)}


@lru_cache(maxsize=1)
def _peer(graph: Graph) -> Any:
    return graph_to_dgl(graph).formats("csc")


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """The share of the ratio of edges that the gain is, and threads as text."""
    edges = table.rival_edges / table.num_edges
    threads = table.threads.map("{:.0f}".format, na_action="ignore").fillna("all")
    return table.assign(edge_ratio=edges, share=table.ratio_best / edges, threads=threads)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    rows = _named(table)
    rows = rows.assign(
        case=rows.num_layers.map("{} layers".format), limit=rows.threads + " threads", rival="÷ " + rows.rival
    )
    title, axis = "DENSE sampling", "rival's time ÷ DENSE's"
    return speedup.draw_ratios(rows, panel="graph", case=["case", "limit"], group="rival", title=title, axis=axis)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    rows: Any = _named(table)
    plain, dgl = rows[rows.rival == NS], rows[rows.rival == DGL]
    fewer = "the more layers, the more edges neighbour sampling draws per edge of DENSE"
    share = "the gain over neighbour sampling is at least 0.85 of the ratio of edges drawn"
    same = "DGL's sampler reaches as many nodes as the library's, so their times compare"
    found = [
        claims.monotone(
            "fewer-edges", fewer, plain, value="edge_ratio", along="num_layers", by=["graph", "threads"], tolerance=0.01
        ),
        claims.within("gain-follows-edges", share, plain, value="share", by=_BY, least=0.85, form=".2f", timed=True),
        claims.within("same-nodes", same, _reached(rows), value="apart", by=_BY, most=_TOLERANCE),
    ]
    for layers, least in ((4, 4.0), (5, 6.0)):
        statement = f"with {layers} layers DGL takes at least {least:g} times as long at the median of the graphs"
        middle = dgl[dgl.num_layers == layers].groupby("threads", as_index=False).ratio_best.median(skipna=False)
        if len(middle):
            bound = {"value": "ratio_best", "by": ["threads"], "least": least, "form": ".2f", "timed": True}
            found.append(claims.within(f"faster-than-dgl-{layers}", statement, middle, **bound))
    return found


def _reached(rows: Any) -> pd.DataFrame:
    """By how much the nodes that the two neighbour samplers reach differ, relatively."""
    wide = rows.pivot_table("rival_inputs", _BY, "rival")
    return (wide[DGL] / wide[NS] - 1).abs().reset_index(name="apart")


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Ratios of all cases together, then by rival and number of layers, with the ratio of edges drawn."""
    rows: Any = _named(table)
    groups = {"DENSE beside neighbour sampling": rows}
    for (rival, layers), part in rows.groupby(["rival", "num_layers"]):
        groups[f"DENSE beside {rival}, {layers} layers"] = part
    return speedup.summary(groups).assign(edge_ratio=[part.edge_ratio.median() for part in groups.values()])
