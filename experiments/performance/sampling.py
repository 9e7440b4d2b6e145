"""Neighbour sampling against DGL's NeighborSampler: the same seeds, fanouts and graph, both on all cores."""

from collections.abc import Iterator
from typing import Any

import torch

import workbench as wb
from experiments.performance.graphs import REAL, power_law_graph, real_graph
from experiments.performance.timing import interleaved
from workbench.core.graph import Graph
from workbench.core.interop import graph_to_dgl
from workbench.core.randomness import permutation

FANOUTS = ([10], [10, 10], [10, 25], [5, 10, 15], [10, 10, 10], [10] * 4, [10] * 5)
BATCH_SIZES = (1024, 8192)
LARGE = "synthetic-products"  # at full size: 2.4 million nodes, 124 million edges


def _graphs(quick: bool) -> Iterator[tuple[str, Graph]]:
    for name in REAL[:1] if quick else REAL:
        found = real_graph(name)
        if found is not None:
            yield name, found[0]
    yield "power-law", power_law_graph(50_000, 1_000_000) if quick else power_law_graph()
    if not quick:
        yield LARGE, wb.load_dataset(LARGE, scale=1).graph


def _compare(graph: Graph, peer: Any, fanouts: list[int], batch_size: int, repeats: int) -> dict[str, float]:
    import dgl

    seeds = permutation(batch_size, graph.num_nodes)[:batch_size]
    ours, theirs = wb.NeighborSampler(fanouts), dgl.dataloading.NeighborSampler(fanouts)
    steps = iter(range(10**9))
    times = interleaved(
        lambda: ours.sample(graph, seeds, step=next(steps)), lambda: theirs.sample_blocks(peer, seeds), repeats=repeats
    )
    batch, peer_inputs = ours.sample(graph, seeds), len(theirs.sample_blocks(peer, seeds)[0])
    if abs(peer_inputs / batch.num_inputs - 1) > 0.05:  # DGL 1.1.3 loses nodes of int32 graphs from call to call
        raise RuntimeError(f"DGL sampled {peer_inputs} inputs where {batch.num_inputs} are: its times mean nothing")
    return {"num_inputs": batch.num_inputs, "num_edges": batch.num_edges, **times}


def run(quick: bool = False) -> list[dict[str, Any]]:
    """One row per graph, batch size and fanouts; `ratio` is DGL's seconds over ours.

    DGL gets its default int64 ids and the format that it samples from, built beforehand.
    """
    rows = []
    for name, graph in _graphs(quick):
        peer = graph_to_dgl(graph).formats("csc")
        for batch_size in BATCH_SIZES:
            for fanouts in FANOUTS[:3] if quick else FANOUTS:
                times = _compare(graph, peer, fanouts, batch_size, repeats=5 if quick or name == LARGE else 15)
                threads = f"{wb.get_num_threads()}/{torch.get_num_threads()}"
                case = {"graph": name, "batch_size": batch_size, "fanouts": fanouts, "threads": threads}
                rows.append(case | times)
    return rows
