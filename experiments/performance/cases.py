"""Random configurations: one seeded sequence of cases over many graphs, measured in points of a graph and a range."""

import random
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from typing import Any, Literal

import torch
from pydantic import NonNegativeInt
from torch import Tensor

import workbench as wb
from experiments.performance.graphs import POWER_LAW, GraphConfig, power_law_graph
from workbench.core.graph import Graph
from workbench.experiment.config import PointConfig

Case = dict[str, Any]
CaseSequence = Callable[[random.Random, tuple[str, ...]], Iterator[Case]]


class CasesPoint(PointConfig):
    """A grid point that measures the cases of a range of the sequence that were drawn for its graph.

    Args:
        dataset: its graph; None: a power-law graph of 20,000 nodes and up to 280,000 edges.
        all_graphs: whether the sequence draws from all graphs of the benchmark, or from this point's alone.
        draws: numbers of the first draw and of the one after the last.
        device: memory is measured on the CPU alone.
        seed: of the sequence.
    """

    dataset: GraphConfig | None = None
    all_graphs: bool = True
    draws: tuple[NonNegativeInt, NonNegativeInt]
    device: Literal["cpu"] = "cpu"

    @property
    def graph(self) -> str:
        """The graph's name in cases."""
        return self.dataset.name if self.dataset else POWER_LAW

    def cases(self, sequence: CaseSequence, graphs: tuple[str, ...]) -> Iterator[Case]:
        """This point's cases.

        Args:
            sequence: makes all cases in order, of a generator of random numbers and the graphs to draw from.
            graphs: names of all graphs of the benchmark.

        Raises:
            ValueError: the point's graph is not one of them.
        """
        if self.all_graphs and self.graph not in graphs:
            raise ValueError(f"no case is drawn for {self.graph}; choose from {', '.join(graphs)}, or all_graphs=false")
        drawn = _drawn(sequence, self.seed, graphs if self.all_graphs else (self.graph,))
        return (dict(case) for case in drawn.upto(self.draws[1])[self.draws[0] :] if case["graph"] == self.graph)


def as_row(case: Case) -> dict[str, Any]:
    """A case as columns: `case_seed`, apart from the seed of the sequence, and fanouts as text."""
    row = {"case_seed" if name == "seed" else name: value for name, value in case.items()}
    return row | {"fanouts": str(case["fanouts"])}


class _Drawn:
    """The beginning of a sequence that points of one process share: a point begins where others left off."""

    def __init__(self, cases: Iterator[Case]) -> None:
        self._cases = cases
        self._made: list[Case] = []

    def upto(self, stop: int) -> list[Case]:
        """The first `stop` cases."""
        self._made += islice(self._cases, max(0, stop - len(self._made)))
        return self._made[:stop]


@cache
def _drawn(sequence: CaseSequence, seed: int, graphs: tuple[str, ...]) -> _Drawn:
    return _Drawn(sequence(random.Random(seed), graphs))


@cache
def case_graph(name: str) -> Graph:
    """A graph that cases are drawn from: a data set's, or the power-law graph.

    Args:
        name: of the graph.
    """
    if name == POWER_LAW:
        return power_law_graph(20_000, 280_000)
    return wb.load_dataset(name, undirected=True, features="degree").graph


@cache
def nodes_with_neighbors(name: str) -> Tensor:
    """Ids of the nodes of a graph that have in-neighbours, int64.

    Args:
        name: of the graph.
    """
    return case_graph(name).indptr.diff().nonzero()[:, 0]


def random_nodes(nodes: Tensor, count: int, *, seed: int) -> Tensor:
    """Distinct nodes in random order.

    Args:
        nodes: to choose from.
        count: how many, at most all of them.
        seed: of torch's generator.
    """
    return nodes[torch.randperm(len(nodes), generator=torch.Generator().manual_seed(seed))[:count]]
