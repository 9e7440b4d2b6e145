"""Fennel (Tsourakakis et al.: "FENNEL: streaming graph partitioning for massive scale graphs", WSDM 2014)."""

import numpy as np
import torch

from workbench.partition.graph.greedy import Objective

_GAMMA = 1.5


def fennel_objective(num_nodes: int, num_parts: int, num_edges: int | None, capacity: int) -> Objective:
    """Return the objective `|P ∩ Γ(v)| − α γ |P|^(γ−1)`: neighbours in the part P, minus a cost of its size.

    γ = 1.5 and `α = √k · m / n^1.5`. m is half of the stream's edges: in a symmetric stream that is the paper's number
    of undirected edges, and in any stream the number that count on average, since an edge counts only if its source
    has arrived before.

    Args:
        num_nodes: number n of nodes.
        num_parts: number k of parts.
        num_edges: edges of the stream, 2m.
        capacity: nodes that a part may have.

    Raises:
        ValueError: without `num_edges`.
    """
    if num_edges is None:
        raise ValueError(
            "num_edges is None, but fennel weighs sizes by the number of edges, which this stream does not tell; pass "
            'num_edges=, or use method="ldg"'
        )
    alpha = num_parts**0.5 * (num_edges / 2) / max(1, num_nodes) ** _GAMMA
    roots = torch.from_numpy(np.sqrt(np.arange(capacity + 1.0)))  # |P|^(γ−1); torch's depend on the machine's rounding
    return Objective(torch.ones_like(roots), alpha * _GAMMA * roots)
