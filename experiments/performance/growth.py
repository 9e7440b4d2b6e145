"""Seconds of every stage over the size of its work, from 10⁵ to 10⁸ edges: does a cost grow as the work?

The work of a stage is counted, not assumed: edges that were sampled, edges of the batch that is split or planned, edges
of the graph, bytes of the store. The exponent is the slope of log seconds over log work. A stage that touches each edge
once still has an exponent above 1 where its rows leave the caches, so each has two: over all sizes, and over those
whose graph exceeds the caches.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from pydantic import Field, PositiveInt
from torch import Tensor

import workbench as wb
from experiments.performance.graphs import GraphPoint
from workbench.core.graph import Graph
from workbench.core.randomness import permutation
from workbench.experiment import claims
from workbench.experiment.finding import Finding

METIS = ("REG by METIS", "graph by METIS")
MOST = 1.05
"""Largest exponent that is claimed, except of METIS."""

CACHED_EDGES = 500_000
"""Of smaller graphs, indices and rows fit into the caches of a processor."""


class Config(GraphPoint):
    """One graph.

    Args:
        fanouts: of the batch, input layer first.
        seed_share: share of the nodes that are seeds of the batch.
        num_parts: of a batch, of a graph, and of a store.
        width: float32 values of a row in the store.
        with_metis: also time METIS, on the batch's REG and on the graph.
    """

    fanouts: tuple[int, ...]
    seed_share: float = Field(gt=0, le=1)
    num_parts: PositiveInt
    width: PositiveInt
    with_metis: bool = True


class Stage(NamedTuple):
    """What is timed, and its work."""

    call: Callable[[], Any]
    work: int
    unit: str


def run(config: Config) -> Iterator[dict[str, Any]]:
    graph, _ = config.load()
    with TemporaryDirectory() as folder:
        for name, stage in _stages(config, graph, Path(folder)):
            times = [_seconds(stage.call) for _ in range(config.repeats + 1)][1:]  # the first compiles and allocates
            spread = {"low_seconds": min(times), "seconds": statistics.median(times), "high_seconds": max(times)}
            sizes = {"nodes": graph.num_nodes, "edges": graph.num_edges, "work": stage.work, "unit": stage.unit}
            yield {"graph": config.graph, "stage": name, **sizes, **spread}


def _stages(config: Config, graph: Graph, folder: Path) -> Iterator[tuple[str, Stage]]:
    """In turn, so that what some need is freed before the next."""
    yield from _building(config, graph)
    yield from _sampling(config, graph)
    yield from _dividing(config, graph)
    yield from _placing(config, graph)
    yield from _storing(config, graph, folder)


def _building(config: Config, graph: Graph) -> Iterator[tuple[str, Stage]]:
    """A graph of the same edges in random order."""
    order = permutation(config.seed, graph.num_edges)
    dst = torch.repeat_interleave(graph.indptr.diff())[order]
    build = partial(Graph.from_edges, graph.indices[order], dst, num_nodes=graph.num_nodes)
    yield "graph of an edge list", Stage(build, graph.num_edges, "edges of the graph")


def _seeds(config: Config, graph: Graph) -> Tensor:
    return permutation(config.seed, graph.num_nodes)[: max(1, round(config.seed_share * graph.num_nodes))]


def _sampling(config: Config, graph: Graph) -> Iterator[tuple[str, Stage]]:
    seeds = _seeds(config, graph)
    kinds = {"neighbour sampling": wb.NeighborSampler, "LABOR sampling": wb.LaborSampler}
    for name, sampler in ((name, kind(config.fanouts, seed=config.seed)) for name, kind in kinds.items()):
        edges = sampler.sample(graph, seeds).num_edges
        yield name, Stage(partial(sampler.sample, graph, seeds), edges, "sampled edges")


def _dividing(config: Config, graph: Graph) -> Iterator[tuple[str, Stage]]:
    """A batch into parts, and the graph by METIS."""
    batch = wb.NeighborSampler(config.fanouts, seed=config.seed).sample(graph, _seeds(config, graph))
    k, of_batch = config.num_parts, (batch.num_edges, "edges of the batch")
    part = wb.partition_batch(batch, k, method="random")
    width, layers = config.width, len(config.fanouts)
    model = wb.build_model("sage-mean", in_dim=width, hidden_dim=width, out_dim=8, num_layers=layers)
    memory = wb.estimate_memory(model, batch).peak_bytes // 2
    yield "splitting", Stage(lambda: batch.split(part), *of_batch)
    yield "partitioning a batch", Stage(lambda: wb.partition_batch(batch, k), *of_batch)
    yield "planning micro-batches", Stage(lambda: wb.plan_micro_batches(model, batch, memory=memory), *of_batch)
    if config.with_metis:
        yield METIS[0], Stage(lambda: wb.partition_batch(batch, k, method="reg"), *of_batch)
        yield METIS[1], Stage(lambda: wb.partition_graph(graph, k), graph.num_edges, "edges of the graph")


def _placing(config: Config, graph: Graph) -> Iterator[tuple[str, Stage]]:
    seeds = _seeds(config, graph)
    of_graph = graph.num_edges, "edges of the graph"
    batch_size = max(1, len(seeds) // 64)
    given: dict[str, Any] = {"fanouts": config.fanouts, "batch_size": batch_size, "seed": config.seed}
    inclusion = partial(wb.placement.inclusion_probability, graph, seeds, **given)
    yield "access probabilities", Stage(inclusion, *of_graph)
    yield "sketched probabilities", Stage(partial(inclusion, method="sketched"), *of_graph)
    p = inclusion()
    devices: dict[str, Any] = {"num_devices": 4, "rows_per_device": max(1, graph.num_nodes // 10), "peer_cost": 0.3}
    yield "placement", Stage(lambda: wb.placement.place_rows(p, **devices), graph.num_nodes, "rows")


def _storing(config: Config, graph: Graph, folder: Path) -> Iterator[tuple[str, Stage]]:
    rows = np.zeros((graph.num_nodes, config.width), np.float32)
    nbytes = rows.nbytes + 2 * graph.indices.element_size() * graph.num_edges
    given: dict[str, Any] = {"rows": rows, "num_partitions": config.num_parts, "overwrite": True}
    build = partial(wb.outofcore.PartitionStore.build, folder / "store", graph, **given)
    yield "building a store", Stage(build, nbytes, "bytes")


def _seconds(call: Callable[[], Any]) -> float:
    gc.collect()
    start = time.perf_counter()
    result = call()
    elapsed = time.perf_counter() - start
    del result  # only now: freeing the result is not part of the call
    return elapsed


def exponents(table: pd.DataFrame) -> pd.DataFrame:
    """Per stage: exponents over all sizes and over those beyond the caches, and nanoseconds per unit of work."""
    rows = []
    for stage, of in table.groupby("stage", sort=False):
        ordered: Any = of.sort_values(by="work")
        beyond: Any = ordered[ordered.edges > CACHED_EDGES]
        each = 1e9 * ordered.seconds / ordered.work
        ends = {"ns_smallest": each.iloc[0], "ns_largest": each.iloc[-1]}
        slopes = {"exponent": _slope(ordered), "beyond_caches": _slope(beyond)}
        work = {"from": ordered.work.iloc[0], "to": ordered.work.iloc[-1]}
        rows.append({"stage": stage, "work": ordered.unit.iloc[0], **work, **slopes, **ends})
    return pd.DataFrame(rows)


def _slope(rows: pd.DataFrame) -> float:
    if len(rows) < 2:
        return float("nan")
    return float(np.polyfit(np.log(rows.work.to_numpy(float)), np.log(rows.seconds.to_numpy(float)), 1)[0])


PANELS = {
    "building and sampling": ("graph of an edge list", "building a store", "neighbour sampling", "LABOR sampling"),
    "a batch": ("planning micro-batches", "partitioning a batch", "splitting", METIS[0]),
    "placing": ("access probabilities", "sketched probabilities", "placement", METIS[1]),
}


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    """Nanoseconds per unit of work over the edges of the graph: a cost that grows as its work is a level line."""
    from plotly.subplots import make_subplots

    from workbench.plots.style import looks, titled

    legends: dict[str, Any] = {}
    figure: Any = make_subplots(1, len(PANELS), subplot_titles=[*PANELS], shared_yaxes=True, horizontal_spacing=0.02)
    for col, stages in enumerate(PANELS.values(), 1):
        number = str(col) if col > 1 else ""
        for name, look in looks(dict.fromkeys(stages)).items():
            rows: Any = table[table.stage == name]
            rows = rows.sort_values("edges")
            figure.add_scatter(
                x=rows.edges.tolist(),
                y=(1e9 * rows.seconds / rows.work).tolist(),
                name=look.name,
                mode="lines+markers",
                marker={"symbol": look.symbol, "size": 8, "color": look.color},
                line={"color": look.color},
                legend=f"legend{number}",
                row=1,
                col=col,
            )
        figure.update_xaxes(type="log", dtick=1, title_text="edges of the graph", row=1, col=col)
        left, _ = figure.layout[f"xaxis{number}"].domain
        legends[f"legend{number}"] = {"x": left, "y": -0.18, "yref": "paper", "yanchor": "top", "orientation": "v"}
    figure.update_yaxes(type="log", dtick=1)
    figure.update_yaxes(title_text="ns per unit of work", row=1, col=1)
    titled(figure, "Seconds over the size of the work", subtitle="level lines grow as their work", height=520)
    return figure.update_layout(legends).update_layout(margin_b=150)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    found: Any = exponents(table)
    own = found[~found.stage.isin(METIS)]
    limits: dict[str, Any] = {"by": ["stage"], "most": MOST, "form": ".2f", "timed": True}
    told = f"beyond the caches, seconds grow at most as the work to the power of {MOST:g}, METIS' aside"
    return [claims.within("grows-as-the-work", told, own, value="beyond_caches", **limits)]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Exponents and nanoseconds per unit of work of all stages."""
    return exponents(table)
