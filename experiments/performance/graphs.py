"""Graphs of the benchmarks: a data set's, or a generated power-law graph."""

from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from pydantic import PositiveInt, model_validator
from torch import Tensor

from workbench.core.graph import Graph
from workbench.experiment.config import DataConfig, PointConfig
from workbench.experiment.figure_spec import Strict

POWER_LAW = "power-law"


class GraphConfig(DataConfig):
    """A data set of which a benchmark reads the graph alone: undirected, with node features of width 1."""

    undirected: bool | None = True
    features: str = "degree"


class PowerLaw(Strict):
    """Size of a power-law graph: its nodes, and its stored edges before duplicates are merged."""

    num_nodes: PositiveInt
    num_edges: PositiveInt


class GraphPoint(PointConfig):
    """A grid point that reads one graph.

    Args:
        dataset: whose graph and training nodes are read.
        power_law: the graph to generate instead; every second node is a training node.
        device: only the CPU is benchmarked.
        repeats: rounds that are timed.
    """

    dataset: GraphConfig | None = None
    power_law: PowerLaw | None = None
    device: Literal["cpu"] = "cpu"
    repeats: PositiveInt = 15

    @model_validator(mode="after")
    def _one_graph(self) -> "GraphPoint":
        if (self.dataset is None) == (self.power_law is None):
            raise ValueError("set either dataset or power_law")
        return self

    @property
    def graph(self) -> str:
        """The graph's name in tables."""
        return self.dataset.name if self.dataset else POWER_LAW

    def load(self) -> tuple[Graph, Tensor]:
        """The graph and the ids of its training nodes, int64 [num_train]."""
        return _load(self.dataset, self.power_law)  # pyright: ignore[reportArgumentType]  # frozen, so hashable


@lru_cache(maxsize=1)
def _load(dataset: GraphConfig | None, power_law: PowerLaw | None) -> tuple[Graph, Tensor]:
    """The graph of the previous point is kept: neighbouring points of a grid share it."""
    if dataset is not None:
        data = dataset.load()
        return data.graph, data.train_idx
    assert power_law is not None
    graph = power_law_graph(power_law.num_nodes, power_law.num_edges)
    return graph, torch.arange(0, graph.num_nodes, 2)


def power_law_graph(num_nodes: int, num_edges: int, *, seed: int = 0) -> Graph:
    """An undirected Chung–Lu graph whose degree distribution has exponent 3, with node ids in random order.

    Args:
        num_nodes: number of nodes.
        num_edges: number of stored edges (both directions) before duplicates are merged.
        seed: of numpy's generator.
    """
    rng = np.random.default_rng(seed)
    weight = (np.arange(num_nodes) + 10.0) ** -0.5
    cumulated = np.cumsum(weight) / weight.sum()
    ids = rng.permutation(num_nodes)
    ends = ids[np.searchsorted(cumulated, rng.random((2, num_edges // 2)))]
    return Graph.from_edges(ends[0], ends[1], num_nodes=num_nodes, undirected=True)
