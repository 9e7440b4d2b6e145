"""Factors of nodes as few distinct levels and a byte per node, which is what a kernel looks up per edge."""

from typing import NamedTuple

import torch
from torch import Tensor

from workbench.core.errors import check_vector
from workbench.core.graph import Graph

MAX_LEVELS = 256
_LARGEST = 2.0**20


class Levels(NamedTuple):
    """A factor per node.

    Args:
        factors: float64 [num_levels], the distinct factors, in descending order.
        codes: uint8 [num_nodes], the level of every node.
    """

    factors: Tensor
    codes: Tensor

    @classmethod
    def of(cls, factors: Tensor) -> "Levels":
        """Find the levels of a valid vector of factors."""
        distinct, codes = torch.unique(factors.double(), return_inverse=True)
        if len(distinct) > MAX_LEVELS:
            raise ValueError(
                f"factors contains {len(distinct)} different values; at most {MAX_LEVELS} are possible: round them, to "
                "powers of two, say"
            )
        return cls(distinct.flip(0), (len(distinct) - 1 - codes).to(torch.uint8))

    def on(self, graph: Graph) -> "Levels":
        """Return the levels on the graph's device.

        Raises:
            ValueError: they are those of another number of nodes.
        """
        if len(self.codes) != graph.num_nodes:
            raise ValueError(
                f"factors has {len(self.codes)} values, but the graph has {graph.num_nodes} nodes; pass one per node "
                "(wb.locality_factors computes them from the ids of buffered nodes)"
            )
        return Levels(self.factors.to(graph.device), self.codes.to(graph.device))


def check_factors(factors: Tensor) -> None:
    """Check a vector of factors.

    Args:
        factors: float32 or float64 [num_nodes].

    Raises:
        TypeError: factors of another type.
        ValueError: not a vector, or a factor that is not a number from 2⁻²⁰ to 2²⁰.
    """
    check_vector("factors", factors, None, (torch.float64, torch.float32))
    bad = ~((factors >= 1 / _LARGEST) & (factors <= _LARGEST))
    if bool(bad.any()):
        at = int(bad.nonzero()[0])
        raise ValueError(f"factors contains {factors[at].item()} at position {at}; factors must be from 2⁻²⁰ to 2²⁰")
