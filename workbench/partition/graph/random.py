"""Random partition of a graph: a permutation of the nodes, cut evenly."""

from torch import Tensor

from workbench.core.randomness import Purpose, permutation, stream
from workbench.partition.balance import cut_evenly


def random_nodes(num_nodes: int, num_parts: int, seed: int) -> Tensor:
    """Cut a random permutation of the nodes into runs of equal length."""
    return cut_evenly(permutation(stream(seed, Purpose.PARTITION), num_nodes), num_parts)
