"""Placing rows on devices: CPU seconds and expected costs of Algorithm 1, the search, METIS and PaGraph, in one run.

All methods place the same rows for the same probabilities; METIS and PaGraph partition the graph and place the hottest
rows of each part. Seconds are CPU time of this process and its children, since METIS runs in a child: the median of
alternating rounds after a first one. Partitioners take part in the first rounds alone, after a small graph.
"""

import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import psutil
import torch
from pydantic import Field, NonNegativeInt, PositiveInt

import workbench as wb
from experiments.performance.graphs import GraphPoint
from workbench.experiment import claims
from workbench.experiment.finding import Finding

ALGORITHM_1, UNIFORM, MATRIX = "Algorithm 1", "search", "search, cost matrix"
PARTITIONERS = ("METIS", "PaGraph")
MOST_SECONDS, MOST_UNIFORM, MOST_MATRIX = 1.0, 2.0, 10.0
MOST_GAP = 0.01
LARGE = 1_000_000  # nodes
TIMED = ((ALGORITHM_1, UNIFORM), (UNIFORM,), (MATRIX,))


class Config(GraphPoint):
    """One graph; fanouts input layer first.

    Args:
        fanouts: of the batches; their number is that of PaGraph's hops.
        batch_size: seeds per batch and device.
        num_devices: devices, at least 2.
        buffer_share: rows that each device has room for, as a share of all rows.
        peer_cost: of a row of another device; the host's is 1. In the cost matrix, pairs of devices pay a third of it.
        slow_repeats: rounds in which the partitioners take part.
    """

    fanouts: tuple[int, ...]
    batch_size: PositiveInt
    num_devices: int = Field(ge=2)
    buffer_share: float = Field(gt=0, le=1)
    peer_cost: float = Field(ge=0, le=1)
    slow_repeats: NonNegativeInt = 1


def run(config: Config) -> Iterator[dict[str, Any]]:
    graph, seeds = config.load()
    options: dict[str, Any] = {"fanouts": config.fanouts, "batch_size": config.batch_size}
    p, times = wb.placement.inclusion_probability(graph, seeds, **options), []  # loads compiled code
    for _ in range(config.repeats):
        start = _cpu_seconds()
        wb.placement.inclusion_probability(graph, seeds, **options)
        times.append(_cpu_seconds() - start)
    about = {"graph": config.graph, "nodes": graph.num_nodes, "edges": graph.num_edges}
    about["probability_seconds"] = statistics.median(times)
    warm_up(config)
    placed, seconds = _rounds(_calls(config, graph, seeds, p), config)
    base = statistics.median(seconds[ALGORITHM_1])
    for name, placement in placed.items():
        times = seconds[name]
        spread = {"low_seconds": min(times), "seconds": statistics.median(times), "high_seconds": max(times)}
        yield {**about, "placement": name, **spread, "of_algorithm_1": spread["seconds"] / base, **placement.row()}


def warm_up(config: Config) -> None:
    """Partition a small graph, so that the rounds of partitioners load no compiled code."""
    ring, nodes = torch.arange(64), torch.arange(64).roll(1)
    small = wb.Graph.from_edges(ring, nodes, undirected=True)
    wb.partition_graph(small, config.num_devices)
    wb.partition.pagraph_parts(small, ring[:8], config.num_devices, num_hops=len(config.fanouts))


