"""The streaming partitioner beside METIS: edges cut, balance and speed, in several orders of the same edges.

An edge is cut if its ends have different owners. Speeds are edges per CPU second of the process, checks of the chunks
included; METIS runs in a process of its own and is not timed. Orders of the stream: by node id (natural), nodes in
random order, nodes in the order of a breadth-first search from node 0 (each new component from its first node), each
with the edges into a node together; and single edges in random order (shuffled).
"""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import numba
import numpy as np
import pandas as pd
import torch
from pydantic import PositiveInt
from torch import Tensor

import workbench as wb
from experiments.performance.graphs import GraphPoint
from workbench.core.randomness import permutation
from workbench.experiment import claims
from workbench.experiment.finding import Finding

Edges = tuple[Tensor, Tensor]
GREEDY = ("ldg", "fennel")
LEAST_SPEED = 2.0  # million edges per CPU second
MOST_BALANCE = 1.1
_CHUNK_EDGES = 1 << 20


class Config(GraphPoint):
    """One method on the edges of one graph in one order."""

    num_parts: PositiveInt
    method: Literal["ldg", "fennel", "metis", "random", "range"]
    order: Literal["natural", "random", "bfs", "shuffled"]


def run(config: Config) -> Iterator[dict[str, Any]]:
    graph, _ = config.load()
    src, dst = _in_order(graph, config.order, config.seed)
    found: dict[str, Any] = {}
    if config.method in GREEDY:
        chunks = list(zip(src.split(_CHUNK_EDGES), dst.split(_CHUNK_EDGES), strict=True))
        options: dict[str, Any] = {"num_nodes": graph.num_nodes, "num_edges": graph.num_edges, "method": config.method}
        owner, found = _timed(
            partial(wb.partition.partition_stream, chunks, config.num_parts, **options),
            graph.num_edges / 1e6,
            config.repeats,
        )
    else:
        owner = wb.partition_graph(graph, config.num_parts, method=config.method, seed=config.seed)
    largest = int(torch.bincount(owner).max())
    yield {
        "graph": config.graph,
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "cut_share": float((owner[src.long()] != owner[dst.long()]).double().mean()),
        "balance": largest * config.num_parts / graph.num_nodes,
        **found,
    }


def _timed(call: Callable[[], Tensor], millions: float, repeats: int) -> tuple[Tensor, dict[str, float]]:
    """The result, and million edges per CPU second: median, least and most of the rounds after the first."""
    owner, speeds = call(), []
    for _ in range(repeats):
        start = time.process_time()
        call()
        speeds.append(millions / (time.process_time() - start))
    return owner, {"speed": statistics.median(speeds), "speed_low": min(speeds), "speed_high": max(speeds)}


def _in_order(graph: wb.Graph, order: str, seed: int) -> Edges:
    """The edges in the order of a stream."""
    rows = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.in_degrees())
    if order == "natural":
        return graph.indices, rows
    if order == "shuffled":
        shuffled = permutation(seed, graph.num_edges)
        return graph.indices[shuffled], rows[shuffled]
    nodes = permutation(seed, graph.num_nodes) if order == "random" else _breadth_first(graph)
    rank = torch.empty_like(nodes)
    rank[nodes] = torch.arange(len(nodes))
    moved = torch.argsort(rank[rows], stable=True)
    return graph.indices[moved], rows[moved]


@numba.njit
def _visit(indptr: Any, indices: Any, order: Any, seen: Any) -> None:
    """Write the nodes in the order in which a queue visits them over in-edges, component after component."""
    tail = 0
    for first in range(len(order)):
        head = tail
        if not seen[first]:
            seen[first], order[tail] = True, first
            tail += 1
        while head < tail:
            for e in range(indptr[order[head]], indptr[order[head] + 1]):
                if not seen[indices[e]]:
                    seen[indices[e]], order[tail] = True, indices[e]
                    tail += 1
            head += 1


def _breadth_first(graph: wb.Graph) -> Tensor:
    """The nodes in the order of a breadth-first search, int64 [num_nodes]."""
    order, seen = np.empty(graph.num_nodes, np.int64), np.zeros(graph.num_nodes, np.bool_)
    _visit(graph.indptr.numpy(), graph.indices.numpy(), order, seen)
    return torch.from_numpy(order)


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    """Cut edges by graph and number of parts, a mark per method and order."""
    import plotly.graph_objects as go

    from workbench.plots.style import looks, titled

    figure = go.Figure()
    rows = _named(table)
    for name, look in looks(dict.fromkeys(rows.series)).items():
        chosen: Any = rows[rows.series == name]
        figure.add_scatter(
            x=[chosen.graph.tolist(), (chosen.num_parts.astype(str) + " parts").tolist()],
            y=chosen.cut_share.tolist(),
            name=look.name,
            mode="markers",
            marker={"symbol": look.symbol, "size": 8, "color": look.color},
        )
    figure.update_yaxes(title_text="share of edges cut", range=[0, 1.02])
    return titled(figure, "Edges cut", subtitle="one pass in several orders, and METIS", height=480)


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with the name of their method, and of its order where the method reads one."""
    series = table.method.where(~table.method.isin(GREEDY), table.method + ", " + table.order)
    return table.assign(series=series)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    greedy: Any = table[table.method.isin(GREEDY)]
    grouped: Any = greedy[greedy.order != "shuffled"]
    others: Any = table[~table.method.isin(GREEDY)].pivot_table(
        index=["graph", "num_parts"], columns="method", values="cut_share"
    )
    compared: Any = grouped.join(others, on=["graph", "num_parts"])
    compared = compared.assign(of_random=compared.cut_share / compared["random"])
    best: Any = compared.assign(of_metis=compared.cut_share / compared["metis"])
    by, form = ["graph", "num_parts", "method", "order"], ".3f"
    allowed = greedy.assign(excess=greedy.balance - _most_balance(greedy))
    return [
        claims.within(
            "fast", "at least 2 million edges per second", greedy, value="speed", by=by, least=LEAST_SPEED, timed=True
        ),
        claims.within("balanced", "no part exceeds 110 % of the mean", allowed, value="excess", by=by, most=1e-5),
        claims.within(
            "fewer-than-random",
            "fewer cut edges than at random",
            compared,
            value="of_random",
            by=by,
            most=1 - 1e-9,
            form=form,
        ),
        claims.within(
            "metis-cuts-fewest", "METIS cuts no more edges", best, value="of_metis", by=by, least=1, form=form
        ),
    ]


def _most_balance(rows: Any) -> Any:
    """110 % of the mean, rounded up to whole nodes."""
    mean = rows.num_nodes / rows.num_parts
    return (-(-MOST_BALANCE * mean // 1)) / mean


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Shares of edges cut over all cases, then by method and order; speeds are medians over the cases."""
    named = _named(table)
    groups = {"share of edges cut": named, **{f"share of edges cut: {s}": r for s, r in named.groupby("series")}}
    return pd.DataFrame([_summary(name, rows) for name, rows in groups.items()])


def _summary(name: str, rows: Any) -> dict[str, Any]:
    cut = rows.cut_share
    ends = {"median": cut.median(), "from": cut.min(), "to": cut.max()}
    return {"measured": name, "cases": len(rows), **ends, "speed": rows.speed.median() if "speed" in rows else None}
