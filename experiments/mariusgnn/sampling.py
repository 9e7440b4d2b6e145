"""MariusGNN, the sampling table: time, nodes and edges of a batch by number of layers, DENSE and neighbour sampling."""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pandas as pd
import torch
from pydantic import PositiveInt
from torch import Tensor

import workbench as wb
from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, permutation, stream
from workbench.experiment import claims
from workbench.experiment.config import DataPointConfig
from workbench.experiment.finding import Finding
from workbench.experiment.title import Title
from workbench.interop import graph_to_dgl

DENSE, NS, DGL = "DENSE", "NeighborSampler", "DGL"
BY = ["dataset", "num_layers"]
_SETTLE_SECONDS = 0.02  # OpenMP threads of the sampler before spin for some milliseconds: wait until they sleep


class Config(DataPointConfig):
    """Batches of one number of layers on a directed graph.

    Args:
        batch_size: training nodes.
        fanout: in-neighbours per node and hop, and as many out-neighbours. The other samplers draw twice as many from
            the multigraph with reverse edges, as in the paper.
        num_layers: hops.
        rounds: batches, each drawn by every sampler in turn.
    """

    batch_size: PositiveInt
    fanout: PositiveInt
    num_layers: PositiveInt
    rounds: PositiveInt = 7


def run(config: Config) -> Iterator[dict[str, Any]]:
    graph, train, both, peer = _graphs(config.dataset)  # pyright: ignore[reportArgumentType]  # frozen, so hashable
    calls = _samplers(config, graph, both, peer)
    found: dict[str, list[tuple[float, int, int, int]]] = {name: [] for name in calls}
    for number in range(-1, config.rounds):
        order = permutation(stream(config.seed, Purpose.SHUFFLE, number), len(train))
        seeds = train[order[: config.batch_size]]
        for name, call in calls.items():
            time.sleep(_SETTLE_SECONDS)
            start = time.perf_counter()
            batch = call(seeds, number)
            seconds = time.perf_counter() - start
            if number >= 0:  # the first batch warms up
                found[name].append((seconds, *_sizes(batch)))
    for name, batches in found.items():
        seconds, inputs, edges, new = ([batch[i] for batch in batches] for i in range(4))
        yield {
            "sampler": name,
            "sample_seconds": statistics.median(seconds),
            "fastest_seconds": min(seconds),
            "num_inputs": statistics.mean(inputs),
            "num_edges": statistics.mean(edges),
            "new_nodes": statistics.mean(new),
            "reached_share": statistics.mean(inputs) / graph.num_nodes,
        }


def _samplers(config: Config, graph: Graph, both: Graph, peer: Any) -> dict[str, Callable[[Tensor, int], Any]]:
    fanouts, doubled = [config.fanout] * config.num_layers, [2 * config.fanout] * config.num_layers
    dense = wb.DenseSampler(fanouts, out_fanouts=fanouts, seed=config.seed)
    plain = wb.NeighborSampler(doubled, seed=config.seed)
    ours: dict[str, Callable[[Tensor, int], Any]] = {
        DENSE: lambda seeds, step: dense.sample(graph, seeds, step=step),
        NS: lambda seeds, step: plain.sample(both, seeds, step=step),
    }
    if peer is None:
        return ours
    theirs = import_module("dgl.dataloading").NeighborSampler(doubled)
    return {**ours, DGL: lambda seeds, step: theirs.sample_blocks(peer, seeds)[2]}


@lru_cache(maxsize=1)
def _graphs(dataset: Any) -> tuple[Graph, Tensor, Graph, Any]:
    """The graph, its training nodes, the multigraph with reverse edges, and that as DGL's, if DGL is installed."""
    data = dataset.load()
    graph = data.graph
    destinations = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.in_degrees())
    both = wb.Graph.from_edges(graph.indices, destinations.int(), num_nodes=graph.num_nodes, undirected="multi")
    peer = graph_to_dgl(both).formats("csc") if find_spec("dgl") else None
    return graph, data.train_idx, both, peer


def _sizes(batch: Any) -> tuple[int, int, int]:
    """Nodes, sampled edges, and nodes that the last hop reaches first; DENSE samples a row once for all layers."""
    if isinstance(batch, wb.MiniBatch):
        first = batch.blocks[0]
        shared = all(block.indices.data_ptr() == first.indices.data_ptr() for block in batch.blocks)
        edges = first.num_edges if shared else batch.num_edges
        return batch.num_inputs, edges, batch.num_inputs - first.num_dst
    inputs, first = batch[0].num_src_nodes(), batch[0]
    return inputs, sum(block.num_edges() for block in batch), inputs - first.num_dst_nodes()


