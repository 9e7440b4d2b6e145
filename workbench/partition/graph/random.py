"""Nodes in a random order, cut evenly."""

from torch import Tensor

from workbench.core.graph import Graph
from workbench.core.randomness import Purpose, permutation, stream
from workbench.partition.even import cut_evenly


def random_nodes(g: Graph, num_parts: int, seed: int) -> Tensor:
    """Cut a random order of the nodes into runs."""
    return cut_evenly(permutation(stream(seed, Purpose.PARTITION), g.num_nodes), num_parts)