def _calls(config: Config, graph: wb.Graph, seeds: Any, p: Any) -> dict[str, Callable[[], wb.placement.Placement]]:
    n, hops = config.num_devices, len(config.fanouts)
    given: dict[str, Any] = {"num_devices": n, "rows_per_device": max(1, int(config.buffer_share * graph.num_nodes))}
    near = [[config.peer_cost / (3 if i // 2 == j // 2 else 1) for j in range(n)] for i in range(n)]

    def place(method: str, peer_cost: Any = config.peer_cost, **options: Any) -> wb.placement.Placement:
        return wb.placement.place_rows(p, **given, method=method, peer_cost=peer_cost, **options)

    return {
        ALGORITHM_1: lambda: place("algorithm-1"),
        "Algorithm 1, total": lambda: place("algorithm-1", objective="total"),
        "Algorithm 1, printed": lambda: place("algorithm-1-printed"),
        UNIFORM: lambda: place("search"),
        MATRIX: lambda: place("search", near),
        "naive": lambda: place("naive"),
        "random": lambda: place("random"),
        "METIS": lambda: place("parts", parts=wb.partition_graph(graph, n)),
        "PaGraph": lambda: place("parts", parts=wb.partition.pagraph_parts(graph, seeds, n, num_hops=hops).nodes),
    }


def _rounds(
    calls: dict[str, Callable[[], wb.placement.Placement]], config: Config
) -> tuple[dict[str, wb.placement.Placement], dict[str, list[float]]]:
    """The placements of an uncounted first round of the quick methods, and the seconds of each call per round."""
    placed: dict[str, wb.placement.Placement] = {n: call() for n, call in calls.items() if n not in PARTITIONERS}
    seconds: dict[str, list[float]] = {}
    for turn in range(max(config.repeats, config.slow_repeats)):
        for name, call in calls.items():
            if turn < (config.slow_repeats if name in PARTITIONERS else config.repeats):
                start = _cpu_seconds()
                placed[name] = call()
                seconds.setdefault(name, []).append(_cpu_seconds() - start)
    return placed, seconds


def _cpu_seconds() -> float:
    """CPU seconds of this process and its children, running or ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = time.process_time() + ended.ru_utime + ended.ru_stime
    for child in psutil.Process(os.getpid()).children(recursive=True):
        try:
            total += sum(child.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    return total


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    """Expected cost over CPU seconds, a dot per method and graph; the bound is a dotted line per graph."""
    import plotly.graph_objects as go

    from workbench.plots.style import looks, titled

    figure = go.Figure()
    shown: Any = table[table.placement != MATRIX]  # whose costs are others
    for name, look in looks(dict.fromkeys(shown.placement)).items():
        rows: Any = shown[shown.placement == name]
        figure.add_scatter(
            x=rows.seconds.tolist(),
            y=(rows.gap + 1).tolist(),
            text=rows.graph.tolist(),
            name=look.name,
            mode="markers",
            marker={"symbol": look.symbol, "size": 9, "color": look.color},
        )
    figure.update_xaxes(type="log", title_text="CPU seconds")
    figure.update_yaxes(title_text="expected cost ÷ lower bound")
    return titled(
        figure, "Placing rows on devices", subtitle="cost of the objective that a method minimises", height=460
    )


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    by: dict[str, Any] = {"by": ["graph", "placement"]}
    searched: Any = table[table.placement.isin((UNIFORM, MATRIX))]
    told = f"the search is within {MOST_GAP:.0%} of the lower bound"
    findings = [claims.within("gap", told, searched, value="gap", most=MOST_GAP, form=".4f", **by)]
    large: Any = table[table.nodes >= LARGE]  # on fewer rows the linear program takes longer than sorting them
    times: dict[str, Any] = {**by, "form": ".2f", "timed": True}
    limits = {
        "fast": (f"Algorithm 1 and the search take at most {MOST_SECONDS:g} s", "seconds", MOST_SECONDS),
        "search-uniform": (f"the search at most {MOST_UNIFORM:g} times as long", "of_algorithm_1", MOST_UNIFORM),
        "search-matrix": (f"with a cost matrix at most {MOST_MATRIX:g} times", "of_algorithm_1", MOST_MATRIX),
    }
    for (name, (statement, value, most)), of in zip(limits.items(), TIMED, strict=True):
        rows: Any = large[large.placement.isin(of)]
        if len(rows):
            findings.append(claims.within(name, statement, rows, value=value, most=most, **times))
    return findings


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Seconds and costs beside the paper's seconds for four parts."""
    columns = ["graph", "placement", "seconds", "of_algorithm_1", "largest_cost", "gap", "coverage"]
    shown: Any = table[columns]
    return shown.rename(columns={"seconds": "CPU seconds"})