def title(table: pd.DataFrame, reported: pd.DataFrame) -> Title:
    deepest: Any = table[table.num_layers == table.num_layers.max()]
    ratio = _ratios(deepest, "num_edges", NS).set_index(BY).ratio
    return Title(
        "{layers} layers: NeighborSampler draws {ratio:.1f} times DENSE's edges",
        layers=table.num_layers.max(),
        ratio=ratio,
    )


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    from workbench.plots.lines import lines

    return lines(
        table,
        x="num_layers",
        y=["fastest_seconds", "num_edges", "num_inputs"],
        group="sampler",
        facet=["dataset"],
        log_y=True,
        title=title(table, reported).text,
    )


def _ratios(table: pd.DataFrame, value: str, rival: str) -> pd.DataFrame:
    """A rival's value divided by DENSE's."""
    wide: Any = table.pivot_table(value, BY, "sampler")
    return (wide[rival] / wide[DENSE]).reset_index(name="ratio")


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    deep: Any = table[table.num_layers >= 2]
    last: Any = table[table.num_layers >= 5]
    least: dict[str, Any] = {"among": "sampler", "winner": DENSE, "rivals": [NS, DGL]}
    fewer, smaller = "from 2 layers on DENSE samples the fewest edges", "and reaches the fewest nodes"
    grows = "the more layers, the more edges neighbour sampling draws per edge of DENSE"
    faster = "from 2 layers on DENSE takes the least time"
    found = [
        claims.least("fewest-edges", fewer, deep, value="num_edges", by=BY, **least),
        claims.least("fewest-nodes", smaller, deep, value="num_inputs", by=BY, **least),
        claims.monotone(
            "gain-grows", grows, _ratios(table, "num_edges", NS), value="ratio", along="num_layers", by=["dataset"]
        ),
        claims.least("fastest", faster, deep, value="fastest_seconds", by=BY, timed=True, **least),
    ]
    if len(last) and DGL in set(last.sampler):
        statement = "with 5 layers DGL takes at least 6 times as long as DENSE (27 times in the paper)"
        times = _ratios(last, "fastest_seconds", DGL)
        found.append(claims.within("sixfold", statement, times, value="ratio", by=BY, least=6, form=".1f", timed=True))
    return found


def saturation(table: pd.DataFrame) -> pd.DataFrame:
    """For each data set, the first number of layers whose last hop reaches fewer new nodes than the hop before.

    Returns:
        Columns `dataset`, `saturates_at` (None: no number of layers of the table) and `reached_share` with most layers.
    """
    dense: Any = table[table.sampler == DENSE]
    rows = dense.sort_values("num_layers")
    return pd.DataFrame([_saturation(name, part) for name, part in rows.groupby("dataset")])


def _saturation(dataset: Any, rows: pd.DataFrame) -> dict[str, Any]:
    falls = rows.num_layers[rows.new_nodes.diff() < 0]
    at = int(falls.iloc[0]) if len(falls) else None
    return {"dataset": dataset, "saturates_at": at, "reached_share": rows.reached_share.iloc[-1]}


def stated(table: pd.DataFrame, reported: pd.DataFrame) -> dict[str, Any]:
    """Seconds of DGL relative to DENSE with 5 layers."""
    last: Any = table[table.num_layers == 5]
    ways: dict[str, Any] = {"value": "fastest_seconds", "among": "sampler", "by": BY}
    return {"twenty-seven-times": claims.method_ratios(last, between=(DGL, DENSE), **ways)}


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Milliseconds, thousands of nodes and of edges by number of layers, the paper's first."""
    columns = ["dataset", "sampler", "num_layers", "ms", "nodes_k", "edges_k", "saturates_at"]
    paper: Any = reported.assign(dataset=reported.dataset + " (paper)")
    here: Any = table.assign(
        ms=1000 * table.fastest_seconds, nodes_k=table.num_inputs / 1000, edges_k=table.num_edges / 1000
    ).merge(saturation(table)[["dataset", "saturates_at"]])
    return pd.concat([paper.reindex(columns=columns), here.sort_values(["dataset", "sampler", "num_layers"])[columns]])
