"""Graphs that the benchmarks share: real ones where WORKBENCH_DATA holds them, and a power-law graph made here."""

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from workbench.core.graph import Graph

REAL = ("ogbn-arxiv", "dblp-2010", "cnr-2000")


def power_law_graph(num_nodes: int = 500_000, num_edges: int = 16_000_000, seed: int = 0) -> Graph:
    """An undirected Chung-Lu graph whose degrees fall off with exponent 3, node ids in random order.

    Args:
        num_nodes: nodes.
        num_edges: stored edges (both directions) before repeats are merged.
        seed: of numpy's generator.
    """
    rng = np.random.default_rng(seed)
    weight = (np.arange(num_nodes) + 10.0) ** -0.5
    cumulated = np.cumsum(weight) / weight.sum()
    ids = rng.permutation(num_nodes)
    ends = ids[np.searchsorted(cumulated, rng.random((2, num_edges // 2)))]
    return Graph.from_edges(ends[0], ends[1], num_nodes=num_nodes, undirected=True)


def real_graph(name: str) -> tuple[Graph, Tensor] | None:
    """A real graph made undirected and its training nodes (all nodes without a split); None if it is not at hand."""
    path = Path(os.environ.get("WORKBENCH_DATA", "")) / f"{name}.npz"
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as data:
        src, dst = data["edge_index"]
        graph = Graph.from_edges(src, dst, num_nodes=int(data["num_nodes"]), undirected=True)
        train = torch.from_numpy(data["train_idx"]) if "train_idx" in data.files else torch.arange(graph.num_nodes)
    return graph, train
