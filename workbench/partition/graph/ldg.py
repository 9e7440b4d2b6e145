"""Linear deterministic greedy (Stanton, Kliot: "Streaming graph partitioning for large distributed graphs", 2012)."""

import torch

from workbench.partition.graph.greedy import Objective


def ldg_objective(num_nodes: int, num_parts: int, num_edges: int | None, capacity: int) -> Objective:
    """Return the objective `|P ∩ Γ(v)| · (1 − |P| / C)`: neighbours in the part P, less the fuller it is.

    Args:
        num_nodes: number of nodes; not used.
        num_parts: number of parts; not used.
        num_edges: number of edges; not used.
        capacity: nodes C that a part may have.
    """
    sizes = torch.arange(capacity + 1, dtype=torch.float64)
    return Objective(1 - sizes / capacity, torch.zeros_like(sizes))
