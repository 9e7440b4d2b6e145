"""Simulating caches of feature rows beside libcachesim: the trace is the input nodes of the first batches of an epoch.

Both sides run in one thread and are timed in its CPU seconds, alternately. libcachesim reads the trace from a file of
24 bytes per access, which the system has cached, and looks ids up in a hash table of its default size. For Belady's
policy the file contains the next uses, while this library computes them within the time that is measured.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
from pydantic import Field, PositiveInt
from torch import Tensor

import workbench as wb
from experiments.performance.graphs import GraphPoint
from workbench.experiment import claims
from workbench.experiment.finding import Finding
from workbench.features.cache.eviction import next_uses

LEAST, LEAST_BELADY = 5.0, 1.0  # million accesses per second
_PEERS = {"lru": "LRU", "fifo": "FIFO", "clock": "Clock", "sieve": "Sieve", "s3-fifo": "S3FIFO", "belady": "Belady"}
_RECORD = np.dtype([("time", "<u4"), ("row", "<u8"), ("size", "<u4"), ("next_use", "<i8")])
_TOLERANCE = 1e-3


class Config(GraphPoint):
    """One policy on the trace of one graph; fanouts input layer first."""

    policy: str
    fanouts: tuple[int, ...]
    batch_size: PositiveInt
    num_batches: PositiveInt
    capacity_share: float = Field(gt=0, le=1)


def run(config: Config) -> Iterator[dict[str, Any]]:
    """A policy that libcachesim does not have is timed alone.

    Raises:
        RuntimeError: the two sides differ in their miss rates.
    """
    same: Any = config.model_copy(update={"policy": "", "repeats": 1})  # frozen, so hashable
    trace, num_rows, by_degree = _trace(same)
    capacity = max(1, int(config.capacity_share * num_rows))
    options = {"policy": config.policy, "num_rows": num_rows, "rows": by_degree if config.policy == "static" else None}
    calls: dict[str, Callable[[], float]] = {
        "": lambda: wb.features.simulate_cache(trace, capacity, **options).miss_rate,
        "batch_": lambda: wb.features.simulate_cache(trace, capacity, semantics="batch", **options).miss_rate,
    }
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        if config.policy in _PEERS:
            file.write(_records(trace).tobytes())
            file.flush()
            calls["peer_"] = lambda: _peer_miss_rate(config.policy, file.name, capacity)
        measured = _rounds(calls, len(trace.ids) / 1e6, config.repeats)
    _check_equal(measured["miss_rate"], measured.get("peer_miss_rate", measured["miss_rate"]))
    yield {"graph": config.graph, "capacity_rows": capacity, "num_accesses": len(trace.ids), **measured}


@lru_cache(maxsize=1)
def _trace(config: Any) -> tuple[wb.AccessTrace, int, Tensor]:
    """The trace, the number of nodes, and the nodes by degree; kept for the next point, which often shares them."""
    graph, ids = config.load()
    sampler = wb.NeighborSampler(config.fanouts, seed=config.seed)
    batches = wb.batches(graph, ids, sampler=sampler, batch_size=config.batch_size, epoch=0)
    reads = [mb.node_ids for _, mb in islice(batches, config.num_batches)]
    return wb.AccessTrace.of(reads), graph.num_nodes, wb.features.rank_by_degree(graph)


def _records(trace: wb.AccessTrace) -> np.ndarray:
    """The trace in libcachesim's format "oracleGeneral"; ids begin at 1 there."""
    records = np.zeros(len(trace.ids), _RECORD)
    records["row"], records["size"] = trace.ids.numpy() + 1, 1
    records["next_use"] = next_uses(trace.ids, trace.offsets, int(trace.ids.max()) + 1, later_read=False)
    return records


def _peer_miss_rate(policy: str, file: str, capacity: int) -> float:
    peer: Any = import_module("libcachesim")
    reader = peer.TraceReader(file, peer.TraceType.ORACLE_GENERAL_TRACE, peer.ReaderInitParam(ignore_obj_size=True))
    return getattr(peer, _PEERS[policy])(capacity).process_trace(reader)[0]


def _check_equal(ours: float, theirs: float) -> None:
    if abs(ours - theirs) > _TOLERANCE:
        raise RuntimeError(
            f"libcachesim misses {theirs:.4f}, this library {ours:.4f}: the times do not compare; use another version"
        )


def _rounds(calls: dict[str, Callable[[], float]], millions: float, repeats: int) -> dict[str, float]:
    """Miss rate of each call, and its million accesses per CPU second: median and quartiles of alternating rounds."""
    found = {f"{name}miss_rate": call() for name, call in calls.items()}
    speeds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(max(2, repeats)):
        for name, call in calls.items():
            start = time.thread_time()
            call()
            speeds[name].append(millions / (time.thread_time() - start))
    for name, values in speeds.items():
        ends = ("speed_low", "speed", "speed_high")
        quartiles = statistics.quantiles(values, n=4, method="inclusive")
        found |= {f"{name}{end}": value for end, value in zip(ends, quartiles, strict=True)}
    return found


def draw(table: pd.DataFrame, reported: pd.DataFrame) -> Any:
    """A dot per policy and graph at the median, with a bar over the quartiles of the rounds."""
    import plotly.graph_objects as go

    from workbench.plots.style import looks, titled

    figure = go.Figure()
    for name, look in looks(dict.fromkeys(table.graph)).items():
        rows: Any = table[table.graph == name]
        above, below = rows.speed_high - rows.speed, rows.speed - rows.speed_low
        figure.add_scatter(
            x=rows.policy.tolist(),
            y=rows.speed.tolist(),
            error_y={"array": above.tolist(), "arrayminus": below.tolist(), "thickness": 1, "width": 2},
            name=look.name,
            mode="markers",
            marker={"symbol": look.symbol, "size": 8, "color": look.color},
        )
    figure.update_yaxes(title_text="million accesses per CPU second", rangemode="tozero")
    return titled(figure, "Simulating caches", subtitle="one thread, access semantics", height=440)


def check(table: pd.DataFrame, reported: pd.DataFrame) -> list[Finding]:
    with_trace: Any = table.policy.str.startswith("belady")
    online: Any = table[~with_trace]
    offline: Any = table[with_trace]
    given: dict[str, Any] = {"value": "speed", "by": ["graph", "policy"], "form": ".1f", "timed": True}
    return [
        claims.within("fast", f"at least {LEAST:g} million accesses per second", online, least=LEAST, **given),
        claims.within("fast-belady", f"with Belady at least {LEAST_BELADY:g}", offline, least=LEAST_BELADY, **given),
    ]


def compare(table: pd.DataFrame, reported: pd.DataFrame) -> pd.DataFrame:
    """Speeds over all cases, then per policy beside libcachesim's."""
    whole = "simulated accesses, millions per second of one thread"
    groups = {whole: table, **{f"{whole}: {name}": rows for name, rows in table.groupby("policy", sort=False)}}
    return pd.DataFrame([_summary(name, rows) for name, rows in groups.items()])


def _summary(name: str, rows: Any) -> dict[str, Any]:
    speed, peer = rows.speed, rows.get("peer_speed", pd.Series(dtype=float))
    ends = {"median": speed.median(), "from": speed.min(), "to": speed.max()}
    return {"measured": name, "cases": len(rows), **ends, "libcachesim": peer.median()}
